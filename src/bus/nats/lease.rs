//! The right to drain an engine, as a key of the bucket of heartbeats: what is not renewed is
//! forgotten by the server.
//!
//! On a connection of its own: it is given back when everything else has ended.

use async_nats::jetstream::kv::{CreateErrorKind, Store, UpdateErrorKind};
use async_trait::async_trait;
use bytes::Bytes;
use kvbridge_schemas::{Cursor, Replica, subject};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{
    buckets,
    connect::reason,
    session::{Session, open},
    streams::Plan,
    tail,
};
use crate::{
    bus::Lease,
    config::{NatsConfig, limits::BUS_LEASE_ASK},
    shared_log::Grant,
};

/// Where the keys of leases begin. Those of heartbeats have a model there, and none is written so.
pub(super) const PREFIX: &str = "=lease.";

/// One engine's.
pub(super) struct NatsLease {
    config: NatsConfig,
    plan: Plan,
    key: String,
    value: Bytes,
    session: Option<Session>,
}

impl NatsLease {
    pub(super) fn new(config: &NatsConfig, engine: &str, bridge: &str) -> NatsLease {
        // For people: who holds it is known by the revision.
        let value = serde_json::json!({ "v": 1, "by": bridge }).to_string();
        NatsLease {
            config: config.clone(),
            plan: Plan::new(&config.streams),
            key: format!("{PREFIX}{engine}"),
            value: Bytes::from(value),
            session: None,
        }
    }

    async fn session(&mut self) -> Option<Session> {
        if self.session.as_ref().is_none_or(|session| session.lost.is_cancelled()) {
            self.session = open(&self.config, &CancellationToken::new()).await.ok();
        }
        self.session.clone()
    }

    async fn store(&mut self) -> Option<Store> {
        let context = self.session().await?.context;
        buckets::status(&context, &self.config.streams).await.ok()
    }

    async fn write(&mut self, revision: Option<u64>) -> Grant {
        let Some(store) = self.store().await else { return Grant::Unknown };
        let (key, value) = (self.key.as_str(), self.value.clone());
        let (written, is_taken) = match revision {
            None => match store.create(key, value).await {
                Ok(revision) => (Ok(revision), false),
                Err(error) => (Err(reason(&error)), error.kind() == CreateErrorKind::AlreadyExists),
            },
            Some(revision) => match store.update(key, value, revision).await {
                Ok(revision) => (Ok(revision), false),
                Err(error) => {
                    (Err(reason(&error)), error.kind() == UpdateErrorKind::WrongLastRevision)
                }
            },
        };
        match written {
            Ok(revision) => Grant::Given(revision),
            Err(_) if is_taken => Grant::Refused,
            Err(error) => {
                debug!(key, error, "lease not asked for");
                Grant::Unknown
            }
        }
    }

    async fn read_end(&mut self, replica: &Replica) -> Option<Cursor> {
        let stream = self.plan.name_of(replica);
        let stream = self.session().await?.context.get_stream(stream).await.ok()?;
        let end = tail::read(&stream, &subject::hint(&replica.key())).await.ok()?;
        end.tail.map(|tail| Cursor { epoch: tail.life.epoch, next_seq: tail.next_seq })
    }
}

#[async_trait]
impl Lease for NatsLease {
    async fn ask(&mut self, revision: Option<u64>) -> Grant {
        let asked = tokio::time::timeout(BUS_LEASE_ASK, self.write(revision)).await;
        asked.unwrap_or(Grant::Unknown)
    }

    async fn release(&mut self, revision: u64) {
        let release = async {
            let Some(store) = self.store().await else { return };
            // It runs out by itself.
            drop(store.delete_expect_revision(self.key.as_str(), Some(revision)).await);
        };
        drop(tokio::time::timeout(BUS_LEASE_ASK, release).await);
    }

    async fn end_of(&mut self, replica: &Replica) -> Option<Cursor> {
        tokio::time::timeout(BUS_LEASE_ASK, self.read_end(replica)).await.ok().flatten()
    }
}
