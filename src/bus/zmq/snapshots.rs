//! Snapshots that are being read, chunk by chunk as their readers ask for them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use kvbridge_schemas::{SnapshotRecord, codec};
use tokio::sync::{Mutex as AsyncMutex, mpsc};

use super::wire::{Answer, Refusal};
use crate::{config::limits, pipeline::ViewCut};

/// How long a chunk may take to be made: the whole view is put in order before the first.
const CHUNK_DEADLINE: Duration = Duration::from_secs(5);

/// Chunks of one snapshot, made ahead of the reader by a thread that waits for room.
type Chunks = Arc<AsyncMutex<mpsc::Receiver<Bytes>>>;

struct Open {
    chunks: Chunks,
    /// Heartbeats since it was last asked for.
    silent_beats: u64,
}

/// All snapshots under way.
#[derive(Default)]
pub(super) struct Snapshots {
    open: Mutex<(u64, BTreeMap<u64, Open>)>,
}

impl Snapshots {
    /// Begins to give a view out.
    pub(super) fn begin(&self, cut: ViewCut) -> Answer {
        let readers_max = usize::try_from(limits::SNAPSHOT_READER_COUNT_MAX).unwrap_or(1);
        let queue = usize::try_from(limits::SNAPSHOT_QUEUE_CHUNKS).unwrap_or(1);
        let mut open = self.lock();
        if open.1.len() >= readers_max {
            return Answer::Refused(Refusal::Busy);
        }
        let header = Bytes::from(codec::encode_msgpack(&cut.header));
        let (chunks_tx, chunks) = mpsc::channel(queue);
        // Ordering parents before children walks the whole view: not on a thread that answers.
        tokio::task::spawn_blocking(move || write(&cut, &chunks_tx));
        open.0 += 1;
        let id = open.0;
        let chunks = Arc::new(AsyncMutex::new(chunks));
        open.1.insert(id, Open { chunks, silent_beats: 0 });
        Answer::Snapshot { id, header }
    }

    /// The next chunk of a snapshot.
    pub(super) async fn records(&self, id: u64) -> Answer {
        let chunks = {
            let mut open = self.lock();
            let Some(found) = open.1.get_mut(&id) else {
                return Answer::Refused(Refusal::UnknownSnapshot);
            };
            found.silent_beats = 0;
            Arc::clone(&found.chunks)
        };
        let mut chunks = chunks.lock().await;
        match tokio::time::timeout(CHUNK_DEADLINE, chunks.recv()).await {
            Ok(Some(records)) => Answer::Records { last: false, records },
            Ok(None) => {
                self.lock().1.remove(&id);
                Answer::Records { last: true, records: Bytes::new() }
            }
            Err(_) => Answer::Refused(Refusal::Busy),
        }
    }

    /// A heartbeat passed: readers that ask no more give their place back.
    pub(super) fn beat(&self, every: Duration) {
        let beats_max = limits::HTTP_STALL_DEADLINE.as_millis() / every.as_millis().max(1);
        let mut open = self.lock();
        open.1.retain(|_, open| {
            open.silent_beats += 1;
            u128::from(open.silent_beats) <= beats_max
        });
    }

    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Open>)> {
        // Single inserts and removals: nothing in them can panic half-way.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write(cut: &ViewCut, chunks: &mpsc::Sender<Bytes>) {
    let chunk_records = usize::try_from(limits::SNAPSHOT_CHUNK_RECORDS).unwrap_or(1);
    let mut records = cut.view.records();
    loop {
        let chunk: Vec<SnapshotRecord> = records.by_ref().take(chunk_records).collect();
        if chunk.is_empty() || chunks.blocking_send(codec::encode_msgpack(&chunk).into()).is_err() {
            return;
        }
    }
}
