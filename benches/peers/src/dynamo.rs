//! `dynamo-kv-router` 1.6.1: `RadixTree`, and `ConcurrentRadixTreeCompressed` behind its own loop.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, Mutex, mpsc},
    task::{Context, Poll, Wake},
    thread,
    time::{Duration, Instant},
};

use dynamo_kv_router::{
    ConcurrentRadixTreeCompressed, RadixTree,
    indexer::{SyncIndexer, WorkerTask},
    protocols::{
        ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheRemoveData,
        KvCacheStoreData, KvCacheStoredBlockData, LocalBlockHash, OverlapScores, RouterEvent,
    },
};
use tokio::sync::oneshot;

use crate::{
    peer::{Copied, Peer, cpu, timed},
    workload::Op,
};

fn stored(op: &Op) -> RouterEvent {
    let block = |(key, content): (&u64, &u64)| KvCacheStoredBlockData {
        block_hash: ExternalSequenceBlockHash(*key),
        tokens_hash: LocalBlockHash(*content),
        mm_extra_info: None,
    };
    let data = KvCacheStoreData {
        parent_hash: op.parent.map(ExternalSequenceBlockHash),
        start_position: None,
        blocks: op.keys.iter().zip(&op.contents).map(block).collect(),
    };
    event(op, KvCacheEventData::Stored(data))
}

fn removed(op: &Op) -> RouterEvent {
    let block_hashes = op.keys.iter().map(|key| ExternalSequenceBlockHash(*key)).collect();
    event(op, KvCacheEventData::Removed(KvCacheRemoveData { block_hashes }))
}

fn event(op: &Op, data: KvCacheEventData) -> RouterEvent {
    RouterEvent::new(op.worker.into(), KvCacheEvent { event_id: 0, dp_rank: 0, data })
}

fn question(op: &Op) -> Vec<LocalBlockHash> {
    op.contents.iter().map(|content| LocalBlockHash(*content)).collect()
}

fn scores(found: OverlapScores) -> BTreeMap<u16, u64> {
    let found = found.scores.into_iter();
    found.map(|(worker, blocks)| (worker.worker_id as u16, u64::from(blocks))).collect()
}

fn blocks(events: &[RouterEvent]) -> usize {
    let of = |event: &RouterEvent| match &event.event.data {
        KvCacheEventData::Stored(stored) => stored.blocks.len(),
        _ => 0,
    };
    events.iter().map(of).sum()
}

pub struct Radix(RefCell<RadixTree>);

impl Peer for Radix {
    const NAME: &str = "dynamo RadixTree";
    type Event = RouterEvent;
    type Question = Vec<LocalBlockHash>;
    /// Events that the tree refused.
    type Lane = usize;

    fn new(_: usize) -> Self {
        Radix(RefCell::new(RadixTree::new()))
    }

    fn lane(&self, _: usize) -> usize {
        0
    }

    fn stored(op: &Op) -> RouterEvent {
        stored(op)
    }

    fn removed(op: &Op) -> RouterEvent {
        removed(op)
    }

    fn question(op: &Op) -> Self::Question {
        question(op)
    }

    fn apply(&self, refused: &mut usize, events: Vec<RouterEvent>) -> Duration {
        let mut tree = self.0.borrow_mut();
        let apply = || {
            for event in events {
                *refused += usize::from(tree.apply_event(event).is_err());
            }
        };
        timed(apply).0
    }

    fn find(&self, question: &mut Self::Question) -> usize {
        self.0.borrow().find_matches(std::mem::take(question), false).scores.len()
    }

    fn scores(&self, question: Self::Question) -> BTreeMap<u16, u64> {
        scores(self.0.borrow().find_matches(question, false))
    }

    fn remove_worker(&self, _: &mut usize, worker: u16) -> Duration {
        timed(|| self.0.borrow_mut().remove_worker(worker.into())).0
    }

    fn snapshot(&self, _: &mut usize, workers: usize) -> Option<Copied<Self>> {
        let (exported, events) = timed(|| self.0.borrow().dump_tree_as_events());
        let (blocks, index) = (blocks(&events), Radix::new(workers));
        let installed = index.apply(&mut 0, events);
        Some(Copied { blocks, exported, installed, index })
    }

    fn note(&self, refused: &usize) -> Option<String> {
        (*refused > 0).then(|| format!("refused {refused} events"))
    }
}

