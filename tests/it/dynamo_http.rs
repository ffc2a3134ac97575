//! The HTTP of Dynamo's indexer as that indexer answers it: its answers to everything that
//! `tests/sinks/dynamo_http.py` asks were recorded, and ours are the same.

use serde_json::{Value, json};

use crate::{
    bridge::Bridge,
    harness::until,
    peer::{Peer, capture, scratch},
};

/// What the indexer 1.6.1 answered.
fn golden() -> Value {
    serde_json::from_str(include_str!("../fixtures/dynamo-indexer-1.6.1.json")).unwrap()
}

/// A bridge without a source that answers the indexer's clients, and where.
fn bridge(name: &str) -> (Bridge, String) {
    let state = scratch(&format!("{name}_state"));
    if state.exists() {
        std::fs::remove_dir_all(&state).unwrap();
    }
    let config = format!(
        "[state]\ndir = {state:?}\n[compat.dynamo]\nlisten = \"127.0.0.1:0\"\n\
         [recovery]\nidle_probe = \"1s\"\n"
    );
    let mut bridge = Bridge::run_silent(name, &config);
    let line = bridge.line();
    let url = line.trim().split_once("HTTP of Dynamo's indexer on ").expect("a banner").1;
    let url = url.to_owned();
    (bridge, url)
}

fn send(bridge: &Bridge, url: &str, body: Option<String>) -> (u16, Value) {
    let request = match body {
        Some(body) => bridge.client.post(url).body(body),
        None => bridge.client.get(url),
    };
    let (status, text) = bridge.ask(request);
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

fn registration(peer: &Peer) -> Value {
    json!({
        "instance_id": 7, "endpoint": peer.live(), "model_name": "m", "block_size": 32,
        "replay_endpoint": peer.replay(),
    })
}

/// A dump as a set: the order and numbers of events say nothing.
fn blocks(dump: &Value) -> Vec<String> {
    let tree = &dump["m:default"];
    let events = tree["events"].as_array().unwrap().iter();
    let of = |event: &Value| {
        let (inner, stored) = (&event["event"], &event["event"]["data"]["stored"]);
        let blocks = stored["blocks"].as_array().unwrap().clone();
        let place = format!(
            "{} {} {} {}",
            tree["block_size"], event["worker_id"], event["storage_tier"], inner["dp_rank"]
        );
        let mut parent = stored["parent_hash"].clone();
        let tell = |block: Value| {
            let hash = block["block_hash"].clone();
            let before = std::mem::replace(&mut parent, hash.clone());
            format!("{place} {before} {hash} {}", block["tokens_hash"])
        };
        blocks.into_iter().map(tell).collect::<Vec<_>>()
    };
    let mut blocks: Vec<String> = events.flat_map(of).collect();
    blocks.sort();
    blocks
}

#[test]
fn a_client_of_the_indexer_gets_the_indexers_answers() {
    let golden = golden();
    let batches = golden["batches"].as_u64().unwrap();
    let mut peer = Peer::play(&capture("0.32.0-basic"), &[]);
    let (bridge, url) = bridge("dynamo_http");
    let post = |path: &str, body: String| send(&bridge, &format!("{url}{path}"), Some(body));
    let get = |path: &str| send(&bridge, &format!("{url}{path}"), None);
    assert_eq!(post("/register", registration(&peer).to_string()), (201, json!({"status": "ok"})));
    peer.wait_subscriber();
    peer.publish(batches);
    bridge.reaches("exact", batches);
    bridge.until_usable(batches);

    let queries = golden["queries"].as_array().unwrap();
    assert!(queries.len() > 100, "the questions are not found");
    for query in queries {
        let answer = post(query[0].as_str().unwrap(), query[1].to_string());
        assert_eq!(answer, (200, query[2].clone()), "{} {}", query[0], query[1]);
    }
    assert!(!blocks(&golden["dump"]).is_empty());
    assert_eq!(blocks(&get("/dump").1), blocks(&golden["dump"]));

    let mut workers = get("/workers").1;
    assert_eq!(workers[0].as_object_mut().unwrap().remove("instance"), Some(json!("7")));
    let mut wanted = golden["workers"].clone();
    wanted[0]["endpoints"]["0"] = json!(peer.live());
    wanted[0]["listeners"]["0"]["endpoint"] = json!(peer.live());
    assert_eq!(workers, wanted);

    for refusal in golden["refusals"].as_array().unwrap() {
        let (path, mut body) = (refusal[0].as_str().unwrap(), refusal[1].clone());
        if body.get("endpoint").is_some_and(|it| it.as_str().unwrap().starts_with("tcp://")) {
            body["endpoint"] = json!(peer.live());
        }
        let text = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
        let (status, answer) = post(path, text);
        assert_eq!(u64::from(status), refusal[2].as_u64().unwrap(), "{path} {body}: {answer}");
        assert!(answer["error"].is_string(), "{path} {body}: {answer}");
    }

    // Registered, it outlives nothing but what took it away.
    let unregister = json!({"instance_id": 7, "model_name": "m"}).to_string();
    assert_eq!(post("/unregister", unregister.clone()), (200, json!({"status": "ok"})));
    until("the model to be gone", || {
        (post("/query", queries[0][1].to_string()).0 == 404).then_some(())
    });
    assert_eq!(post("/unregister", unregister).0, 404);
    assert_eq!(get("/workers"), (200, json!([])));
    assert_eq!(get("/dump"), (200, json!({})));
}

#[test]
fn what_the_indexer_keeps_after_a_restart_is_gone_here() {
    let mut peer = Peer::play(&capture("0.32.0-basic"), &[]);
    let (bridge, url) = bridge("dynamo_http_restart");
    let post =
        |path: &str, body: Value| send(&bridge, &format!("{url}{path}"), Some(body.to_string()));
    assert_eq!(post("/register", registration(&peer)).0, 201);
    peer.wait_subscriber();
    peer.publish(62);
    bridge.reaches("exact", 62);
    let dumped = || blocks(&send(&bridge, &format!("{url}/dump"), None).1);
    let before = dumped();
    // Numbers begin below those of before: the indexer drops them all and keeps the old blocks.
    peer.restart(62, 0);
    peer.wait_subscriber();
    peer.publish(4);
    bridge.reaches("exact", 4);
    let after = dumped();
    assert!(!after.is_empty() && after.iter().all(|block| !before.contains(block)), "{after:?}");
}
