//! Snapshots from a scripted source: records past the core, one swap, and what is no snapshot.

use kvbridge_adapters_api::SnapshotIntro;
use kvbridge_schemas::{Epoch, SnapshotRecord};

use super::*;

const STORED: SnapshotSupport = SnapshotSupport {
    barrier: false,
    tiers: true,
    counts: true,
    namespaces: true,
    content: true,
    plain: false,
};

/// The one-token block [token] under its own hash, once on the device.
fn record(token: u32) -> SnapshotRecord {
    SnapshotRecord {
        hash: BlockHash::from_u64(u64::from(token)),
        parent: Parent::Root,
        content: Some(content_hash(&[token])),
        block_size: 1,
        tier: Tier::Device,
        group: None,
        count: 1,
        lora: None,
        salt: None,
        extra: None,
        partial: false,
        bigram: false,
        parked: false,
        hint: false,
    }
}

fn intro(resume_seq: u64, record_count: u64, trust: TierTrust) -> AnswerPart {
    AnswerPart::SnapshotIntro(SnapshotIntro {
        epoch: Some(Epoch(7)),
        incarnation: None,
        resume_seq: Seq(resume_seq),
        last_digest: resume_seq.checked_sub(1).map(|last| batch(last).digest),
        record_count,
        barrier: None,
        trust,
    })
}

