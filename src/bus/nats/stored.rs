//! After a long outage: what of the window the server has already.

use std::collections::BTreeMap;

use async_nats::{header::NATS_MESSAGE_ID, jetstream::Context};

use super::{
    connect::reason,
    publisher::{Pending, Publisher},
    tail,
};
use crate::clock::Clock;

impl Publisher {
    /// The server no longer knows the ids of what was sent long ago: sent again, it would be there
    /// twice. So what waits is compared with what is there.
    pub(super) async fn take_stored(
        &self,
        context: &Context,
        pending: &mut Pending,
    ) -> Result<(), String> {
        let away_ms =
            pending.lost_at_ms.take().map_or(0, |at| Clock::steady_unix_ms().saturating_sub(at));
        let known_ms = self.config.streams.duplicate_window.as_millis() / 2;
        if u128::from(away_ms) < known_ms || pending.window.is_empty() {
            return Ok(());
        }
        let stream = context.get_stream(&self.wanted.name).await.map_err(|error| reason(&error))?;
        let mut there = BTreeMap::new();
        for queued in pending.window.iter() {
            if !there.contains_key(&queued.stored_as) {
                let end = tail::read(&stream, &queued.stored_as).await?;
                there.insert(queued.stored_as.clone(), end.ids);
            }
        }
        let taken = pending.window.take_stored(|queued| {
            let id = queued.headers.get(NATS_MESSAGE_ID).map(ToString::to_string);
            let ids = there.get(&queued.stored_as);
            id.is_some_and(|id| ids.is_some_and(|ids| ids.contains(&id)))
        });
        self.metrics.duplicates.increment(u64::try_from(taken).unwrap_or(0));
        Ok(())
    }
}
