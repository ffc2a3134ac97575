//! Each fault of the fake engine ends as the recovery contract says.

use serde_json::json;

use super::peer::Pair;

#[tokio::test]
async fn a_restart_is_a_new_epoch_without_ghosts() {
    let pair = Pair::start("--blocks 64").await;
    pair.burst(40).await;
    let before = pair.is_true().await;
    pair.fault(json!({"fault": "restart"})).await;
    pair.burst(5).await;
    pair.until("a new epoch", |status| status.epoch != before.epoch).await;
    pair.is_true().await;
    pair.end();
}

#[tokio::test]
async fn a_restart_of_random_hashes_past_the_old_seq_is_detected() {
    let pair = Pair::start("--blocks 64 --encoding 0.16").await;
    pair.burst(10).await;
    let before = pair.is_true().await;
    pair.fault(json!({"fault": "restart"})).await;
    pair.burst(60).await;
    pair.until("a new epoch", |status| status.epoch != before.epoch).await;
    pair.is_true().await;
    pair.end();
}

#[tokio::test]
async fn a_restart_behind_open_connections_is_detected() {
    let pair = Pair::start("--blocks 64").await;
    pair.burst(40).await;
    let before = pair.is_true().await;
    pair.fault(json!({"fault": "silent_restart"})).await;
    pair.burst(60).await;
    pair.until("a new epoch", |status| status.epoch != before.epoch).await;
    pair.is_true().await;
    pair.end();
}

#[tokio::test]
async fn dropped_batches_come_back_by_replay() {
    for release in ["0.25", "0.33"] {
        let pair = Pair::start(&format!("--blocks 64 --encoding {release}")).await;
        let before = pair.is_true().await;
        pair.fault(json!({"fault": "drop", "count": 5})).await;
        pair.burst(12).await;
        assert_eq!(pair.is_true().await.epoch, before.epoch);
        pair.end();
    }
}

#[tokio::test]
async fn an_answer_without_its_end_marker_still_repairs() {
    let pair = Pair::start("--blocks 64").await;
    pair.fault(json!({"fault": "end_lost", "on": true})).await;
    pair.fault(json!({"fault": "drop", "count": 3})).await;
    pair.burst(8).await;
    pair.is_true().await;
    pair.end();
}

#[tokio::test]
async fn a_cut_answer_is_asked_for_again() {
    let pair = Pair::start("--blocks 64").await;
    pair.fault(json!({"fault": "slow_reader", "count": 4})).await;
    pair.fault(json!({"fault": "drop", "count": 7})).await;
    pair.burst(9).await;
    pair.is_true().await;
    pair.end();
}

#[tokio::test]
async fn a_stalled_publisher_is_waited_for() {
    let pair = Pair::start("--blocks 64").await;
    pair.fault(json!({"fault": "drop", "count": 2})).await;
    pair.fault(json!({"fault": "stall", "ms": 400})).await;
    pair.burst(8).await;
    pair.is_true().await;
    pair.end();
}

#[tokio::test]
async fn a_burnt_seq_ends_exact() {
    let pair = Pair::start("--blocks 64").await;
    pair.fault(json!({"fault": "burn", "count": 1})).await;
    pair.burst(8).await;
    pair.is_lower_bound().await;
    pair.end();
}

#[tokio::test]
async fn a_batch_that_is_nowhere_is_like_a_burnt_one() {
    let pair = Pair::start("--blocks 64").await;
    pair.fault(json!({"fault": "drop", "count": 1})).await;
    pair.fault(json!({"fault": "hole", "count": 1})).await;
    pair.burst(8).await;
    pair.is_lower_bound().await;
    pair.end();
}

#[tokio::test]
async fn a_poisoned_batch_ends_exact() {
    let pair = Pair::start("--blocks 64").await;
    pair.fault(json!({"fault": "poison", "count": 1})).await;
    pair.burst(8).await;
    pair.is_lower_bound().await;
    pair.end();
}

#[tokio::test]
async fn a_store_that_cannot_be_read_costs_exact_only() {
    let pair = Pair::start("--blocks 64").await;
    pair.fault(json!({"fault": "undecodable_event"})).await;
    pair.burst(8).await;
    pair.is_lower_bound().await;
    pair.end();
}

#[tokio::test]
async fn an_unknown_event_ends_all_trust_until_a_clear() {
    let pair = Pair::start("--blocks 64").await;
    pair.fault(json!({"fault": "unknown_tag"})).await;
    pair.burst(8).await;
    pair.reach("none").await;
    pair.fault(json!({"fault": "clear"})).await;
    pair.burst(8).await;
    pair.is_true().await;
    pair.end();
}

#[tokio::test]
async fn a_clear_leaves_with_the_next_step_and_is_exact() {
    let pair = Pair::start("--blocks 64").await;
    pair.burst(20).await;
    let before = pair.is_true().await;
    pair.post("/reset_prefix_cache").await;
    let (head, truth) = pair.truth().await;
    assert_eq!((head["pending"].as_bool(), truth.len()), (Some(true), 0));
    assert_eq!(head["next_seq"], before.next_seq, "an idle engine says nothing");
    pair.burst(1).await;
    let after = pair.is_true().await;
    assert_eq!((after.epoch, after.next_seq), (before.epoch, before.next_seq + 1));
    pair.end();
}

#[tokio::test]
async fn a_frozen_clock_and_the_same_prompts_do_not_hide_a_restart() {
    let pair = Pair::start("--blocks 64").await;
    pair.fault(json!({"fault": "freeze_clock", "on": true})).await;
    pair.burst(20).await;
    let before = pair.is_true().await;
    pair.fault(json!({"fault": "silent_restart"})).await;
    pair.fault(json!({"fault": "freeze_clock", "on": true})).await;
    pair.burst(30).await;
    pair.until("a new epoch", |status| status.epoch != before.epoch).await;
    pair.is_true().await;
    pair.end();
}
