//! Snapshots on the server: objects that never change, and one pointer for each replica.
//!
//! - `stream`: an object as the chunks of a checkpoint file, neither side holding more than a few.
//! - `keep`: when a bridge stores one; `serve`: who asks for one, and when that is too many.
//! - `dead`: views of replicas that are no more; `cut_off`: of uploads that never became one.

mod cut_off;
mod dead;
mod keep;
mod serve;
mod stream;

use std::time::Duration;

use async_nats::jetstream::{
    Context, kv, object_store,
    object_store::{GetErrorKind, ObjectStore},
};
use futures::{StreamExt, TryStreamExt};
use kvbridge_schemas::{Cursor, ReplicaKey};

use super::{connect::reason, streams::Plan};
use crate::{
    clock::{Clock, millis},
    config::NatsConfig,
    shared_log::Pointer,
};

pub(super) use keep::{Keep, keep};
pub(super) use stream::bytes_of;
pub use stream::{Reading, records_of};

/// Tries to move a pointer that others move too. More bridges than this do not store one cut.
const MOVES_MAX: usize = 8;

/// Why the store gave nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum StoreFault {
    /// There is no such bucket, object or pointer.
    #[error("not stored")]
    Missing,
    /// The server did not answer, or refused.
    #[error("{0}")]
    Server(String),
}

impl StoreFault {
    fn server(error: &dyn std::error::Error) -> StoreFault {
        StoreFault::Server(reason(error))
    }
}

/// The two buckets.
pub(super) struct Snapshots {
    objects: ObjectStore,
    pointers: kv::Store,
}

impl Snapshots {
    /// Opens what a bridge has made.
    pub(super) async fn open(context: &Context, plan: &Plan) -> Result<Snapshots, StoreFault> {
        let objects = context.get_object_store(plan.bucket("KVSNAP")).await;
        let pointers = context.get_key_value(plan.bucket("KVSNAPPTR")).await;
        match (objects, pointers) {
            (Ok(objects), Ok(pointers)) => Ok(Snapshots { objects, pointers }),
            _ => Err(StoreFault::Missing),
        }
    }

    /// Opens them, and makes what is missing.
    pub(super) async fn ensure(
        context: &Context,
        plan: &Plan,
        config: &NatsConfig,
    ) -> Result<Snapshots, StoreFault> {
        if let Ok(snapshots) = Snapshots::open(context, plan).await {
            return Ok(snapshots);
        }
        let copies = usize::try_from(config.streams.replica_count).unwrap_or(1);
        let objects = context.create_object_store(object_store::Config {
            bucket: plan.bucket("KVSNAP"),
            description: Some("views of kvbridge".to_owned()),
            num_replicas: copies,
            ..object_store::Config::default()
        });
        let objects = objects.await.map_err(|error| StoreFault::server(&error))?;
        let pointers = context.create_key_value(kv::Config {
            bucket: plan.bucket("KVSNAPPTR"),
            description: "which view of a replica readers are sent to".to_owned(),
            history: 1,
            num_replicas: copies,
            ..kv::Config::default()
        });
        let pointers = pointers.await.map_err(|error| StoreFault::server(&error))?;
        Ok(Snapshots { objects, pointers })
    }

    /// An object's bytes.
    pub(super) async fn get(&self, name: &str) -> Result<object_store::Object, StoreFault> {
        self.objects.get(name).await.map_err(|error| match error.kind() {
            GetErrorKind::NotFound => StoreFault::Missing,
            _ => StoreFault::server(&error),
        })
    }

    /// Where readers of a replica are sent, and the revision of that.
    pub(super) async fn pointer(
        &self,
        key: &ReplicaKey,
    ) -> Result<Option<(Pointer, u64)>, StoreFault> {
        let entry = self.pointers.entry(key.as_str()).await;
        let entry = entry.map_err(|error| StoreFault::server(&error))?;
        let put = entry.filter(|entry| entry.operation == kv::Operation::Put);
        Ok(put.and_then(|entry| {
            let pointer = Pointer::parse(std::str::from_utf8(&entry.value).ok()?).ok()?;
            Some((pointer, entry.revision))
        }))
    }

