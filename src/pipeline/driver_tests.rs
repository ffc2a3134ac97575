//! The driver between a scripted source and a real index.

use std::{num::NonZeroUsize, sync::Mutex};

use async_trait::async_trait;
use kvbridge_adapters_api::{
    Capabilities, Continuity, Drain, Loss, Removal, Replay, RequestRefused, SnapshotSupport,
};
use kvbridge_schemas::{
    BlockHash, Digest, Event, HashInfo, HashScheme, Parent, Place, Projection, Removed, Scope,
    Stored, StoredBlock, Tier, Tokens, Trust, content_hash,
};
use tokio::sync::{broadcast, oneshot};

use super::*;
use crate::{
    index::{Index, Prompt, Query},
    pipeline::{FleetEvent, IndexWriters},
    recovery::Settings,
};

/// Says what it is told to say, and notes what it is asked.
struct Scripted {
    events: mpsc::Receiver<Delivery>,
    requests: Arc<Mutex<Vec<SourceRequest>>>,
    replay: Replay,
    snapshot: Option<SnapshotSupport>,
}

#[async_trait]
impl Source for Scripted {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            // A log that keeps snapshots names the lives in it.
            epoch_on_wire: self.snapshot.is_some(),
            replay: self.replay,
            snapshot: self.snapshot,
            continuity: Continuity::Proven,
            removal: Removal::PerCopy,
            clear_scope: Scope::All,
            drain: Drain::Shared,
            one_hash_per_block: true,
        }
    }

    async fn next(&mut self) -> Option<Delivery> {
        self.events.recv().await
    }

    fn request(&mut self, request: SourceRequest) -> Result<(), RequestRefused> {
        self.requests.lock().unwrap().push(request);
        Ok(())
    }
}

