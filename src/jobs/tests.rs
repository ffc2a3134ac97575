//! Jobs as data: looks at replicas in, asks and states out.

use std::collections::BTreeMap;

use kvbridge_schemas::{Cursor, Epoch, Replica, ReplicaKey, Seq, Trust};

use super::*;
use crate::recovery::Tick;

/// Replicas `a`, `b`, … as the job sees them.
#[derive(Default)]
struct World(BTreeMap<ReplicaKey, Seen>);

fn key(name: &str) -> ReplicaKey {
    Replica { model: "m".to_owned(), instance: name.to_owned(), rank: 0 }.key()
}

fn cursor(next_seq: u64) -> Cursor {
    Cursor { epoch: Epoch(7), next_seq: Seq(next_seq) }
}

impl World {
    /// Lower bounds at seq 10 that have sent nothing yet.
    fn of(names: &[&str]) -> World {
        let seen = Seen {
            trust: Trust::LowerBound,
            reason: "history_lost",
            cursor: cursor(10),
            performed: Performed { resyncs: 3, flushed: None },
            received_at: Tick(0),
        };
        World(names.iter().map(|name| (key(name), seen)).collect())
    }

    fn set(&mut self, name: &str, change: impl FnOnce(&mut Seen)) {
        change(self.0.get_mut(&key(name)).unwrap());
    }

    fn resynced(&mut self, name: &str, trust: Trust) {
        self.set(name, |seen| {
            seen.performed.resyncs += 1;
            seen.trust = trust;
        });
    }

    fn flushed(&mut self, name: &str, seq: u64, trust: Trust) {
        self.set(name, |seen| {
            seen.performed.note(Epoch(7), Fact::Flushed(Seq(seq)));
            seen.trust = trust;
        });
    }
}

fn job(verb: Verb, parallel_max: usize, targets: &[(&str, Result<&str, Failure>)]) -> Job {
    let order = Order {
        verb,
        trigger: Trigger::Operator,
        wait: Trust::Exact,
        timeout_ms: 120_000,
        parallel_max,
    };
    let target = |(name, at): &(&str, Result<&str, Failure>)| Target {
        key: key(name),
        model: "m".to_owned(),
        at: at.map(str::to_owned),
    };
    Job::new(order, targets.iter().map(target))
}

/// Each at a place of its own.
fn alone<'a>(names: &[&'a str]) -> Vec<(&'a str, Result<&'a str, Failure>)> {
    names.iter().map(|name| (*name, Ok(*name))).collect()
}

/// Where it asks now.
fn look(job: &mut Job, now: u64, world: &World) -> Vec<String> {
    job.look(Tick(now), &world.0).into_iter().map(|ask| ask.at).collect()
}

fn states(job: &Job) -> Vec<String> {
    let of = |member: &Member| match member.state.reason() {
        Some(reason) => format!("{}: {reason}", member.state.as_str()),
        None => member.state.as_str().to_owned(),
    };
    job.members().iter().map(of).collect()
}

#[test]
fn a_resync_counts_once_recovery_began_and_trust_came_back() {
    let mut world = World::of(&["a"]);
    let mut job = job(Verb::Resync, 1, &alone(&["a"]));
    assert_eq!(states(&job), ["waiting"]);
    world.set("a", |seen| seen.trust = Trust::Exact);
    assert_eq!(look(&mut job, 1, &world), ["a"]);
    assert!(look(&mut job, 2, &world).is_empty());
    assert_eq!(states(&job), ["asked"], "exact, and of the time before it was asked");
    world.resynced("a", Trust::None);
    look(&mut job, 3, &world);
    assert_eq!(states(&job), ["asked"]);
    world.set("a", |seen| seen.trust = Trust::LowerBound);
    look(&mut job, 4, &world);
    assert_eq!((states(&job), job.outcome()), (vec!["asked".to_owned()], Outcome::Running));
    world.set("a", |seen| seen.trust = Trust::Exact);
    assert!(look(&mut job, 5, &world).is_empty());
    assert_eq!((states(&job), job.outcome()), (vec!["done".to_owned()], Outcome::Reached));
}