    /// All pointers, at most so many.
    pub(super) async fn pointers(&self, count_max: usize) -> Result<Vec<Pointer>, StoreFault> {
        let keys = self.pointers.keys().await.map_err(|error| StoreFault::server(&error))?;
        let keys: Vec<String> =
            keys.take(count_max).try_collect().await.map_err(|error| StoreFault::server(&error))?;
        let mut pointers = Vec::new();
        for key in keys {
            let entry = self.pointers.get(key).await.ok().flatten();
            let text = entry.as_deref().and_then(|value| std::str::from_utf8(value).ok());
            pointers.extend(text.and_then(|text| Pointer::parse(text).ok()));
        }
        Ok(pointers)
    }

    /// Whether a bridge moved a replica's pointer not longer ago than that.
    pub(super) async fn led_within(
        &self,
        key: &ReplicaKey,
        span: Duration,
    ) -> Result<bool, StoreFault> {
        let entry = self.pointers.entry(key.as_str()).await;
        let entry = entry.map_err(|error| StoreFault::server(&error))?;
        let span_ms = millis(span);
        let entry = entry.filter(|entry| entry.operation == kv::Operation::Put);
        Ok(entry.is_some_and(|entry| age_ms(entry.created.unix_timestamp_nanos()) < span_ms))
    }

    /// Stores an object that nobody has stored yet.
    async fn put(
        &self,
        name: &str,
        bytes: &mut (impl tokio::io::AsyncRead + Unpin),
    ) -> Result<(), StoreFault> {
        let stored = self.objects.put(name, bytes).await;
        stored.map(drop).map_err(|error| StoreFault::server(&error))
    }

    /// Sends readers to `pointer`, unless they are sent to a greater one. Returns where they are
    /// sent.
    async fn advance(
        &self,
        key: &ReplicaKey,
        pointer: &Pointer,
        reset: Option<Cursor>,
    ) -> Result<Pointer, StoreFault> {
        for _ in 0..MOVES_MAX {
            let text = pointer.to_string();
            let moved = match self.pointer(key).await? {
                // The same again is still moved: that the entry is young says that a bridge is
                // there.
                Some((there, _)) if there != *pointer && !pointer.supersedes(&there, reset) => {
                    return Ok(there);
                }
                Some((_, revision)) => {
                    self.pointers.update(key.as_str(), text.into(), revision).await.is_ok()
                }
                None => self.pointers.create(key.as_str(), text.into()).await.is_ok(),
            };
            if moved {
                return Ok(pointer.clone());
            }
        }
        Err(StoreFault::Server("the pointer could not be moved".to_owned()))
    }

    /// Deletes objects that readers have not been sent to for `grace`, of the replicas given: what
    /// a bridge does not keep it leaves to those that do.
    async fn sweep(&self, keys: &[ReplicaKey], grace: Duration) -> Result<u64, StoreFault> {
        let grace_ms = millis(grace);
        let listed = self.objects.list().await;
        let mut listed = listed.map_err(|error| StoreFault::server(&error))?;
        let mut old = Vec::new();
        while let Some(info) =
            listed.try_next().await.map_err(|error| StoreFault::server(&error))?
        {
            let age_ms = info.modified.map_or(u64::MAX, |at| age_ms(at.unix_timestamp_nanos()));
            let of = Pointer::replica_of(&info.name).map(|replica| replica.key());
            if let Some(key) = of.filter(|key| keys.contains(key) && age_ms > grace_ms) {
                old.push((key, info.name));
            }
        }
        let mut deleted = 0;
        for (key, name) in old {
            let there = self.pointer(&key).await?;
            if there.is_some_and(|(pointer, _)| pointer.object != name)
                && self.objects.delete(&name).await.is_ok()
            {
                deleted += 1;
            }
        }
        Ok(deleted)
    }
}

/// How long ago that was, by the wall clocks of server and process: for what is measured in
/// minutes.
fn age_ms(unix_ns: i128) -> u64 {
    let at_ms = u64::try_from(unix_ns / 1_000_000).unwrap_or(0);
    Clock::unix_ms().saturating_sub(at_ms)
}
