//! What a bridge believes reaches whoever reads its ZeroMQ bus: with the data, each second, and by
//! silence. Engine, bridge and index as processes.

use serde_json::{Value, json};

use crate::{
    zmq_client::Client,
    zmq_world::{KEY, World},
};

fn stands(status: &Value, trust: &str, reason: &str) -> bool {
    (status["trust"].as_str(), status["reason"].as_str()) == (Some(trust), Some(reason))
}

/// What the log of the newest life says last of trust.
fn last_said(world: &World) -> Option<String> {
    let replay = Client::connect(&world.bridge.requests).replay(KEY, 0, 0);
    replay.said.last().map(|(_, trust)| trust.clone())
}

#[tokio::test]
async fn a_bridge_without_its_engine_is_believed_no_more() {
    let mut world = World::start("zmq-engine-lost", "").await;
    assert_eq!(last_said(&world).as_deref(), Some("exact"));
    let silent = world.fact("bridge_silent").await;
    world.engine.process.signal("-KILL");
    world.until("in doubt", |status| stands(status, "none", "upstream")).await;
    assert_eq!(last_said(&world).as_deref(), Some("none"));
    // Only the engine is gone: neither the bridge nor the log is.
    assert_eq!(world.fact("bridge_silent").await, silent);
    world.index.end();
    world.bridge.end();
}

#[tokio::test]
async fn a_silent_bridge_is_believed_no_more_and_one_that_is_back_is() {
    let mut world = World::start("zmq-silent", "").await;
    let silent = world.fact("bridge_silent").await;
    for kill in [false, true] {
        if kill {
            world.bridge.kill();
        } else {
            // Its connections stay open.
            world.bridge.signal("-STOP");
        }
        let reason = if kill { "detached" } else { "bridge_silent" };
        world.until("without a bridge", |status| stands(status, "none", reason)).await;
        world.burst(30).await;
        if kill {
            world.bridge.run();
        } else {
            world.bridge.signal("-CONT");
        }
        world.is_true().await;
    }
    assert_eq!(world.fact("bridge_silent").await, silent + 2);
    world.end();
}

/// The index can read every message: only the bridge knows that a store is missing in one.
#[tokio::test]
async fn a_store_that_the_bridge_could_not_read_is_missing_for_the_index_too() {
    let world = World::start("zmq-unread", "").await;
    world.engine.fault(&world.client, json!({"fault": "undecodable_event"})).await;
    world.burst(8).await;
    // The envelope says what the bridge could not read.
    world.is_lower_bound("store_undecodable").await;
    assert_eq!(last_said(&world).as_deref(), Some("lower_bound"));
    // A flush proves the whole view again.
    world.engine.fault(&world.client, json!({"fault": "clear"})).await;
    world.burst(8).await;
    world.is_true().await;
    world.end();
}

#[tokio::test]
async fn a_batch_that_the_bridge_could_not_read_is_a_lower_bound() {
    let world = World::start("zmq-poison", "").await;
    world.engine.fault(&world.client, json!({"fault": "poison", "count": 1})).await;
    world.burst(8).await;
    let status = world.until("incomplete", |status| status["trust"] == "lower_bound").await;
    world.is_lower_bound(status["reason"].as_str().unwrap()).await;
    world.end();
}

#[tokio::test]
async fn a_new_life_has_its_own_word_in_the_log() {
    let world = World::start("zmq-word", "").await;
    let before = world.is_true().await;
    world.engine.fault(&world.client, json!({"fault": "restart"})).await;
    world.burst(60).await;
    world.until("in another life", |status| status["epoch"] != before["epoch"]).await;
    world.is_true().await;
    assert_eq!(last_said(&world).as_deref(), Some("exact"));
    world.end();
}
