//! The examples in other languages, run as a reader of them would: against a real server, a real
//! bridge and modelled engines.

use std::{path::Path, process::Command};

use serde_json::{Value, json};

use crate::{
    fake_engine::started::fake_engine,
    harness::{python, send, until},
    nats_server::Server,
    program::{Running, kvbridge},
};

fn example(name: &str) -> Command {
    let mut command = Command::new(python());
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name));
    command
}

/// A fake engine on a free port, or on one that it had before, and its `host:port`.
fn engine(http: &str, args: &str) -> (Running, String) {
    let (fake, ports) = fake_engine("vllm", http, args);
    let url = ports["http"].as_str().unwrap();
    (fake, url.strip_prefix("http://").unwrap().to_owned())
}

/// A bridge with these options, and its `host:port`.
fn bridge(bus: Option<&Server>, options: &[String]) -> (Running, String) {
    let mut command = kvbridge();
    command.args(["run", "--listen", "127.0.0.1:0"]).args(options);
    // An engine that starts anew publishes elsewhere.
    command.env("KVBRIDGE__DISCOVERY__REFRESH", "200ms");
    if let Some(server) = bus {
        command.env("KVBRIDGE__BUS__KIND", "nats").env("KVBRIDGE__BUS__URL", server.url());
    }
    let mut bridge = Running::start(&mut command);
    let address = bridge.line().split_once("http://").unwrap().1.to_owned();
    (bridge, address)
}

/// One completion, by whoever serves it.
fn complete(address: &str, prompt: &[u32]) -> (u16, String) {
    let body = json!({"model": "fake", "prompt": prompt, "max_tokens": 1}).to_string();
    send(address, ("POST", "/v1/completions"), &body).unwrap()
}

fn replicas(bridge: &str) -> Vec<Value> {
    let (_, body) = send(bridge, ("GET", "/v1/replicas"), "").unwrap();
    let mut body: Value = serde_json::from_str(&body).unwrap();
    serde_json::from_value(body["replicas"].take()).unwrap()
}

/// What the consumer says of its replicas once all are exact and caught up.
fn consumed(server: &Server) -> Vec<Value> {
    let mut command = example("consumer.py");
    command.args(["--nats", &server.url(), "--model", "fake", "--once", "--patience", "60"]);
    let said = command.output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let said = String::from_utf8(said.stdout).unwrap();
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What an engine really holds: a head, and all copies.
fn truth(engine: &str) -> (Value, u64) {
    let (_, truth) = send(engine, ("GET", "/truth"), "").unwrap();
    let lines = truth.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let lines: Vec<Value> = lines.collect();
    let copies = lines.iter().filter_map(|line| line["count"].as_u64()).sum();
    (lines[0].clone(), copies)
}

/// Waits until the bridge has all that the engine said.
fn caught_up(bridge: &str, engine: &str, epoch_above: u64) -> Value {
    until("exact at the engine's end", || {
        let (head, standing) = (truth(engine).0, replicas(bridge).pop()?);
        let same = standing["trust"] == "exact" && standing["next_seq"] == head["next_seq"];
        (same && standing["epoch"].as_u64()? > epoch_above).then_some(standing)
    })
}

#[test]
fn the_consumer_in_python_has_what_the_engine_has() {
    let server = Server::started("example-consumer");
    let (mut fake, engine_at) = engine("127.0.0.1:0", "--blocks 64");
    let source = ["--vllm".to_owned(), format!("http://{engine_at}")];
    let (_bridge, address) = bridge(Some(&server), &source);
    // More than the cache holds: some of it is evicted again.
    for prompt in 0..20 {
        let tokens: Vec<u32> = (0..64).map(|token| prompt * 1000 + token).collect();
        assert_eq!(complete(&engine_at, &tokens).0, 200);
    }
    let stands = caught_up(&address, &engine_at, 0);
    let said = consumed(&server);
    let [view] = said.as_slice() else { panic!("{said:?}") };
    assert_eq!((&view["key"], &view["trust"]), (&stands["key"], &json!("exact")));
    assert_eq!((&view["epoch"], &view["next_seq"]), (&stands["epoch"], &stands["next_seq"]));
    let held = truth(&engine_at).1;
    assert!(held > 20, "there is something to compare");
    assert_eq!(view["copies"], held);
    // Another life of the cache: what the log has of the first one is over.
    fake.kill();
    let (_fake, _) = engine(&engine_at, "--blocks 64");
    let tokens: Vec<u32> = (0..64).collect();
    assert_eq!(complete(&engine_at, &tokens).0, 200);
    let stands = caught_up(&address, &engine_at, stands["epoch"].as_u64().unwrap());
    let view = consumed(&server).pop().unwrap();
    assert_eq!((&view["epoch"], &view["next_seq"]), (&stands["epoch"], &stands["next_seq"]));
    assert_eq!(view["copies"], truth(&engine_at).1);
}

#[test]
fn the_router_in_python_sends_a_conversation_where_its_prefix_is() {
    let engines = [engine("127.0.0.1:0", ""), engine("127.0.0.1:0", "")];
    let sources: Vec<String> = engines
        .iter()
        .flat_map(|(_, http)| ["--vllm".to_owned(), format!("http://{http}")])
        .collect();
    let (mut bridge, address) = bridge(None, &sources);
    let mut command = example("router.py");
    command.args(["--kvbridge", &format!("http://{address}"), "--listen", "127.0.0.1:0"]);
    for (_, http) in &engines {
        command.args(["--engine", http]);
    }
    let mut router = Running::start(&mut command);
    let routed = router.line().split_once("http://").unwrap().1.to_owned();
    let holder = |tokens: &[u32]| {
        let body = json!({"model": "fake", "token_ids": tokens}).to_string();
        let (_, answer) = send(&address, ("POST", "/v1/match"), &body).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let best = answer["replicas"].get(0)?.clone();
        let held = best["usable"] == true && best["matched_tokens"].as_u64()? >= 48;
        held.then(|| best["replica"]["instance"].as_str().unwrap().to_owned())
    };
    let prompt: Vec<u32> = (5000..5064).collect();
    assert_eq!(complete(&routed, &prompt).0, 200);
    let first = until("the prefix is known", || holder(&prompt));
    let served = |engine: &str| {
        let (_, text) = send(engine, ("GET", "/metrics"), "").unwrap();
        let line = text.lines().find(|line| line.starts_with("vllm:prefix_cache_hits_total"));
        line.map_or(0.0, |line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
    };
    for turn in 0..5 {
        let mut longer = prompt.clone();
        longer.extend(std::iter::repeat_n(turn, 16));
        assert_eq!(complete(&routed, &longer).0, 200);
    }
    for (_, http) in &engines {
        let expected = if *http == first { 5.0 * 64.0 } else { 0.0 };
        assert!(served(http) >= expected, "{http} had {} tokens cached", served(http));
        assert!(*http == first || served(http) == 0.0, "a turn went elsewhere");
    }
    let (_, metrics) = send(&address, ("GET", "/metrics"), "").unwrap();
    assert!(metrics.contains("kvbridge_feedback_total{outcome=\"taken\"} 6"), "all were reported");
    // Without kvbridge it routes by load, and answers.
    bridge.kill();
    assert_eq!(complete(&routed, &prompt).0, 200);
    assert_eq!(complete(&routed, &[]).0 / 100, 4, "what is no prompt is refused");
}
