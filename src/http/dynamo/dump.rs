//! GET /dump: what every instance holds, as stores, each block after the one before it.
//!
//! Another indexer reads it when it starts. Blocks are told that the indexer would know by the same
//! two hashes: with an adapter, a salt or media its own hash is another one, and it is not computed
//! here.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
};

use axum::{
    Extension,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderValue, header},
    response::Response,
};
use kvbridge_schemas::Tier;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::{
    Dynamo, GROUP, Refused,
    forms::{BlockJson, CacheEventJson, DataJson, EventJson},
    instance_number,
};
use crate::{
    config::limits::{
        COMPAT_DUMP_CHUNK_EVENTS, COMPAT_DUMP_QUEUE_CHUNKS, SNAPSHOT_READER_COUNT_MAX,
    },
    http::{Api, Grant, Problem, Shared, json_bytes},
    pipeline::{AskError, ReplicaHandle, ViewCut},
    view::{Delta, LinkParent},
};

type Chunk = Result<Bytes, io::Error>;

pub(super) async fn stream(
    State(Dynamo { api: Api(api), .. }): State<Dynamo>,
    Extension(grant): Extension<Arc<Grant>>,
) -> Result<Response, Refused> {
    let permit = Arc::clone(&api.snapshot_readers)
        .try_acquire_owned()
        .map_err(|_| Problem::too_many_readers(SNAPSHOT_READER_COUNT_MAX))?;
    let mut models = BTreeMap::<String, Vec<ReplicaHandle>>::new();
    for (_, handle) in api.pipeline.fleet.replicas() {
        if grant.sees(&handle.replica.model) {
            models.entry(handle.replica.model.clone()).or_default().push(handle);
        }
    }
    let (chunks, chunks_rx) = mpsc::channel(COMPAT_DUMP_QUEUE_CHUNKS);
    tokio::spawn(write(api, models, chunks, permit));
    let chunks = futures::stream::unfold(chunks_rx, async |mut chunks: mpsc::Receiver<Chunk>| {
        Some((chunks.recv().await?, chunks))
    });
    let mut response = Response::new(Body::from_stream(chunks));
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// Sends all models. An instance that cannot be asked ends the answer in the middle: one that is
/// left out would look as if it held nothing.
async fn write(
    api: Arc<Shared>,
    models: BTreeMap<String, Vec<ReplicaHandle>>,
    chunks: mpsc::Sender<Chunk>,
    permit: OwnedSemaphorePermit,
) {
    let mut before = "{";
    for (model, handles) in models {
        let block_size = api.pipeline.index.block_sizes(&model).first().copied().unwrap_or(0);
        let name = json_bytes(&format!("{model}:{GROUP}"));
        let name = String::from_utf8_lossy(&name);
        let head = format!("{before}{name}:{{\"block_size\":{block_size},\"events\":[");
        before = ",";
        if chunks.send(Ok(head.into())).await.is_err() {
            return;
        }
        let mut told = 0;
        for handle in handles {
            let cut = match handle.cut().await {
                Ok(cut) => cut.as_believed(&handle.status.borrow()),
                // Read no more since the list was made.
                Err(AskError::Stopped) => None,
                Err(error @ AskError::Busy) => {
                    // Who has gone need not be told.
                    drop(chunks.send(Err(io::Error::other(error))).await);
                    return;
                }
            };
            let Some(cut) = cut else { continue };
            let chunks = chunks.clone();
            // Ordering the blocks walks the whole view: not on a thread that serves matches.
            let events = tokio::task::spawn_blocking(move || {
                Events { block_size, told, text: Vec::new() }.write(&cut, &chunks)
            });
            match events.await {
                Ok(Some(count)) => told = count,
                Ok(None) | Err(_) => return,
            }
        }
        if chunks.send(Ok("]}".into())).await.is_err() {
            return;
        }
    }
    let end = if before == "{" { "{}" } else { "}" };
    drop(chunks.send(Ok(end.into())).await);
    drop(permit);
}

/// The events of one model, instance by instance.
struct Events {
    block_size: u32,
    told: u64,
    text: Vec<u8>,
}

impl Events {
    /// How many events were told then; `None` = nobody reads any more.
    fn write(mut self, cut: &ViewCut, chunks: &mpsc::Sender<Chunk>) -> Option<u64> {
        let replica = &cut.header.replica;
        let number = instance_number(&replica.instance);
        let mut shown = BTreeSet::new();
        // What is a hint counts in no answer either.
        let is_hint =
            |tier: &Tier| tier.is_hint() || (*tier == Tier::Host && cut.view.host_is_hint());
        for delta in cut.view.links() {
            let Delta::Linked { node, parent, tier, .. } = delta else { continue };
            if is_hint(&tier) {
                continue;
            }
            let parent_hash = match parent {
                LinkParent::Root(_) => None,
                LinkParent::Block(parent) => Some(parent.key),
            };
            // The indexer knows no place for what comes after a block that it does not have.
            let has_place = parent_hash.is_none_or(|parent| shown.contains(&parent));
            let content = cut.view.plain_content(node);
            let (Some(storage_tier), Some(tokens_hash)) = (tier_name(&tier), content) else {
                continue;
            };
            if !has_place || node.block_size != self.block_size {
                continue;
            }
            shown.insert(node.key);
            let blocks = [BlockJson { block_hash: node.key, tokens_hash, mm_extra_info: None }];
            let data = DataJson::Stored { parent_hash, start_position: None, blocks: &blocks };
            let event = CacheEventJson { event_id: self.told, data, dp_rank: replica.rank };
            self.say(&EventJson {
                worker_id: number,
                storage_tier,
                residency_domain: "worker",
                event,
            });
            if self.told.is_multiple_of(u64::try_from(COMPAT_DUMP_CHUNK_EVENTS).unwrap_or(1)) {
                chunks.blocking_send(Ok(std::mem::take(&mut self.text).into())).ok()?;
            }
        }
        chunks.blocking_send(Ok(self.text.into())).ok()?;
        Some(self.told)
    }

    fn say(&mut self, event: &EventJson<'_>) {
        if self.told > 0 {
            self.text.push(b',');
        }
        self.text.extend(json_bytes(event));
        self.told += 1;
    }
}

/// The indexer's word for a tier, if it has one.
fn tier_name(tier: &Tier) -> Option<&'static str> {
    match tier {
        Tier::Device => Some("device"),
        Tier::Host => Some("host_pinned"),
        Tier::Disk => Some("disk"),
        Tier::External => Some("external"),
        Tier::Other(_) => None,
    }
}
