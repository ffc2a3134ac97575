//! Replicas that come and go on a bus.

use tracing::info;

use super::{Pipeline, Tasks};
use crate::{bus::Found, config::Config};

impl Pipeline {
    /// Begins to read what appeared, and forgets what vanished.
    pub async fn follow(&self, found: Found, config: &Config, tasks: &mut Tasks) {
        match found {
            Found::Appeared { replica, engine } => {
                if self.open_found(&replica, engine, config, tasks) {
                    info!(replica = %replica.key(), "replica found on the bus");
                }
            }
            Found::Vanished { replica } => {
                let key = replica.key();
                let found = self.fleet.replica(key.as_str());
                // One with a source here was never ours to forget.
                if found.is_some_and(|(_, handle)| !handle.is_bridged) {
                    self.close(&key).await;
                    info!(replica = %key, "nothing is left of the replica on the bus");
                }
            }
        }
    }
}
