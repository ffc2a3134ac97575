//! Views of replicas that are no more: whoever published them is gone, and so is all that was said
//! of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use async_nats::jetstream::{Context, kv::Operation, stream::DirectGetErrorKind};
use futures::TryStreamExt;
use kvbridge_schemas::{Replica, ReplicaKey, subject};
use tracing::debug;

use super::{Snapshots, StoreFault, age_ms, keep::Round};
use crate::{
    bus::nats::{connect::reason, streams::Plan},
    clock::millis,
    config::limits::{BUS_SNAPSHOT_GRACE, BUS_SWEEP_REPLICAS},
    shared_log::Pointer,
};

impl Round<'_> {
    /// Deletes what nobody is sent to any more.
    pub(super) async fn sweep(&self, store: &Snapshots) {
        let keys: Vec<ReplicaKey> = self.keep.keys().collect();
        let old = store.sweep(&keys, BUS_SNAPSHOT_GRACE).await;
        let models = self.keep.bridged().map(|(_, handle)| handle.replica.model.clone()).collect();
        let (context, retention) = (&self.session.context, self.keep.config.streams.retention);
        let dead = Dead { context, plan: &self.keep.plan, ours: &keys, models, retention };
        let bucket = self.keep.plan.bucket("KVSNAP");
        let cut_off = store.sweep_cut_off(context, &bucket, retention).await;
        for swept in [old, store.sweep_dead(&dead).await, cut_off] {
            match swept {
                Ok(count) => self.keep.metrics.deleted.increment(count),
                Err(error) => debug!(%error, "old snapshots not deleted"),
            }
        }
    }
}

/// Which replicas may be dead, for whoever looks.
pub(super) struct Dead<'a> {
    pub(super) context: &'a Context,
    pub(super) plan: &'a Plan,
    /// What this process publishes itself is none.
    pub(super) ours: &'a [ReplicaKey],
    /// Of these models: a bridge may write no other.
    pub(super) models: BTreeSet<String>,
    /// How long messages are kept. A bridge that is there moves its pointers several times within.
    pub(super) retention: Duration,
}

/// Whether a replica is dead: its log is empty, and nobody has led to a view of it for as long as
/// messages are kept.
fn is_dead(log_is_empty: bool, led_ms: Option<u64>, retention_ms: u64) -> bool {
    log_is_empty && led_ms.is_none_or(|ms| ms > retention_ms)
}

impl Snapshots {
    /// Deletes views and pointers of dead replicas. Returns how many views.
    pub(super) async fn sweep_dead(&self, dead: &Dead<'_>) -> Result<u64, StoreFault> {
        let retention_ms = millis(dead.retention);
        let listed = self.objects.list().await;
        let mut listed = listed.map_err(|error| StoreFault::server(&error))?;
        let mut old: BTreeMap<Replica, Vec<String>> = BTreeMap::new();
        while let Some(info) =
            listed.try_next().await.map_err(|error| StoreFault::server(&error))?
        {
            let Some(replica) = Pointer::replica_of(&info.name) else { continue };
            let stored_ms = info.modified.map_or(u64::MAX, |at| age_ms(at.unix_timestamp_nanos()));
            let may_be = dead.models.contains(&replica.model)
                && !dead.ours.contains(&replica.key())
                && stored_ms > retention_ms;
            // The rest is looked at a minute later.
            let room = old.len() < BUS_SWEEP_REPLICAS || old.contains_key(&replica);
            if may_be && room {
                old.entry(replica).or_default().push(info.name);
            }
        }
        let mut deleted = 0;
        for (replica, names) in old {
            if self.forget_if_dead(dead, &replica, retention_ms).await? {
                deleted += self.delete_all(&replica.key(), names).await?;
            }
        }
        Ok(deleted)
    }

    /// Takes the pointer away, if it is still that of a dead replica.
    async fn forget_if_dead(
        &self,
        dead: &Dead<'_>,
        replica: &Replica,
        retention_ms: u64,
    ) -> Result<bool, StoreFault> {
        let key = replica.key();
        let stream = dead.context.get_stream_no_info(dead.plan.name_of(replica)).await;
        let stream = stream.map_err(|error| StoreFault::Server(reason(&error)))?;
        let log_is_empty = match stream.direct_get_last_for_subject(subject::hint(&key)).await {
            Ok(_) => false,
            Err(error) if error.kind() == DirectGetErrorKind::NotFound => true,
            Err(error) => return Err(StoreFault::Server(reason(&error))),
        };
        let entry = self.pointers.entry(key.as_str()).await;
        let entry = entry.map_err(|error| StoreFault::server(&error))?;
        let entry = entry.filter(|entry| entry.operation == Operation::Put);
        let led_ms = entry.as_ref().map(|entry| age_ms(entry.created.unix_timestamp_nanos()));
        if !is_dead(log_is_empty, led_ms, retention_ms) {
            return Ok(false);
        }
        match entry {
            // Somebody who leads there now has moved it.
            Some(entry) => {
                let revision = Some(entry.revision);
                Ok(self.pointers.delete_expect_revision(key.as_str(), revision).await.is_ok())
            }
            None => Ok(true),
        }
    }

    async fn delete_all(&self, key: &ReplicaKey, names: Vec<String>) -> Result<u64, StoreFault> {
        let mut deleted = 0;
        for name in names {
            // A bridge of it may have come just now.
            if self.pointer(key).await?.is_none() && self.objects.delete(&name).await.is_ok() {
                deleted += 1;
            }
        }
        Ok(deleted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_is_who_has_no_message_and_nobody_that_leads_there() {
        assert!(is_dead(true, Some(1_001), 1_000));
        assert!(!is_dead(true, Some(1_000), 1_000), "a bridge may be there");
        assert!(!is_dead(false, Some(1_001), 1_000), "its log is read");
        assert!(is_dead(true, None, 1_000), "its pointer went before");
    }
}