#[test]
fn a_flush_counts_once_a_clear_behind_the_request_was_folded() {
    let mut world = World::of(&["a"]);
    world.flushed("a", 9, Trust::Exact);
    let mut job = job(Verb::Flush, 1, &alone(&["a"]));
    assert_eq!(look(&mut job, 1, &world), ["a"]);
    look(&mut job, 2, &world);
    assert_eq!(states(&job), ["asked"], "the clear was there before");
    world.flushed("a", 4, Trust::Exact);
    look(&mut job, 3, &world);
    assert_eq!(states(&job), ["asked"], "a replay told of an older one");
    world.flushed("a", 10, Trust::LowerBound);
    look(&mut job, 4, &world);
    assert_eq!(states(&job), ["asked"], "its scope was not all");
    world.set("a", |seen| seen.trust = Trust::Exact);
    look(&mut job, 5, &world);
    assert_eq!(states(&job), ["done"]);
}

#[test]
fn so_many_at_a_time_and_replicas_of_one_engine_together() {
    let mut world = World::of(&["a", "b", "c", "d", "e"]);
    let targets = [("a", Ok("x")), ("b", Ok("y")), ("c", Ok("x")), ("d", Ok("z")), ("e", Ok("v"))];
    let mut job = job(Verb::Flush, 2, &targets);
    let asks = job.look(Tick(0), &world.0);
    let of = |ask: &Ask| (ask.at.clone(), ask.replicas.len());
    assert_eq!(asks.iter().map(of).collect::<Vec<_>>(), [("x".into(), 2), ("y".into(), 1)]);
    world.flushed("a", 10, Trust::Exact);
    assert!(look(&mut job, 1, &world).is_empty(), "the other replica there is not back");
    world.flushed("c", 10, Trust::Exact);
    assert_eq!(look(&mut job, 2, &world), ["z"]);
    assert_eq!(states(&job), ["done", "asked", "done", "asked", "waiting"]);
    world.flushed("b", 11, Trust::Exact);
    assert_eq!(look(&mut job, 3, &world), ["v"]);
    world.flushed("d", 11, Trust::Exact);
    world.flushed("e", 11, Trust::Exact);
    assert!(look(&mut job, 4, &world).is_empty());
    assert_eq!(job.outcome(), Outcome::Reached);
}

#[test]
fn an_engine_without_traffic_is_pending_and_keeps_nobody_waiting() {
    let mut world = World::of(&["a", "b"]);
    let mut job = job(Verb::Flush, 1, &alone(&["a", "b"]));
    look(&mut job, 1_000, &world);
    look(&mut job, 60_999, &world);
    assert_eq!(states(&job), ["asked", "waiting"]);
    assert_eq!(look(&mut job, 61_000, &world), ["b"]);
    assert_eq!(states(&job), ["pending: no_traffic", "asked"]);
    world.set("a", |seen| seen.received_at = Tick(70_000));
    look(&mut job, 71_000, &world);
    assert_eq!(states(&job), ["pending: not_cleared", "asked"]);
    world.flushed("a", 12, Trust::Exact);
    look(&mut job, 72_000, &world);
    assert_eq!(states(&job), ["done", "asked"]);
    look(&mut job, 181_000, &world);
    assert_eq!(states(&job), ["done", "failed: timeout"]);
    assert_eq!(job.outcome(), Outcome::NotReached);
    let State::Failed(failure) = job.members()[1].state else { panic!("{:?}", job.members()[1]) };
    assert_eq!(failure, Failure::Timeout(Some(Pending::NoTraffic)));
    assert!(failure.to_string().contains("no batch came"));
}

#[test]
fn each_replica_has_its_own_time() {
    let mut world = World::of(&["a", "b"]);
    let mut job = job(Verb::Resync, 1, &alone(&["a", "b"]));
    look(&mut job, 0, &world);
    world.set("a", |seen| seen.received_at = Tick(1));
    assert!(look(&mut job, 119_999, &world).is_empty(), "a resync under traffic keeps its turn");
    assert_eq!(look(&mut job, 120_000, &world), ["b"]);
    assert_eq!(states(&job), ["failed: timeout", "asked"]);
    world.resynced("b", Trust::Exact);
    look(&mut job, 239_999, &world);
    assert_eq!(states(&job), ["failed: timeout", "done"]);
}