struct World {
    events: mpsc::Sender<Delivery>,
    requests: Arc<Mutex<Vec<SourceRequest>>>,
    status: watch::Receiver<ReplicaStatus>,
    commands: mpsc::Sender<Command>,
    fleet: broadcast::Receiver<FleetEvent>,
    index: Arc<Index>,
    signs: Arc<Signs>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

fn world(replay: Replay) -> World {
    world_with(replay, None)
}

/// A source with snapshots, or without, and a view of up to five blocks.
fn world_with(replay: Replay, snapshot: Option<SnapshotSupport>) -> World {
    world_keeping(replay, snapshot, ViewConfig { blocks_max: Some(5), memory_max: None })
}

fn world_keeping(replay: Replay, snapshot: Option<SnapshotSupport>, kept_max: ViewConfig) -> World {
    let clock = Clock::start();
    let index = Arc::new(Index::new());
    let writers = Arc::new(IndexWriters::start(&index, NonZeroUsize::MIN).unwrap());
    let (events, events_rx) = mpsc::channel(64);
    let (commands, commands_rx) = mpsc::channel(1);
    let (status, status_rx) = watch::channel(ReplicaStatus::starting());
    let (readers, fleet) = broadcast::channel(64);
    let requests = Arc::new(Mutex::new(Vec::new()));
    let source = Scripted { events: events_rx, requests: Arc::clone(&requests), replay, snapshot };
    let signs = Arc::<Signs>::default();
    let parts = parts(source, commands_rx, status);
    let parts = DriverParts { kept_max, signs: Arc::clone(&signs), ..parts };
    let feeds = Arc::default();
    let outputs = Outputs { index: Arc::clone(&index), writers, events: readers, feeds, clock };
    let stop = CancellationToken::new();
    let task = tokio::spawn(Driver::new(parts, outputs).run(stop.clone()));
    World { events, requests, status: status_rx, commands, fleet, index, signs, stop, task }
}

fn parts(
    source: Scripted,
    commands: mpsc::Receiver<Command>,
    status: watch::Sender<ReplicaStatus>,
) -> DriverParts {
    let settings = Settings::new(source.capabilities(), 1_000);
    let replica = Replica { model: "m".to_owned(), instance: "h:1".to_owned(), rank: 0 };
    DriverParts {
        replica: Arc::new(replica),
        engine: EngineKind::Vllm,
        source: Box::new(source),
        recovery: Recovery::new(settings),
        view: ViewSettings::of(Projection::Last8, Removal::PerCopy, 8),
        kept_max: ViewConfig::default(),
        signs: Arc::default(),
        kept: None,
        fold: "test".to_owned(),
        commands,
        status,
        log: None,
        hashes: None,
    }
}

/// One that does not run, with a log.
pub(super) fn at_rest(log: LogWriter) -> Driver {
    let requests = Arc::default();
    let events = mpsc::channel(1).1;
    let source = Scripted { events, requests, replay: Replay::Absent, snapshot: None };
    let status = watch::Sender::new(ReplicaStatus::starting());
    let parts = DriverParts { log: Some(log), ..parts(source, mpsc::channel(1).1, status) };
    let index = Arc::new(Index::new());
    let writers = Arc::new(IndexWriters::start(&index, NonZeroUsize::MIN).unwrap());
    let events = broadcast::Sender::new(1);
    Driver::new(
        parts,
        Outputs { index, writers, events, feeds: Arc::default(), clock: Clock::start() },
    )
}

/// Batch `seq` stores the one-token block [seq] under its own hash.
fn batch(seq: u64) -> Batch {
    let token = u32::try_from(seq).unwrap();
    let stored = Event::Stored(Stored {
        parent: Parent::Root,
        block_size: 1,
        tokens: Tokens(vec![token]),
        blocks: vec![StoredBlock {
            hash: BlockHash::from_u64(seq),
            content: Some(content_hash(&[token])),
        }],
        partial: false,
        bigram: false,
        place: Place::of(Tier::Device),
        lora: None,
        lora_id: None,
        salt: None,
        extra: Vec::new(),
        session: None,
    });
    with_events(seq, vec![stored])
}

fn with_events(seq: u64, events: Vec<Event>) -> Batch {
    Batch {
        epoch: None,
        incarnation: None,
        seq: Seq(seq),
        span: 1,
        digest: Digest([u8::try_from(seq).unwrap(); 16]),
        ts: 0,
        format: "f",
        hash: HashInfo { scheme: HashScheme::Unknown, block_size: 1 },
        rank: None,
        events,
        loss: Loss::Nothing,
        bytes: 10,
    }
}

impl World {
    async fn say(&self, events: impl IntoIterator<Item = impl Into<Delivery>>) {
        for event in events {
            self.events.send(event.into()).await.unwrap();
        }
    }

    async fn live(&self, seqs: impl IntoIterator<Item = u64>) {
        self.say(seqs.into_iter().map(|seq| SourceEvent::Live(batch(seq)))).await;
    }

    async fn until(&mut self, wanted: impl Fn(&ReplicaStatus) -> bool) -> ReplicaStatus {
        let waited = self.status.wait_for(|status| wanted(status));
        let waited = tokio::time::timeout(Duration::from_secs(10), waited).await;
        waited.expect("the status was never reached").unwrap().clone()
    }

    fn matched(&self, token: u32) -> (bool, u64) {
        let answer = self.index.query(&Query {
            model: "m",
            prompt: Prompt::Tokens(&[token]),
            lora: None,
            salt: None,
            accept: Trust::Exact,
            hints: false,
        });
        let replica = answer.unwrap().replicas.remove(0);
        (replica.usable, replica.matched_blocks)
    }

