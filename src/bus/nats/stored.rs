//! After a long outage: what of the window the server has already.

use std::collections::{BTreeMap, VecDeque};

use async_nats::{header::NATS_MESSAGE_ID, jetstream::Context};

use super::{
    connect::reason,
    publisher::{Publisher, Window},
    tail,
};
use crate::clock::Clock;

impl Publisher {
    /// The server no longer knows the ids of what was sent long ago: sent again, it would be there
    /// twice. So what waits is compared with what is there.
    pub(super) async fn take_stored(
        &self,
        context: &Context,
        window: &mut Window,
    ) -> Result<(), String> {
        let away_ms = window.lost_at_ms.take().map_or(0, |at| Clock::unix_ms().saturating_sub(at));
        let known_ms = self.config.streams.duplicate_window.as_millis() / 2;
        if u128::from(away_ms) < known_ms || window.messages.is_empty() {
            return Ok(());
        }
        let stream = context.get_stream(&self.wanted.name).await.map_err(|error| reason(&error))?;
        let mut there = BTreeMap::new();
        for queued in &window.messages {
            if !there.contains_key(&queued.stored_as) {
                let end = tail::read(&stream, &queued.stored_as).await?;
                there.insert(queued.stored_as.clone(), end.ids);
            }
        }
        let mut left = VecDeque::new();
        for queued in window.messages.drain(..) {
            let id = queued.headers.get(NATS_MESSAGE_ID).map(ToString::to_string);
            let ids = there.get(&queued.stored_as);
            if id.is_some_and(|id| ids.is_some_and(|ids| ids.contains(&id))) {
                self.metrics.duplicates.increment(1);
            } else {
                left.push_back(queued);
            }
        }
        window.messages = left;
        Ok(())
    }
}