pub struct Compressed(Arc<ConcurrentRadixTreeCompressed>);

/// Its loop owns what a lane needs, so a lane is a thread.
pub struct Lane {
    tasks: flume::Sender<WorkerTask>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Drop for Lane {
    fn drop(&mut self) {
        // Both fail only when the thread is gone already.
        drop(self.tasks.send(WorkerTask::Terminate));
        drop(self.thread.take().map(thread::JoinHandle::join));
    }
}

/// Woken by the lane's thread when it gets there: waits for leave to go on, then tells that
/// thread's CPU time.
struct Mark {
    leave: Mutex<mpsc::Receiver<()>>,
    told: mpsc::Sender<Duration>,
}

impl Wake for Mark {
    fn wake(self: Arc<Self>) {
        // An end of the channel is leave as well.
        let _left = self.leave.lock().expect("one waker").recv();
        self.told.send(cpu()).expect("its time is waited for");
    }
}

/// A flush whose end tells the time on the thread that flushes.
struct Flush {
    task: WorkerTask,
    /// Not to be polled again: that would replace the waker.
    _answer: oneshot::Receiver<()>,
    leave: mpsc::Sender<()>,
    time: mpsc::Receiver<Duration>,
}

fn flush() -> Flush {
    let ((leave, wait), (told, time)) = (mpsc::channel(), mpsc::channel());
    let waker = Arc::new(Mark { leave: Mutex::new(wait), told }).into();
    let (send, mut answer) = oneshot::channel();
    let poll = pin!(&mut answer).poll(&mut Context::from_waker(&waker));
    assert!(matches!(poll, Poll::Pending), "nothing was flushed yet");
    Flush { task: WorkerTask::Flush(send), _answer: answer, leave, time }
}

impl Peer for Compressed {
    const NAME: &str = "dynamo ConcurrentRadixTreeCompressed";
    type Event = RouterEvent;
    type Question = Vec<LocalBlockHash>;
    type Lane = Lane;

    fn new(_: usize) -> Self {
        Compressed(Arc::new(ConcurrentRadixTreeCompressed::new()))
    }

    fn lane(&self, _: usize) -> Lane {
        let (tasks, receiver) = flume::unbounded();
        let tree = Arc::clone(&self.0);
        let work = move || tree.worker(receiver, None).expect("it works until it is terminated");
        Lane { tasks, thread: Some(thread::spawn(work)) }
    }

    fn stored(op: &Op) -> RouterEvent {
        stored(op)
    }

    fn removed(op: &Op) -> RouterEvent {
        removed(op)
    }

    fn question(op: &Op) -> Self::Question {
        question(op)
    }

    fn apply(&self, lane: &mut Lane, events: Vec<RouterEvent>) -> Duration {
        let (first, last) = (flush(), flush());
        let events = events.into_iter().map(WorkerTask::Event);
        for task in std::iter::once(first.task).chain(events).chain([last.task]) {
            lane.tasks.send(task).expect("the lane's thread waits for tasks");
        }
        drop((first.leave, last.leave)); // all is queued before it begins: that costs it nothing
        let start = first.time.recv().expect("the lane's thread gets there");
        last.time.recv().expect("the lane's thread gets there") - start
    }

    fn find(&self, question: &mut Self::Question) -> usize {
        self.0.find_matches(question, false).scores.len()
    }

    fn scores(&self, question: Self::Question) -> BTreeMap<u16, u64> {
        scores(self.0.find_matches(&question, false))
    }

    fn remove_worker(&self, lane: &mut Lane, worker: u16) -> Duration {
        let start = Instant::now();
        let (resp, done) = oneshot::channel();
        let task = WorkerTask::RemoveWorker { worker_id: worker.into(), sweep_tree: true, resp };
        lane.tasks.send(task).expect("the lane's thread waits for tasks");
        drop(done.blocking_recv());
        start.elapsed()
    }

    fn snapshot(&self, _: &mut Lane, workers: usize) -> Option<Copied<Self>> {
        let (exported, events) = timed(|| self.0.dump_events());
        let (events, index) = (events?, Compressed::new(workers));
        let blocks = blocks(&events);
        let installed = index.apply(&mut index.lane(workers), events);
        Some(Copied { blocks, exported, installed, index })
    }
}
