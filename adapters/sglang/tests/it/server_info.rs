//! What engines say of their sockets.

use kvbridge_adapters_sglang::server_info::{
    EndpointBase, SERVER_INFO_BYTES_MAX, ServerInfoError, read,
};
use serde_json::{Value, json};

/// What a 0.5.23 server answered, beside some hundred keys of its configuration.
const SEEN: &str = r#"{"publisher":"zmq","endpoint_host":"*","endpoint_port_base":5657,
    "topic":"kv@sgl","block_size":16,"dp_size":1,"replay_endpoint_port_base":5658}"#;

fn seen() -> Value {
    serde_json::from_str(SEEN).expect("it was seen")
}

fn answer(events: &Value) -> Vec<u8> {
    json!({
        "model_path": "/models/tiny", "served_model_name": "tiny", "page_size": 16, "tp_size": 1,
        "speculative_algorithm": null, "enable_hierarchical_cache": false, "kv_events": events,
        "internal_states": [{"last_gen_throughput": 0.0}], "version": "0.5.23",
    })
    .to_string()
    .into_bytes()
}

fn with(field: &str, value: Value) -> Vec<u8> {
    let mut events = seen();
    events[field] = value;
    answer(&events)
}

#[test]
fn answer_of_a_real_server() {
    let info = read(&answer(&seen())).expect("it is read");
    let base = |port| EndpointBase { host: None, port };
    assert_eq!(
        (info.live.clone(), info.replay, info.snapshot),
        (base(5657), Some(base(5658)), None)
    );
    assert_eq!((info.topic.as_str(), info.block_size, info.dp_size), ("kv@sgl", 16, 1));
    assert_eq!((info.model.as_deref(), info.bigram), (Some("tiny"), false));
    assert_eq!(info.host_tier, Some(false));
    assert_eq!((info.live.port_of(2), info.live.port_of(70_000)), (Some(5659), None));
}

#[test]
fn drafts_tell_hosts_and_a_snapshot_socket() {
    let mut events = seen();
    events["endpoint_host"] = json!("10.0.0.7");
    events["replay_endpoint_host"] = json!("::");
    events["snapshot_endpoint_host"] = json!("10.0.0.8");
    events["snapshot_endpoint_port_base"] = json!(5700);
    let info = read(&answer(&events)).expect("it is read");
    let base = |host: &str, port| EndpointBase { host: Some(host.to_owned()), port };
    assert_eq!(info.live, base("10.0.0.7", 5657));
    assert_eq!(info.replay, Some(base("10.0.0.7", 5658)), "a wildcard is the publisher's host");
    assert_eq!(info.snapshot, Some(base("10.0.0.8", 5700)));
}

#[test]
fn pairs_and_tiers_are_told_beside_the_events() {
    let of = |algorithm: &str| {
        let body = json!({"kv_events": seen(), "speculative_algorithm": algorithm,
            "enable_hierarchical_cache": true, "model_path": "m"});
        read(body.to_string().as_bytes()).expect("it is read")
    };
    assert!(of("EAGLE3").bigram && !of("NGRAM").bigram);
    assert_eq!((of("EAGLE").model.as_deref(), of("EAGLE").host_tier), (Some("m"), Some(true)));
}

#[test]
fn what_is_not_said_is_absent() {
    let body = json!({"kv_events": {"publisher": "zmq", "endpoint_port_base": 1, "block_size": 1},
        "served_model_name": 7});
    let info = read(body.to_string().as_bytes()).expect("it is read");
    assert_eq!(
        (info.dp_size, info.topic.as_str(), info.model, info.host_tier),
        (1, "", None, None)
    );
}

#[test]
fn every_refusal_has_its_name() {
    let field = |field| Err(ServerInfoError::Field { field });
    let table = [
        (b"[]".to_vec(), Err(ServerInfoError::NotAnObject)),
        (b"{\"kv_events\":".to_vec(), Err(ServerInfoError::NotAnObject)),
        (b"{}".to_vec(), Err(ServerInfoError::NotPublishing)),
        (answer(&Value::Null), Err(ServerInfoError::NotPublishing)),
        (with("publisher", json!("null")), Err(ServerInfoError::NotPublishing)),
        (with("publisher", json!("nats")), Err(ServerInfoError::OtherPublisher)),
        (with("publisher", json!(1)), field("publisher")),
        (with("endpoint_port_base", Value::Null), field("endpoint_port_base")),
        (with("endpoint_port_base", json!(0)), field("endpoint_port_base")),
        (with("endpoint_port_base", json!(65_536)), field("endpoint_port_base")),
        (with("replay_endpoint_port_base", json!("5658")), field("replay_endpoint_port_base")),
        (with("endpoint_host", json!("x".repeat(5_000))), field("endpoint_host")),
        (with("topic", json!(["kv"])), field("topic")),
        (with("block_size", json!(0)), field("block_size")),
        (with("dp_size", json!(0)), field("dp_size")),
        (with("dp_size", json!(5_000)), Err(ServerInfoError::Ranks { came: 5_000 })),
        (
            vec![b' '; SERVER_INFO_BYTES_MAX + 1],
            Err(ServerInfoError::TooLarge { bytes: (1 << 20) + 1 }),
        ),
    ];
    for (body, expected) in table {
        let text = String::from_utf8_lossy(&body).chars().take(300).collect::<String>();
        assert_eq!(read(&body), expected, "{text}");
    }
    let mut events = seen();
    events["dp_size"] = json!(8);
    events["replay_endpoint_port_base"] = json!(65_530);
    let field = "replay_endpoint_port_base";
    assert_eq!(read(&answer(&events)), Err(ServerInfoError::Ports { field }));
}
