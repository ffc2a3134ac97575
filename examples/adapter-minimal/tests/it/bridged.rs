//! A whole bridge with this engine: its view is what the engine sent, and what was missed for good
//! is known to be missing.

use std::time::Duration;

use kvbridge::{
    Bridge,
    bridge::BridgeError,
    config::SourceFile,
    schemas::{EngineKind, Trust},
};

use crate::engine::Engine;

/// No test waits longer for one thing.
const LIMIT: Duration = Duration::from_secs(60);

/// Quick to connect again, and to give up asking.
const CONFIG: &str = "[limits]\nreconnect_min = \"5ms\"\nreconnect_max = \"20ms\"\n\
                      [recovery]\nreplay_deadline = \"200ms\"\nattempts = 1\n";

/// The chain of blocks `0..count`: block n has hash n + 1 and the tokens n, n.
fn line(seq: u64) -> String {
    let parent = if seq == 0 { "null".to_owned() } else { format!("\"{seq:x}\"") };
    let hash = seq + 1;
    format!(
        r#"{{"seq": {seq}, "stored": [{{"hash": "{hash:x}", "parent": {parent}, "tokens": [{seq}, {seq}]}}]}}"#
    )
}

fn prompt(block_count: u32) -> Vec<u32> {
    (0..block_count).flat_map(|n| [n, n]).collect()
}

fn source(engine: &Engine) -> SourceFile {
    SourceFile {
        engine: Some(adapter_minimal::ENGINE.to_owned()),
        endpoint: Some(format!("tcp://127.0.0.1:{}", engine.live)),
        replay: Some(format!("tcp://127.0.0.1:{}", engine.journal)),
        model: Some("m".to_owned()),
        options: Some(serde_json::from_str(r#"{"block_size": 2}"#).unwrap()),
        ..SourceFile::default()
    }
}

/// Waits until so many tokens of the prompt match with that trust.
async fn until(bridge: &Bridge, what: &str, wanted: impl Fn(u64, Trust) -> bool) {
    let (_, replica) = bridge.fleet().replicas().next().unwrap();
    let looks = async {
        loop {
            let answer = bridge.match_tokens("m", &prompt(8)).ok();
            let replica_answer = answer.as_ref().and_then(|answer| answer.replicas.first());
            let matched = replica_answer.map_or(0, |replica| replica.matched_tokens);
            let trust = replica.status.borrow().trust.device;
            if wanted(matched, trust) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(LIMIT, looks).await.is_ok(), "{what} did not come true");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_view_is_what_was_sent_and_a_gap_ends_exactness() {
    let engine = Engine::start().await;
    for seq in 0..3 {
        engine.publish(seq, &line(seq));
    }
    let builder = Bridge::builder().adapter(adapter_minimal::ENGINE, adapter_minimal::open);
    let builder = builder.config_text(CONFIG).source(source(&engine));
    let bridge = builder.start().await.unwrap();
    engine.read().await;
    // Those before the start are read back, those after it come by themselves.
    engine.publish(3, &line(3));
    until(&bridge, "all of it", |matched, trust| matched == 8 && trust == Trust::Exact).await;
    let (_, replica) = bridge.fleet().replicas().next().unwrap();
    assert_eq!(replica.engine, EngineKind::Other("tiny".to_owned()));
    // A cut that the journal can make good costs nothing.
    engine.cut().await;
    engine.publish(4, &line(4));
    engine.read().await;
    engine.publish(5, &line(5));
    until(&bridge, "what was missed", |matched, trust| matched == 12 && trust == Trust::Exact)
        .await;
    // One that it cannot make good is known.
    engine.cut().await;
    engine.read().await;
    engine.forget_journal();
    engine.publish(9, &line(9));
    until(&bridge, "doubt", |_, trust| trust < Trust::Exact).await;
    bridge.stop().await;
    // A bridge that has ended reads nobody.
    tokio::time::timeout(LIMIT, engine.unread()).await.unwrap();
}

#[tokio::test]
async fn a_name_is_an_adapters_own_and_an_entry_must_be_right() {
    let refused = Bridge::builder().adapter("vllm", adapter_minimal::open).start().await;
    assert!(matches!(refused.err(), Some(BridgeError::Adapter(_))));
    let engine = Engine::start().await;
    let builder = || Bridge::builder().adapter(adapter_minimal::ENGINE, adapter_minimal::open);
    let unknown = SourceFile { engine: Some("tinny".to_owned()), ..source(&engine) };
    let refused = builder().source(unknown).start().await.err().unwrap().to_string();
    assert!(refused.contains("vllm") && refused.contains(", tiny, got"), "{refused}");
    let without_options = SourceFile { options: None, ..source(&engine) };
    let refused = builder().source(without_options).start().await.err().unwrap();
    let refused = format!("{refused:?}");
    assert!(refused.contains("block_size"), "{refused}");
}