    /// The index is written by a thread: a match follows the status within moments.
    async fn match_until(&self, token: u32, wanted: (bool, u64)) {
        for _ in 0..2_000 {
            if self.matched(token) == wanted {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("token {token}: expected {wanted:?}, got {:?}", self.matched(token));
    }

    /// The replay that was asked for last.
    async fn asked(&self) -> (Attempt, u64) {
        for _ in 0..2_000 {
            if let Some(SourceRequest::Replay { attempt, start_seq }) =
                self.requests.lock().unwrap().last()
            {
                return (*attempt, start_seq.0);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("no replay was asked for");
    }

    async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

#[tokio::test]
async fn a_stream_from_its_start_is_exact_and_matched() {
    let mut world = world(Replay::Journal);
    world.say([SourceEvent::Attached]).await;
    world.live(0..3).await;
    let status = world.until(|status| status.cursor.next_seq == Seq(3)).await;
    assert_eq!(status.trust.device, Trust::Exact);
    assert_eq!(status.blocks.get(&Tier::Device), Some(&3));
    world.match_until(2, (true, 1)).await;
    world.match_until(7, (true, 0)).await;
    let mut applied = Vec::new();
    while let Ok(event) = world.fleet.try_recv() {
        if let FleetEvent::Applied(envelope) = event {
            applied.push((envelope.seq.0, envelope.epoch));
        }
    }
    assert_eq!(
        applied,
        [(0, status.cursor.epoch), (1, status.cursor.epoch), (2, status.cursor.epoch)]
    );
    world.end().await;
}

#[tokio::test]
async fn a_gap_withdraws_at_once_and_the_replay_brings_trust_back() {
    let mut world = world(Replay::Journal);
    world.say([SourceEvent::Attached]).await;
    world.live([0, 1, 4]).await;
    let status = world.until(|status| status.reason == "gap_open").await;
    assert_eq!(status.trust.device, Trust::None);
    assert!(!world.matched(0).0);
    let (attempt, start_seq) = world.asked().await;
    assert!(start_seq <= 1, "the request begins at or before the last batch applied");
    let answer = |part| SourceEvent::Answer { attempt, part };
    world.say((start_seq..5).map(|seq| answer(AnswerPart::Batch(batch(seq))))).await;
    world.say([answer(AnswerPart::End)]).await;
    world.until(|status| status.trust.device == Trust::Exact).await;
    world.match_until(3, (true, 1)).await;
    world.end().await;
}

#[tokio::test]
async fn what_the_view_finds_ends_exact_before_it_is_published() {
    let mut world = world(Replay::Journal);
    world.say([SourceEvent::Attached]).await;
    let removed = Removed { hashes: vec![BlockHash::from_u64(99)], place: Place::of(Tier::Device) };
    // The first batch both proves the start and contradicts it: exact must never be seen.
    world.say([SourceEvent::Live(with_events(0, vec![Event::Removed(removed)]))]).await;
    let status = world.until(|status| status.cursor.next_seq == Seq(1)).await;
    assert_ne!(status.trust.device, Trust::Exact);
    while let Ok(event) = world.fleet.try_recv() {
        if let FleetEvent::Standing(_, _, status) = event {
            assert_ne!(status.trust.device, Trust::Exact);
        }
    }
    world.end().await;
}

/// Nothing but the epoch tells a reader that everything it knew is gone.
#[tokio::test]
async fn a_new_life_within_one_step_is_told_although_trust_is_as_before() {
    let mut world = world(Replay::Absent);
    world.say([SourceEvent::Attached]).await;
    world.live(0..3).await;
    let before = world.until(|status| status.cursor.next_seq == Seq(3)).await;
    world.say([SourceEvent::Live(Batch { digest: Digest([9; 16]), ..batch(0) })]).await;
    let after = world.until(|status| status.cursor.epoch != before.cursor.epoch).await;
    assert_eq!((after.trust, after.reason), (before.trust, before.reason));
    let mut told = Vec::new();
    while let Ok(event) = world.fleet.try_recv() {
        if let FleetEvent::Standing(_, _, status) = event {
            told.push((status.reason, status.cursor));
        }
    }
    assert_eq!(told.last(), Some(&("contiguous", after.cursor)), "{told:?}");
    world.end().await;
}

#[tokio::test]
async fn a_member_that_started_anew_ends_the_life_behind_an_open_stream() {
    let mut world = world(Replay::Absent);
    world.say([SourceEvent::Attached]).await;
    world.live(0..3).await;
    let before = world.until(|status| status.cursor.next_seq == Seq(3)).await;
    assert!(world.commands.send(Command::Restarted).await.is_ok());
    let after = world.until(|status| status.cursor.epoch != before.cursor.epoch).await;
    assert_eq!((after.trust.device, after.blocks.len()), (Trust::None, 0));
    world.end().await;
}

/// The bound follows what the engine says of its pool.
#[tokio::test]
async fn a_pool_that_the_engine_tells_limits_the_view() {
    let mut world = world_keeping(Replay::Absent, None, ViewConfig::default());
    world.say([SourceEvent::Attached]).await;
    world.live(0..5).await;
    world.until(|status| status.cursor.next_seq == Seq(5)).await;
    world.signs.set_figures(Some(2), None);
    world.live([5]).await;
    world.until(|status| status.reason == "over_limit").await;
    world.end().await;
}

#[tokio::test]
async fn a_snapshot_is_of_one_cursor_and_an_ended_source_is_detached() {
    let mut world = world(Replay::Journal);
    world.say([SourceEvent::Attached]).await;
    world.live(0..2).await;
    world.until(|status| status.cursor.next_seq == Seq(2)).await;
    let (answer, cut) = oneshot::channel();
    assert!(world.commands.send(Command::Snapshot(answer)).await.is_ok());
    let cut = cut.await.unwrap();
    assert_eq!((cut.header.resume_seq, cut.view.snapshot().len()), (Seq(2), 2));
    assert_eq!(cut.header.last_digest, Some(Digest([1; 16])));
    let (closed, _) = mpsc::channel(1);
    world.events = closed;
    let status = world.until(|status| status.trust.device == Trust::None).await;
    assert_eq!(status.reason, "detached");
    world.end().await;
}

#[tokio::test]
async fn over_its_limit_a_view_is_given_up_and_learnt_again_when_asked() {
    let mut world = world(Replay::Absent);
    world.say([SourceEvent::Attached]).await;
    world.live(0..5).await;
    world.match_until(3, (true, 1)).await;
    world.live(5..7).await;
    let status = world.until(|status| status.reason == "over_limit").await;
    assert_eq!((status.trust.device, status.blocks.len()), (Trust::None, 0));
    // Freed in the index too: nothing is found, whatever is accepted.
    world.match_until(3, (false, 0)).await;
    assert!(world.commands.send(Command::Release).await.is_ok());
    world.until(|status| status.reason == "joining").await;
    world.live([7]).await;
    let status = world.until(|status| status.cursor.next_seq == Seq(8)).await;
    assert_eq!(status.trust.device, Trust::LowerBound);
    world.end().await;
}

/// At the end nothing more is read, so that what is kept is what was seen last.
#[tokio::test]
async fn a_halted_driver_reads_no_more_and_still_answers() {
    let mut world = world(Replay::Journal);
    world.say([SourceEvent::Attached]).await;
    world.live(0..3).await;
    world.until(|status| status.cursor.next_seq == Seq(3)).await;
    let (answer, halted) = oneshot::channel();
    assert!(world.commands.send(Command::Halt(answer)).await.is_ok());
    halted.await.unwrap();
    world.live(3..5).await;
    let (answer, cut) = oneshot::channel();
    assert!(world.commands.send(Command::Checkpoint(answer)).await.is_ok());
    let cut = cut.await.unwrap();
    let state = cut.header.state.unwrap();
    assert_eq!((cut.header.resume_seq, cut.header.block_count), (Seq(3), 3));
    assert_eq!((cut.header.trust, state.digests.len()), (Trust::Exact, 3));
    assert_eq!(state.settings, "test");
    world.end().await;
}

#[path = "driver_shadow_tests.rs"]
mod shadow;
