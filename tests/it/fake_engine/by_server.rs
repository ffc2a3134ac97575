//! Engines that are known by their HTTP server alone.

use super::peer::Pair;

/// All ranks hold what the engine holds, after traffic.
async fn is_true_of(pair: &mut Pair, ranks: u32) {
    for rank in 0..ranks {
        pair.turn_to(rank);
        pair.burst(5).await;
        pair.is_true().await;
    }
}

/// Publishers that listen everywhere are reached at the host of the server, and routers ask by the
/// name that the server tells.
#[tokio::test]
async fn every_data_parallel_rank_is_a_replica_and_a_tensor_parallel_group_is_one() {
    for (args, ranks) in [("--tp 4", 1), ("--tp 4 --dp 2", 2)] {
        let args = format!("{args} --host 0.0.0.0 --blocks 64");
        let mut pair = Pair::by_server("vllm", &args, "--vllm").await;
        let found = pair.replicas().await;
        assert_eq!(found.len(), usize::try_from(ranks).unwrap(), "{found:?}");
        is_true_of(&mut pair, ranks).await;
        pair.end();
    }
}

#[tokio::test]
async fn an_engine_is_known_by_what_it_answers() {
    for (engine, args) in
        [("vllm", ""), ("sglang", ""), ("trtllm", "--drain-wait-ms 60 --blocks 64")]
    {
        let mut pair = Pair::by_server(engine, args, "--engine-url").await;
        is_true_of(&mut pair, 1).await;
        pair.end();
    }
}

/// As one whose ports are free ones: only its server can tell where it publishes now.
#[tokio::test]
async fn an_engine_that_restarts_on_other_ports_is_found_there() {
    let mut pair = Pair::by_server("vllm", "--blocks 64", "--vllm").await;
    is_true_of(&mut pair, 1).await;
    let before = pair.status().await;
    pair.replace("vllm", "--blocks 64");
    is_true_of(&mut pair, 1).await;
    let after = pair.status().await;
    assert!(after.epoch > before.epoch, "{before:?}, {after:?}");
    pair.end();
}
