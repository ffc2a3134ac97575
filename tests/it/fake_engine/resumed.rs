//! A bridge that stops in order loses nothing of an engine that is drained: the next one goes on
//! with the view that was kept.

use std::path::Path;

use serde_json::json;

use super::peer::Pair;

#[tokio::test]
async fn a_stop_and_a_start_are_no_loss() {
    for (release, trust) in [("1.4", "exact"), ("1.2", "lower_bound")] {
        let state = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("resumed-{release}"));
        // Of an earlier run; there may be none.
        drop(std::fs::remove_dir_all(&state));
        // An answer takes long enough that one is under way whenever the bridge is stopped.
        let args = format!("--drain-wait-ms 300 --blocks 64 --encoding {release}");
        let mut pair = Pair::begin_keeping("trtllm", &args, state);
        pair.burst(30).await;
        let mut before = pair.reach(trust).await;
        for _ in 0..2 {
            pair.burst(20).await;
            pair.stop_and_start(async |pair: &Pair| pair.burst(20).await).await;
            // The event that is next proves that none is missing.
            let after = pair.reach(trust).await;
            let ((_, truth), (_, held)) = (pair.truth().await, pair.snapshot().await);
            // Under the older manager a block of which only its place was kept may be gone.
            let misses = truth.difference(&held).count();
            assert!(held.is_subset(&truth) && (trust == "lower_bound" || misses == 0), "{misses}");
            assert!(!held.is_empty());
            assert!(after.epoch == before.epoch && after.next_seq > before.next_seq, "{after:?}");
            before = after;
        }
        // An engine that restarts meanwhile is another life.
        pair.stop_and_start(async |pair: &Pair| {
            pair.fault(json!({"fault": "restart"})).await;
            pair.burst(2).await;
        })
        .await;
        let after = pair.reach(trust).await;
        let ((_, truth), (_, held)) = (pair.truth().await, pair.snapshot().await);
        assert_eq!(held, truth);
        assert!(after.epoch > before.epoch, "{after:?}");
        pair.end();
    }
}
