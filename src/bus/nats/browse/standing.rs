//! How a bus stands: streams beside what they must be, replicas, their lives and views, and who
//! speaks.

use std::collections::{BTreeMap, BTreeSet};

use async_nats::jetstream::kv;
use futures::TryStreamExt;
use kvbridge_schemas::{BusSeq, Epoch, Replica, ReplicaKey, Seq, Status, codec, subject};

use super::{BrowseError, Browser};
use crate::{
    bus::nats::{
        buckets::{EPOCHS, STATUS},
        reader::place_of,
        record,
        snapshots::Snapshots,
        streams::{self, StreamFailure, StreamReport},
    },
    config::limits::BUS_REPLICAS_MAX,
    shared_log::Pointer,
};

/// A bus as it stands.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// The streams that must be there and those that are.
    pub streams: Vec<StreamReport>,
    /// The replicas on them, by key.
    pub replicas: Vec<ReplicaStanding>,
    /// Bridges that were heard within the time to live.
    pub bridges: Vec<BridgeStanding>,
    /// Whether there are more replicas than these.
    pub more_replicas: bool,
}

/// What is on a bus of one replica.
#[derive(Clone, Debug)]
pub struct ReplicaStanding {
    /// Its key.
    pub key: ReplicaKey,
    /// Its stream.
    pub stream: String,
    /// Messages kept of it.
    pub message_count: u64,
    /// The newest one's number, and what its headers say.
    pub newest: Option<(BusSeq, Option<(Epoch, Seq)>)>,
    /// The view that readers are sent to.
    pub view: Option<Pointer>,
    /// Its life by the registry.
    pub life: Option<LifeStanding>,
    /// What bridges say of it.
    pub said: Vec<Status>,
}

/// A life by the registry.
#[derive(Clone, Debug)]
pub struct LifeStanding {
    /// Its name.
    pub epoch: Epoch,
    /// The log has every seq below, or says what it lacks.
    pub published: Seq,
    /// The bridge that wrote it.
    pub by: String,
}

/// A bridge by its own heartbeat.
#[derive(Clone, Debug, serde::Deserialize, serde::Serialize)]
pub struct BridgeStanding {
    /// Its name.
    pub bridge: String,
    /// Its version.
    pub version: String,
    /// One of its streams.
    pub stream: String,
    /// How many replicas it has there.
    pub replicas: u64,
    /// When it said so, unix ms by its own clock.
    pub at: u64,
}

impl Browser {
    /// Looks at the streams that these replicas need and at all that there are.
    pub async fn standing<'a>(
        &self,
        replicas: impl Iterator<Item = &'a Replica>,
    ) -> Result<Standing, BrowseError> {
        let mut names = self.plan.names(replicas);
        names.extend(self.stream_names().await?);
        let mut standing = Standing::default();
        for name in &names {
            let wanted = self.plan.wanted(name);
            standing.streams.push(streams::look(&self.session.context, &wanted).await?);
        }
        let heard = self.heard(&mut standing).await?;
        self.replicas(&mut standing, heard).await?;
        Ok(standing)
    }

    async fn replicas(
        &self,
        standing: &mut Standing,
        mut heard: BTreeMap<String, Vec<Status>>,
    ) -> Result<(), BrowseError> {
        let there: Vec<String> = standing
            .streams
            .iter()
            .filter(|report| report.info.is_some())
            .map(|report| report.name.clone())
            .collect();
        let (store, epochs) = (
            Snapshots::open(&self.session.context, &self.plan).await.ok(),
            self.session.context.get_key_value(self.plan.bucket(EPOCHS)).await.ok(),
        );
        for name in there {
            let stream = self.stream(&name).await?;
            let failed = |error: &dyn std::error::Error| {
                BrowseError::server(format!("stream {name}"), error)
            };
            let subjects = stream.info_with_subjects(subject::HINT_ALL).await;
            let mut subjects = subjects.map_err(|error| failed(&error))?;
            while let Some((subject, count)) =
                subjects.try_next().await.map_err(|error| failed(&error))?
            {
                let Ok(replica) = subject::parse_hint(&subject) else { continue };
                if standing.replicas.len() >= BUS_REPLICAS_MAX {
                    standing.more_replicas = true;
                    return Ok(());
                }
                let key = replica.key();
                let newest = stream.direct_get_last_for_subject(subject.as_str()).await.ok();
                let view = match &store {
                    Some(store) => store.pointer(&key).await.ok().flatten(),
                    None => None,
                };
                standing.replicas.push(ReplicaStanding {
                    stream: name.clone(),
                    message_count: u64::try_from(count).unwrap_or(u64::MAX),
                    newest: newest.map(|it| (BusSeq(it.sequence), place_of(&it.headers))),
                    view: view.map(|(pointer, _)| pointer),
                    life: match &epochs {
                        Some(epochs) => life(epochs, &key).await,
                        None => None,
                    },
                    said: heard.remove(key.as_str()).unwrap_or_default(),
                    key,
                });
            }
        }
        standing.replicas.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(())
    }

    /// Heartbeats, by the key of their replica; those of bridges themselves go to `standing`.
    async fn heard(
        &self,
        standing: &mut Standing,
    ) -> Result<BTreeMap<String, Vec<Status>>, BrowseError> {
        let mut heard: BTreeMap<String, Vec<Status>> = BTreeMap::new();
        // No bridge has been here.
        let bucket = self.plan.bucket(STATUS);
        let Ok(status) = self.session.context.get_key_value(bucket.as_str()).await else {
            return Ok(heard);
        };
        let failed =
            |error: &dyn std::error::Error| BrowseError::server(format!("bucket {bucket}"), error);
        let keys = status.keys().await.map_err(|error| failed(&error))?;
        let keys: BTreeSet<String> = keys.try_collect().await.map_err(|error| failed(&error))?;
        for key in keys.into_iter().filter(|key| !key.starts_with(super::super::lease::PREFIX)) {
            let Some(value) = status.get(key.as_str()).await.map_err(|error| failed(&error))?
            else {
                continue;
            };
            let text = std::str::from_utf8(&value).unwrap_or_default();
            if let Ok(status) = codec::from_json_str::<Status>(text) {
                let key = status.replica.key();
                heard.entry(key.as_str().to_owned()).or_default().push(status);
            } else if let Ok(bridge) = serde_json::from_str(text) {
                standing.bridges.push(bridge);
            }
        }
        Ok(heard)
    }
}

async fn life(epochs: &kv::Store, key: &ReplicaKey) -> Option<LifeStanding> {
    let value = epochs.get(key.as_str()).await.ok().flatten()?;
    let record = record::read(&value).ok()?;
    Some(LifeStanding { epoch: record.life.epoch, published: record.published, by: record.by })
}

impl From<StreamFailure> for BrowseError {
    fn from(failure: StreamFailure) -> BrowseError {
        BrowseError::Stream(failure)
    }
}
