//! The examples and the tutorial, followed as a reader of them would: against a real server, a real
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
fn the_consumer_in_rust_has_what_the_engine_has() {
    let server = Server::started("example-consumer-rust");
    let (_fake, engine_at) = engine("127.0.0.1:0", "");
    let source = ["--vllm".to_owned(), format!("http://{engine_at}")];
    let (_bridge, address) = bridge(Some(&server), &source);
    let prompt: Vec<u32> = (7000..7064).collect();
    assert_eq!(complete(&engine_at, &prompt).0, 200);
    let stands = caught_up(&address, &engine_at, 0);
    let program =
        Path::new(env!("CARGO_BIN_EXE_kvbridge")).parent().unwrap().join("examples/consumer");
    assert!(
        program.is_file(),
        "cargo build --examples makes it, and so does cargo test without --test"
    );
    let said = Command::new(program)
        .args([&server.url(), "fake"])
        .args(prompt.iter().map(u32::to_string))
        .output()
        .unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let key = stands["key"].as_str().unwrap();
    let expected = format!("{key}: 64 tokens, trust exact (contiguous)\n");
    assert_eq!(String::from_utf8(said.stdout).unwrap(), expected);
}

/// Path and body of every request that the tutorial makes of that port, in order.
fn tutored(port: &str) -> Vec<(String, String)> {
    let page = include_str!("../../docs/tutorial.md");
    let at = format!("http://127.0.0.1:{port}");
    let requests = page.split("curl ").skip(1).filter_map(|request| {
        let (_, path) = request.split_once(&at)?;
        let path = path.split([' ', '`', '\n']).next().unwrap().to_owned();
        // Of this request alone: in a table another one may follow in the text.
        let body =
            request.split_once("-d '").map_or("", |(_, body)| body.split('\'').next().unwrap());
        Some((path, body.to_owned()))
    });
    requests.collect()
}

#[test]
fn the_tutorial_is_seen_as_it_is_told() {
    let page = include_str!("../../docs/tutorial.md");
    assert!(page.contains("\nkvbridge fake-engine --engine vllm --model llama\n"));
    assert!(page.contains("\nkvbridge run --vllm http://127.0.0.1:8000\n"));
    let [prompt, fault, clear] = tutored("8000").try_into().expect("prompt, fault, clear");
    let [question] = tutored("8090").try_into().expect("one match");
    let (mut fake, engine_at) = engine("127.0.0.1:0", "--model llama");
    let source = ["--vllm".to_owned(), format!("http://{engine_at}")];
    let (_bridge, address) = bridge(None, &source);
    let post = |to: &str, (path, body): &(String, String)| {
        let (status, answer) = send(to, ("POST", path), body).unwrap();
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    };
    let standing = || replicas(&address).pop();
    let joining = || standing().filter(|it| it["reason"] == "joining");
    assert_eq!(until("nothing to prove", joining)["trust"], "none");
    post(&engine_at, &prompt);
    let first = caught_up(&address, &engine_at, 0);
    let answer: Value = serde_json::from_str(&post(&address, &question)).unwrap();
    assert_eq!(answer["replicas"][0]["matched_tokens"], 32, "{answer}");
    post(&engine_at, &fault);
    let fact = |name: &str| {
        let (_, metrics) = send(&address, ("GET", "/metrics"), "").unwrap();
        let label = format!("fact=\"{name}\"");
        metrics.lines().any(|line| line.contains(&label) && !line.ends_with(" 0"))
    };
    let mut first_token = 0;
    until("a gap that is closed", || {
        let (path, body) = &prompt;
        // Another prompt each time: one that is held stores nothing.
        first_token += 1000;
        let tokens: Vec<u32> = (first_token..first_token + 32).collect();
        let mut body: Value = serde_json::from_str(body).unwrap();
        body["prompt"] = json!(tokens);
        post(&engine_at, &(path.clone(), body.to_string()));
        (fact("gap") && fact("replayed")).then_some(())
    });
    assert_eq!(caught_up(&address, &engine_at, 0)["epoch"], first["epoch"]);
    post(&engine_at, &clear);
    post(&engine_at, &prompt);
    let flushed = || standing().filter(|it| it["reason"] == "flushed");
    let standing = until("a view that starts over", flushed);
    assert_eq!((&standing["trust"], &standing["blocks"]), (&json!("exact"), &json!({"device": 2})));
    fake.kill();
    let (_fake, _) = engine(&engine_at, "--model llama");
    post(&engine_at, &prompt);
    caught_up(&address, &engine_at, first["epoch"].as_u64().unwrap());
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