#[test]
fn what_cannot_be_asked_fails_by_name_and_the_others_go_on() {
    let mut world = World::of(&["a", "c", "d"]);
    let targets = [
        ("a", Err(Failure::FlushUnsupported)),
        ("b", Ok("b")),
        ("c", Ok("c")),
        ("d", Err(Failure::NoFlushUrl)),
    ];
    let mut job = job(Verb::Flush, 1, &targets);
    assert_eq!(look(&mut job, 0, &world), ["c"], "nobody waits for a replica that is gone");
    job.failed(&[key("c"), key("a")], Failure::FlushRefused(404));
    let expected = [
        "failed: flush_unsupported",
        "failed: replica_gone",
        "failed: flush_refused",
        "failed: no_flush_url",
    ];
    assert_eq!(states(&job), expected);
    world.flushed("c", 11, Trust::Exact);
    assert!(look(&mut job, 1, &world).is_empty());
    assert_eq!(states(&job), expected, "what is over stays as it is");
    assert_eq!(job.outcome(), Outcome::NotReached);
}

#[test]
fn a_cancelled_job_asks_nobody_any_more() {
    let mut world = World::of(&["a", "b", "c"]);
    let mut job = job(Verb::Resync, 2, &alone(&["a", "b", "c"]));
    look(&mut job, 0, &world);
    world.resynced("a", Trust::Exact);
    look(&mut job, 1, &world);
    job.cancel();
    assert_eq!(states(&job), ["done", "failed: cancelled", "failed: cancelled"]);
    assert_eq!(job.outcome(), Outcome::Cancelled);
    assert!(look(&mut job, 2, &world).is_empty());
    let mut over = self::job(Verb::Resync, 2, &[("a", Err(Failure::FlushUnsupported))]);
    over.cancel();
    assert_eq!(over.outcome(), Outcome::NotReached, "nothing was left to cancel");
}

#[test]
fn the_book_is_bounded_and_what_runs_is_never_forgotten() {
    let (mut book, world) = (Book::default(), World::of(&["a"]));
    let over = || job(Verb::Flush, 1, &[("a", Err(Failure::FlushUnsupported))]);
    let running = |book: &mut Book| book.enter(job(Verb::Resync, 1, &alone(&["a"])));
    for id in 1..=8 {
        assert_eq!(running(&mut book), Ok(id));
    }
    assert_eq!(JOBS_RUNNING_MAX, 8);
    assert_eq!(running(&mut book), Err(TooManyJobs));
    book.job_mut(3).unwrap().cancel();
    for _ in 0..100 {
        book.enter(over()).unwrap();
    }
    assert_eq!(book.jobs().count(), JOBS_KEPT_MAX);
    assert!(book.job(3).is_none(), "the oldest that was over went first");
    assert_eq!(book.look(Tick(1), &world.0).len(), 7);
    assert!(book.is_running());
    assert_eq!(running(&mut book), Ok(109), "numbers are not given again");
}

#[test]
fn the_policy_is_patient_and_doubles_its_waits() {
    let (mut policy, mut world) = (Policy::default(), World::of(&["a", "b", "c", "d"]));
    world.set("b", |seen| (seen.trust, seen.reason) = (Trust::None, "gap_open"));
    world.set("c", |seen| (seen.trust, seen.reason) = (Trust::None, "removal_undecodable"));
    world.set("d", |seen| seen.trust = Trust::Exact);
    let due = |policy: &mut Policy, now: u64, world: &World| {
        let due = policy.look(Tick(now), &world.0);
        policy.asked(Tick(now), &due);
        due
    };
    assert!(due(&mut policy, 0, &world).is_empty());
    assert!(due(&mut policy, 9_999, &world).is_empty(), "somebody else may flush it");
    assert_eq!(due(&mut policy, 10_000, &world), [key("a"), key("c")]);
    assert!(due(&mut policy, 609_999, &world).is_empty());
    world.set("c", |seen| seen.trust = Trust::Exact);
    assert_eq!(due(&mut policy, 610_000, &world), [key("a")]);
    assert!(due(&mut policy, 1_809_999, &world).is_empty(), "twice as long");
    assert_eq!(due(&mut policy, 1_810_000, &world), [key("a")]);
    // It was exact in between: what comes now is another trouble.
    world.set("a", |seen| seen.trust = Trust::Exact);
    due(&mut policy, 1_840_000, &world);
    world.set("a", |seen| seen.trust = Trust::LowerBound);
    assert!(due(&mut policy, 1_850_000, &world).is_empty());
    assert_eq!(due(&mut policy, 1_860_000, &world), [key("a")]);
}
