//! From what routers report to the alarm that rings, with what changed before.

use std::sync::Arc;

use kvbridge_schemas::{Cursor, EngineKind, Epoch, Replica, Seq};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{Alarm, HitEvent, Watch};
use crate::{
    clock::Clock,
    config::limits::RANK_MISSING,
    pipeline::{Fleet, ReplicaHandle, ReplicaStatus},
    recovery::Tick,
    slo::{Prediction, Served},
};

#[test]
fn a_hit_rate_that_falls_in_a_new_life_rings_and_says_so() {
    let replica = Replica { model: "m".to_owned(), instance: "h:1".to_owned(), rank: 0 };
    let (key, fleet) = (replica.key(), Fleet::new(1));
    let (status, status_rx) = watch::channel(ReplicaStatus::starting());
    let handle = ReplicaHandle {
        replica: Arc::new(replica),
        status: status_rx,
        commands: mpsc::channel(1).0,
        signs: Arc::default(),
        engine: EngineKind::Vllm,
        flush: None,
        is_bridged: false,
        life: None,
        stop: CancellationToken::new(),
    };
    let signs = Arc::clone(&handle.signs);
    fleet.add(key.clone(), handle);
    let (mut watch, alarms) = Watch::new(Arc::new(fleet), Clock::start(), RANK_MISSING);
    for (lives, seconds, cached_tokens) in [(1, 1_500, 950), (2, 400, 500)] {
        let cursor = Cursor { epoch: Epoch(lives), next_seq: Seq(0) };
        status.send_modify(|status| status.cursor = cursor);
        for second in 0..seconds {
            let now = (lives - 1) * 1_500_000 + second * 1_000;
            let predicted_tokens = Some(950);
            let input_tokens = 1_000;
            let served = Served { replica: 1, input_tokens, cached_tokens, predicted_tokens };
            signs.served(Prediction::Routed, served);
            signs.received(Tick(now), kvbridge_adapters_api::Loss::Nothing);
            watch.look(Tick(now), now);
        }
        let rings: Vec<_> = alarms.of(&key).iter().map(|it| (it.alarm, it.event)).collect();
        let expected = [
            (Alarm::EngineHitRateBelowPrediction, None),
            (Alarm::HitRateBelowBaseline, Some(HitEvent::Epoch)),
        ];
        assert_eq!(rings.is_empty(), lives == 1, "{rings:?}");
        assert!(lives == 1 || expected.iter().all(|it| rings.contains(it)), "{rings:?}");
    }
    // The engine's own figures are of all requests and win.
    assert_eq!(signs.hit_counts().input, 1_900_000);
    signs.set_engine_tokens(Some(7), Some(3));
    let counts = signs.hit_counts();
    assert_eq!((counts.input, counts.cached, counts.routed_input), (7, 3, 1_900_000));
}
