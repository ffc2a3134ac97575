//! The task over drivers and an engine that the test plays.

use std::sync::atomic::{AtomicU32, Ordering};

use axum::{Router, http::StatusCode, routing::post};
use kvbridge_schemas::{Cursor, EngineKind, Epoch, Replica, Seq, TierTrust};
use tokio::sync::{mpsc, watch};

use super::*;
use crate::{jobs::Performed, pipeline::ReplicaStatus};

struct Driver {
    status: watch::Sender<ReplicaStatus>,
    commands: mpsc::Receiver<Command>,
}

fn driver(fleet: &Fleet, rank: u32, flush: Option<String>) -> Driver {
    let replica = Replica { model: "m".to_owned(), instance: "i".to_owned(), rank };
    let cursor = Cursor { epoch: Epoch(1), next_seq: Seq(5) };
    let trust = TierTrust::all(Trust::LowerBound);
    let status =
        ReplicaStatus { trust, reason: "history_lost", cursor, ..ReplicaStatus::starting() };
    let ((status, seen), (asks, commands)) = (watch::channel(status), mpsc::channel(1));
    let handle = ReplicaHandle {
        replica: Arc::new(replica.clone()),
        status: seen,
        commands: asks,
        signs: Arc::default(),
        engine: EngineKind::Other("e".to_owned()),
        flush,
        is_bridged: false,
        life: None,
        stop: CancellationToken::new(),
    };
    fleet.add(replica.key(), handle);
    Driver { status, commands }
}

impl Driver {
    fn becomes_exact(&self, performed: Performed) {
        self.status.send_modify(|status| {
            status.trust = TierTrust::all(Trust::Exact);
            status.reason = "contiguous";
            status.performed = performed;
        });
    }
}

fn order(verb: Verb) -> Order {
    let (trigger, wait) = (Trigger::Operator, Trust::Exact);
    Order { verb, trigger, wait, timeout_ms: 60_000, parallel_max: 2 }
}

/// An engine that answers so, and counts.
async fn engine(status: StatusCode, tasks: &mut Tasks) -> (String, Arc<AtomicU32>) {
    let count = Arc::<AtomicU32>::default();
    let counted = Arc::clone(&count);
    let answer = post(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        std::future::ready(status)
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/flush", listener.local_addr().unwrap());
    let router = Router::new().route("/flush", answer);
    let stop = tasks.stop_token();
    tasks.spawn("engine", async move {
        let served = axum::serve(listener, router);
        tokio::select! {
            () = stop.cancelled() => (),
            served = served.into_future() => served.unwrap(),
        }
    });
    (url, count)
}

async fn until(foreman: &Foreman, id: u64, fact: impl Fn(&Job) -> bool) -> Job {
    loop {
        let job = foreman.job(id).unwrap();
        if fact(&job) {
            return job;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn an_engine_is_asked_once_for_its_replicas_and_believed_by_its_clears() {
    let (fleet, mut tasks) = (Arc::new(Fleet::new(1)), Tasks::new());
    let (url, count) = engine(StatusCode::OK, &mut tasks).await;
    let drivers = [0, 1].map(|rank| driver(&fleet, rank, Some(url.clone())));
    let foreman = Foreman::new(Arc::clone(&fleet), Clock::start());
    foreman.work(OnUnrecoverable::None, &mut tasks);
    let id = foreman.order(order(Verb::Flush), &Selector::All, |_| true).unwrap().unwrap();
    until(&foreman, id, |_| count.load(Ordering::Relaxed) == 1).await;
    let flushed = Some(Cursor { epoch: Epoch(1), next_seq: Seq(5) });
    for driver in &drivers {
        assert_eq!(foreman.job(id).unwrap().outcome(), Outcome::Running);
        driver.becomes_exact(Performed { resyncs: 0, flushed });
    }
    until(&foreman, id, |job| job.outcome() == Outcome::Reached).await;
    assert_eq!(count.load(Ordering::Relaxed), 1, "both are of one engine");
    assert!(tasks.stop(Duration::from_secs(5)).await.is_empty());
}

#[tokio::test]
async fn an_engine_that_refuses_or_is_away_fails_by_name() {
    let (fleet, mut tasks) = (Arc::new(Fleet::new(1)), Tasks::new());
    let (url, _) = engine(StatusCode::NOT_FOUND, &mut tasks).await;
    let _refuses = driver(&fleet, 0, Some(url));
    // Nobody listens at a port that was bound and given back.
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let _away = driver(&fleet, 1, Some(format!("http://{free}/flush")));
    let foreman = Foreman::new(Arc::clone(&fleet), Clock::start());
    foreman.work(OnUnrecoverable::None, &mut tasks);
    let id = foreman.order(order(Verb::Flush), &Selector::All, |_| true).unwrap().unwrap();
    let job = until(&foreman, id, |job| job.outcome() == Outcome::NotReached).await;
    let states: Vec<State> = job.members().iter().map(|member| member.state).collect();
    let expected = [Failure::FlushRefused(404), Failure::FlushUnanswered];
    assert_eq!(states, expected.map(State::Failed));
    assert!(tasks.stop(Duration::from_secs(5)).await.is_empty());
}

#[tokio::test]
async fn a_driver_is_asked_and_one_that_is_busy_or_gone_fails_by_name() {
    let (fleet, mut tasks) = (Arc::new(Fleet::new(1)), Tasks::new());
    let (mut asked, busy) = (driver(&fleet, 0, None), driver(&fleet, 1, None));
    let mut all = fleet.replicas();
    let (_, of_busy) = all.nth(1).unwrap();
    of_busy.ask(Command::Release).unwrap();
    let foreman = Foreman::new(Arc::clone(&fleet), Clock::start());
    foreman.work(OnUnrecoverable::None, &mut tasks);
    let id = foreman.order(order(Verb::Resync), &Selector::All, |_| true).unwrap().unwrap();
    assert!(matches!(asked.commands.recv().await, Some(Command::Resync)));
    asked.becomes_exact(Performed { resyncs: 1, flushed: None });
    let job = until(&foreman, id, |job| job.outcome() == Outcome::NotReached).await;
    let states: Vec<State> = job.members().iter().map(|member| member.state).collect();
    assert_eq!(states, [State::Done, State::Failed(Failure::Busy)]);
    drop(busy);
    let model = Selector::Model("m".to_owned());
    let id = foreman.order(order(Verb::Resync), &model, |_| true).unwrap().unwrap();
    let gone = |job: &Job| job.members()[1].state == State::Failed(Failure::ReplicaGone);
    until(&foreman, id, gone).await;
    assert!(foreman.order(order(Verb::Resync), &model, |model| model != "m").is_none());
    assert!(tasks.stop(Duration::from_secs(5)).await.is_empty());
}
