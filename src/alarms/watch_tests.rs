//! What rings, from looks at replicas whose drivers the test plays.

use kvbridge_adapters_api::Loss;
use kvbridge_schemas::{EngineKind, Replica};
use tokio::sync::{mpsc, watch};

use super::*;
use crate::pipeline::ReplicaStatus;

const MISSING: Duration = Duration::from_secs(30);

fn handle(model: &str) -> (ReplicaKey, ReplicaHandle) {
    let replica = Replica { model: model.to_owned(), instance: "h:1".to_owned(), rank: 0 };
    let handle = ReplicaHandle {
        status: watch::channel(ReplicaStatus::starting()).1,
        commands: mpsc::channel(1).0,
        signs: Arc::default(),
        engine: EngineKind::Vllm,
        flush: None,
        is_bridged: false,
        life: None,
        stop: CancellationToken::new(),
        replica: Arc::new(replica),
    };
    (handle.replica.key(), handle)
}

/// A reload may bring models that nobody served at the start.
#[test]
fn a_model_that_comes_later_has_its_requests_counted_and_one_that_goes_has_not() {
    let fleet = Arc::new(Fleet::new(1));
    let recorder = crate::telemetry::build_metrics().unwrap();
    metrics::with_local_recorder(&recorder, || {
        let (mut watch, alarms) = Watch::new(Arc::clone(&fleet), Clock::start(), MISSING);
        let (key, handle) = handle("later");
        fleet.add(key.clone(), handle);
        for second in 0..40_u64 {
            watch.look(Tick(second * 1_000), second * 1_000);
            alarms.counted("later");
        }
        assert_eq!(alarms.of(&key).first().map(|it| it.alarm), Some(Alarm::StreamSilent));
        fleet.remove(&key);
        watch.look(Tick(40_000), 40_000);
        assert!(alarms.of(&key).is_empty());
        alarms.counted("later");
        assert_eq!(alarms.asks.counts("later", &key).0.asked, 0, "nobody reads it");
    });
}

#[test]
fn silence_under_traffic_rings_and_a_batch_ends_it() {
    let ((key, handle), fleet) = (handle("m"), Fleet::new(1));
    let signs = Arc::clone(&handle.signs);
    fleet.add(key.clone(), handle);
    let recorder = crate::telemetry::build_metrics().unwrap();
    let render = recorder.handle();
    let (mut watch, alarms) = metrics::with_local_recorder(&recorder, || {
        Watch::new(Arc::new(fleet), Clock::start(), MISSING)
    });
    let silent = "kvbridge_alarm{replica=\"m.h=3A1.0\",alarm=\"stream_silent\"}";
    assert!(render.render().contains(&format!("{silent} 0")), "{}", render.render());
    alarms.counted("another model");
    for second in 0..31_u64 {
        alarms.counted("m");
        watch.look(Tick(second * 1_000), second * 1_000);
    }
    assert!(alarms.of(&key).is_empty(), "one look is not enough");
    watch.look(Tick(31_000), 31_000);
    let raised = Raised { alarm: Alarm::StreamSilent, since_ms: 31_000, event: None };
    assert_eq!(alarms.of(&key), [raised]);
    assert!(render.render().contains(&format!("{silent} 1")));
    signs.received(Tick(32_000), Loss::Nothing);
    for second in 32..62_u64 {
        watch.look(Tick(second * 1_000), second * 1_000);
    }
    assert!(alarms.of(&key).is_empty(), "thirty seconds of calm end it");
    // Routers ask elsewhere; the engine says that it serves all the same.
    for second in 62..95_u64 {
        signs.set_figures(None, Some(7_000 + second));
        watch.look(Tick(second * 1_000), second * 1_000);
    }
    assert_eq!(
        alarms.of(&key),
        [Raised { alarm: Alarm::StreamSilent, since_ms: 63_000, event: None }]
    );
    // It started anew: its count did too, and what it served before is not traffic.
    for second in 95..160_u64 {
        signs.set_figures(None, Some(3));
        watch.look(Tick(second * 1_000), second * 1_000);
    }
    assert!(alarms.of(&key).is_empty());
    assert!(render.render().contains(&format!("{silent} 0")));
}

#[test]
fn a_rank_that_never_spoke_is_told_so_once_and_again_when_it_is_opened_anew() {
    let fleet = Arc::new(Fleet::new(1));
    let recorder = crate::telemetry::build_metrics().unwrap();
    metrics::with_local_recorder(&recorder, || {
        let (mut watch, _) = Watch::new(Arc::clone(&fleet), Clock::start(), MISSING);
        let rank = |number: u32| {
            let (_, mut handle) = handle("m");
            let replica = Replica { rank: number, ..Replica::clone(&handle.replica) };
            let (commands, asked) = mpsc::channel(4);
            (handle.replica, handle.commands) = (Arc::new(replica), commands);
            fleet.add(handle.replica.key(), handle.clone());
            (handle, asked)
        };
        let ((speaks, _first), (_, mut silent)) = (rank(0), rank(3));
        speaks.signs.received(Tick(5), Loss::Nothing);
        for second in 0..40_u64 {
            watch.look(Tick(second * 1_000), second * 1_000);
        }
        assert!(matches!(silent.try_recv(), Ok(Command::RankMissing(true))));
        assert!(silent.try_recv().is_err(), "once");
        let (again, mut silent) = rank(3);
        watch.look(Tick(40_000), 40_000);
        assert!(matches!(silent.try_recv(), Ok(Command::RankMissing(true))));
        again.signs.received(Tick(41_000), Loss::Nothing);
        watch.look(Tick(41_000), 41_000);
        assert!(matches!(silent.try_recv(), Ok(Command::RankMissing(false))));
    });
}

/// What happened once is news for a minute, and rings half a minute longer.
#[test]
fn a_log_that_was_reset_rings_and_ends_by_itself() {
    let ((key, handle), fleet) = (handle("m"), Fleet::new(1));
    let signs = Arc::clone(&handle.signs);
    fleet.add(key.clone(), handle);
    let (mut watch, alarms) = Watch::new(Arc::new(fleet), Clock::start(), MISSING);
    let mut rang = Vec::new();
    for second in 0..120_u64 {
        if second == 10 {
            signs.log_was_reset();
        }
        watch.look(Tick(second * 1_000), second * 1_000);
        if !alarms.of(&key).is_empty() {
            rang.push(second);
        }
    }
    assert_eq!(alarms.of(&key), []);
    assert_eq!((rang.first(), rang.last()), (Some(&11), Some(&98)));
}