impl World {
    /// The snapshot that was asked for last, when there were so many.
    async fn asked_for_snapshots(&self, count: usize) -> (Attempt, Option<String>) {
        for _ in 0..10_000 {
            let requests = self.requests.lock().unwrap().clone();
            let asked: Vec<_> = requests
                .into_iter()
                .filter_map(|request| match request {
                    SourceRequest::Snapshot { attempt, object } => Some((attempt, object)),
                    SourceRequest::Replay { .. } | SourceRequest::Cancel => None,
                })
                .collect();
            if asked.len() >= count {
                return asked[count - 1].clone();
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("a snapshot was not asked for {count} times");
    }

    async fn asked_for_replay(&self, not: Attempt) -> (Attempt, u64) {
        for _ in 0..10_000 {
            if let Some(SourceRequest::Replay { attempt, start_seq }) =
                self.requests.lock().unwrap().last()
                && *attempt != not
            {
                return (*attempt, start_seq.0);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("no replay was asked for");
    }

    async fn part(&self, attempt: Attempt, part: AnswerPart) {
        self.say([SourceEvent::Answer { attempt, part }]).await;
    }

    async fn records(&self, attempt: Attempt, tokens: impl IntoIterator<Item = u32>) {
        let records = tokens.into_iter().map(record).collect();
        self.say([Delivery::Records { attempt, records }]).await;
    }

    async fn live_of_7(&self, seq: u64) {
        self.say([SourceEvent::Live(Batch { epoch: Some(Epoch(7)), ..batch(seq) })]).await;
    }

    /// Answers the replay behind an install: nothing came after `last`.
    async fn nothing_behind(&self, not: Attempt, last: u64) {
        let (attempt, _) = self.asked_for_replay(not).await;
        let batch = Batch { epoch: Some(Epoch(7)), ..batch(last) };
        self.part(attempt, AnswerPart::Batch(batch)).await;
        self.part(attempt, AnswerPart::End).await;
    }
}

#[tokio::test]
async fn chunks_become_one_view_and_what_was_held_follows() {
    let mut world = world_with(Replay::Journal, Some(STORED));
    world.say([SourceEvent::Attached]).await;
    world.live_of_7(3).await;
    let (attempt, object) = world.asked_for_snapshots(1).await;
    assert_eq!(object, None);
    world.part(attempt, intro(3, 3, TierTrust::all(Trust::Exact))).await;
    world.records(attempt, [0, 1]).await;
    world.records(attempt, [2]).await;
    assert_eq!(world.matched(2), (false, 0), "nothing is shown before the whole is there");
    world.part(attempt, AnswerPart::SnapshotEnd).await;
    let (replay, start_seq) = world.asked_for_replay(attempt).await;
    assert!(start_seq <= 2, "what came behind a stored cut is asked for, inclusive of its last");
    for seq in 2..4 {
        let batch = Batch { epoch: Some(Epoch(7)), ..batch(seq) };
        world.part(replay, AnswerPart::Batch(batch)).await;
    }
    let status = world.until(|status| status.trust.device == Trust::Exact).await;
    assert_eq!(status.cursor, Cursor { epoch: Epoch(7), next_seq: Seq(4) });
    assert_eq!((status.trust.host, status.blocks.get(&Tier::Device)), (Trust::Exact, Some(&4)));
    for token in 0..4 {
        world.match_until(token, (true, 1)).await;
    }
    world.end().await;
}

/// Nothing in the stream shows how old a stored cut is: it is not believed before the log was
/// asked.
#[tokio::test]
async fn a_stored_cut_is_believed_when_nothing_came_behind_it() {
    let mut world = world_with(Replay::Journal, Some(STORED));
    world.say([SourceEvent::Attached]).await;
    let (attempt, _) = world.asked_for_snapshots(1).await;
    let trust = TierTrust { device: Trust::Exact, host: Trust::LowerBound };
    world.part(attempt, intro(3, 1, trust)).await;
    world.records(attempt, [2]).await;
    world.part(attempt, AnswerPart::SnapshotEnd).await;
    let status = world.until(|status| status.cursor.next_seq == Seq(3)).await;
    assert_eq!(status.trust.device, Trust::None);
    world.nothing_behind(attempt, 2).await;
    let status = world.until(|status| status.trust.device == Trust::Exact).await;
    assert_eq!(status.trust.host, Trust::LowerBound, "never more than the snapshot was believed");
    world.match_until(2, (true, 1)).await;
    world.end().await;
}

/// A bridge that says what its hop lost names the snapshot that mends it.
#[tokio::test]
async fn a_reset_is_answered_with_the_object_it_names() {
    let mut world = world_with(Replay::Journal, Some(STORED));
    world.say([SourceEvent::Attached]).await;
    for seq in 0..2 {
        world.live_of_7(seq).await;
    }
    world.match_until(1, (true, 1)).await;
    let reset = kvbridge_schemas::Reset {
        cause: "permanent_hole".to_owned(),
        trust: Trust::LowerBound,
        snapshot: Some("object".to_owned()),
    };
    let mut batch = with_events(2, vec![Event::Reset(reset)]);
    (batch.epoch, batch.span) = (Some(Epoch(7)), 3);
    world.say([SourceEvent::Live(batch)]).await;
    let (attempt, object) = world.asked_for_snapshots(1).await;
    assert_eq!(object.as_deref(), Some("object"));
    world.part(attempt, intro(5, 1, TierTrust::all(Trust::Exact))).await;
    world.records(attempt, [9]).await;
    world.part(attempt, AnswerPart::SnapshotEnd).await;
    world.nothing_behind(attempt, 4).await;
    world.until(|status| status.trust.device == Trust::Exact).await;
    world.match_until(9, (true, 1)).await;
    world.match_until(1, (true, 0)).await;
    world.end().await;
}

/// Two places for one block are no view: nothing of it is shown, and another snapshot is asked for.
#[tokio::test]
async fn contradictory_records_fail_the_attempt_alone() {
    let mut world = world_with(Replay::Journal, Some(STORED));
    world.say([SourceEvent::Attached]).await;
    let (first, _) = world.asked_for_snapshots(1).await;
    let mut twice = record(4);
    twice.content = Some(content_hash(&[5]));
    world.part(first, intro(3, 2, TierTrust::all(Trust::Exact))).await;
    world.say([Delivery::Records { attempt: first, records: vec![record(4), twice] }]).await;
    let (second, _) = world.asked_for_snapshots(2).await;
    // What still comes of the first changes nothing.
    world.records(first, [6]).await;
    world.part(first, AnswerPart::SnapshotEnd).await;
    world.part(second, intro(3, 1, TierTrust::all(Trust::Exact))).await;
    world.records(second, [2]).await;
    world.part(second, AnswerPart::SnapshotEnd).await;
    world.nothing_behind(second, 2).await;
    let status = world.until(|status| status.trust.device == Trust::Exact).await;
    assert_eq!(status.blocks.get(&Tier::Device), Some(&1));
    world.end().await;
}

/// A snapshot of more blocks than are kept is refused while it is read, not when all is in memory.
#[tokio::test]
async fn a_snapshot_over_the_limit_of_blocks_is_refused() {
    let world = world_with(Replay::Journal, Some(STORED));
    world.say([SourceEvent::Attached]).await;
    let (attempt, _) = world.asked_for_snapshots(1).await;
    world.part(attempt, intro(3, 1_000_000, TierTrust::all(Trust::Exact))).await;
    world.records(attempt, 0..6).await;
    // The next best is the log.
    let (_, start_seq) = world.asked_for_replay(attempt).await;
    assert_eq!(start_seq, 0);
    world.end().await;
}
