//! Events for many consumers: each folds what the engine holds, at its own pace, over loss,
//! restart and resync; and a reader of engines that are drained reads them as one.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    thread,
};

use serde_json::{Value, json};

use crate::{
    bridge::Bridge,
    harness::until,
    oracle::{Life, State, Text, lives},
    peer::{Peer, capture, scratch},
};

const KEY: &str = "m.engine=3A8000.0";

/// What a consumer makes of its answers.
struct Consumer<'a> {
    bridge: &'a Bridge,
    key: &'a str,
    name: &'a str,
    blocks: BTreeMap<u64, Option<u64>>,
    events: u64,
    first: Value,
}

impl<'a> Consumer<'a> {
    fn new(bridge: &'a Bridge, name: &'a str) -> Consumer<'a> {
        Consumer { bridge, key: KEY, name, blocks: BTreeMap::new(), events: 0, first: Value::Null }
    }

    /// Asks until there is nothing more. Every event fits what came before it.
    fn read(&mut self) {
        loop {
            let path = format!("/engines/{}/kv_cache_events?consumer={}", self.key, self.name);
            let (status, answer) = self.bridge.post(&path, "");
            assert_eq!(status, 200, "{answer}");
            let events = answer.as_array().unwrap();
            if events.is_empty() {
                return;
            }
            for event in events {
                if self.events == 0 {
                    self.first = event.clone();
                }
                assert_eq!(event["event_id"], self.events, "a hole in the numbers");
                self.events += 1;
                self.fold(&event["data"]);
            }
        }
    }

    fn fold(&mut self, data: &Value) {
        match data.text("type").as_str() {
            "created" => assert_eq!(self.events, 1, "the first of all"),
            "stored" => {
                let mut parent = data["parent_hash"].as_u64();
                for block in data.list("blocks") {
                    let hash = block["block_hash"].as_u64().unwrap();
                    assert!(parent.is_none_or(|it| self.blocks.contains_key(&it)), "no place");
                    assert_eq!(self.blocks.insert(hash, parent), None, "stored twice");
                    assert_eq!(block["tokens"], json!([]), "nobody asked for prompts");
                    parent = Some(hash);
                }
            }
            "removed" => {
                for hash in data.list("block_hashes") {
                    let hash = hash.as_u64().unwrap();
                    assert!(self.blocks.remove(&hash).is_some(), "removed and not known");
                    let is_parent = self.blocks.values().any(|parent| *parent == Some(hash));
                    assert!(!is_parent, "removed before what is behind it");
                }
            }
            other => panic!("no rule for {other}"),
        }
    }

    /// Waits until what it folds is what the engine holds.
    fn until_holds(&mut self, wanted: &BTreeSet<u64>) {
        let name = self.name;
        until(&format!("{name} to hold what the engine holds"), || {
            self.read();
            self.blocks.keys().eq(wanted).then_some(())
        });
    }
}

/// The blocks that a prefix can reach, by the 64 bits that name them.
fn reachable(state: &State) -> BTreeSet<u64> {
    let places: BTreeMap<&String, &String> =
        state.places().map(|(hash, place)| (hash, &place.parent)).collect();
    let is_whole = |hash: &&String| {
        let mut at = *hash;
        loop {
            match places.get(at) {
                Some(parent) if parent.as_str() == "root" => return true,
                Some(parent) => at = parent,
                None => return false,
            }
        }
    };
    let number = |hash: &String| u64::from_str_radix(&hash[hash.len() - 16..], 16).unwrap();
    places.keys().copied().filter(is_whole).map(number).collect()
}

fn held(life: &Life, batches: u64) -> BTreeSet<u64> {
    reachable(&life.fold(0..batches))
}

#[test]
fn each_consumer_folds_what_the_engine_holds_over_slowness_restart_and_resync() {
    let lives = lives("0.32.0-basic");
    let (first, second) = (&lives[0], &lives[1]);
    let mut peer = Peer::play(&capture("0.32.0-basic"), &[]);
    let config = "[compat.kv_cache_events]\nsteps = 16\ngrace = \"30s\"\nconsumers_max = 3\n";
    let bridge = Bridge::run("fan_out", &[peer.source()], config);
    peer.wait_subscriber();
    peer.publish(20);
    bridge.reaches("exact", 20);
    let (mut quick, mut slow) = (Consumer::new(&bridge, "quick"), Consumer::new(&bridge, "slow"));
    quick.until_holds(&held(first, 20));
    slow.until_holds(&held(first, 20));
    assert_eq!(quick.first["data"]["type"], "created");
    for batches in 21..=first.len() {
        peer.publish(1);
        bridge.reaches("exact", batches);
        quick.until_holds(&held(first, batches));
    }
    let whole = held(first, first.len());
    assert!(whole.len() > 10);
    assert!(bridge.metric("kvbridge_fan_out_behind_total", KEY) > 0, "16 steps were too few");
    slow.until_holds(&whole);
    let mut late = Consumer::new(&bridge, "late");
    late.until_holds(&whole);
    assert_eq!(late.first["data"]["type"], "created");
    let refused = bridge.post(&format!("/engines/{KEY}/kv_cache_events?consumer=more"), "");
    assert_eq!((refused.0, refused.1.text("reason").as_str()), (503, "too_many_consumers"));

    // Another life: what is gone is taken back, the numbers go on.
    peer.restart(first.len(), 0);
    peer.wait_subscriber();
    peer.publish(second.len());
    bridge.reaches("exact", second.len());
    for consumer in [&mut quick, &mut slow, &mut late] {
        consumer.until_holds(&held(second, second.len()));
    }
    // What a resync proves to be the same is not told again.
    let before = quick.events;
    let exact =
        |said: &[(String, Value)]| said.iter().filter(|it| it.1["trust"] == "exact").count();
    let given = exact(&bridge.said());
    assert_eq!(bridge.post(&format!("/v1/replicas/{KEY}/resync"), "").0, 202);
    bridge.heard("trust that is given back", |said| (exact(said) > given).then_some(()));
    quick.until_holds(&held(second, second.len()));
    assert_eq!(quick.events, before, "nothing changed");
}

#[test]
fn an_instance_is_told_with_its_ranks_and_refusals_are_named() {
    let mut peer = Peer::play(&capture("0.32.0-basic"), &[]);
    let config = "[compat.kv_cache_events]\n";
    let bridge = Bridge::run("fan_out_instance", &[peer.source()], config);
    peer.wait_subscriber();
    peer.publish(20);
    bridge.reaches("exact", 20);
    let mut consumer = Consumer { key: "m.engine=3A8000", ..Consumer::new(&bridge, "a") };
    consumer.until_holds(&held(&lives("0.32.0-basic")[0], 20));
    assert_eq!(consumer.first["attention_dp_rank"], 0);
    let path = |rest: &str| format!("/engines/{rest}");
    for (path, refusal) in [
        (path("nobody/kv_cache_events?consumer=a"), (404, "unknown_replica")),
        (path("m.engine/kv_cache_events?consumer=a"), (404, "unknown_replica")),
        (format!("/engines/{KEY}/kv_cache_events"), (400, "no_consumer")),
        (format!("/engines/{KEY}/kv_cache_events?consumer="), (400, "no_consumer")),
        (format!("/engines/{KEY}/kv_cache_events?colour=red"), (400, "unknown_parameter")),
        (format!("/engines/{KEY}/kv_cache_events?consumer=a&tokens=true"), (403, "scope_missing")),
    ] {
        let (status, problem) = bridge.post(&path, "");
        assert_eq!((status, problem.text("reason").as_str()), refusal, "{path}");
    }
    let off = Bridge::run("fan_out_off", &[peer.source()], "");
    let (status, problem) = off.post(&format!("/engines/{KEY}/kv_cache_events?consumer=a"), "");
    assert_eq!((status, problem.text("reason").as_str()), (409, "kv_events_off"));
}

#[test]
fn what_nobody_vouches_for_is_taken_back_and_told_again_when_it_is_proven() {
    let mut peer = Peer::play(&capture("0.32.0-basic"), &[]);
    let config = "[compat.kv_cache_events]\ngrace = \"50ms\"\n\
                  [recovery]\nidle_probe = \"100ms\"\naudit = \"100ms\"\nlease = \"2s\"\n\
                  replay_deadline = \"300ms\"\n";
    let bridge = Bridge::run("fan_out_trust", &[peer.source()], config);
    peer.wait_subscriber();
    peer.publish(20);
    bridge.reaches("exact", 20);
    let wanted = held(&lives("0.32.0-basic")[0], 20);
    let mut consumer = Consumer::new(&bridge, "a");
    consumer.until_holds(&wanted);
    // A journal that answers nothing: no probe is a proof any more.
    peer.set(&json!({"stall_after": 0}));
    consumer.until_holds(&BTreeSet::new());
    peer.set(&json!({"stall_after": null}));
    consumer.until_holds(&wanted);
}

const TOKEN: &str = "fan-out-fan-out-fan-out";

/// A server as a proxy in front of an engine makes it: the one path is the bridge's.
fn proxy(bridge: &Bridge) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let address = bridge.url.strip_prefix("http://").unwrap().to_owned();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let head: Vec<String> = BufReader::new(&stream)
                .lines()
                .map_while(Result::ok)
                .take_while(|line| !line.is_empty())
                .collect();
            let Some(line) = head.first() else { continue };
            let body = if line.contains("/server_info") {
                r#"{"tokens_per_block": 32}"#.to_owned()
            } else {
                forward(&address)
            };
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
            let length = body.len();
            // Whoever asked may have gone.
            drop(write!(stream, "{head}\r\ncontent-length: {length}\r\n\r\n{body}"));
        }
    });
    url
}

/// What the bridge tells the reader.
fn forward(address: &str) -> String {
    let Ok(mut stream) = TcpStream::connect(address) else { return "[]".to_owned() };
    write!(
        stream,
        "POST /engines/{KEY}/kv_cache_events?consumer=reader&tokens=true HTTP/1.1\r\nhost: x\r\n\
         authorization: Bearer {TOKEN}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    body.to_owned()
}

/// A prompt that the recording leaves something of, and how many tokens: what an indexer that is
/// not ours answered.
fn asked_of_another() -> (Value, Value) {
    let golden = include_str!("../fixtures/dynamo-indexer-1.6.1.json");
    let golden: Value = serde_json::from_str(golden).unwrap();
    let queries = golden.list("queries").iter();
    let mut held = queries.filter_map(|query| {
        let tokens = query[2]["scores"].get("7")?["0"].clone();
        (query[0] == "/query").then(|| (query[1]["token_ids"].clone(), tokens))
    });
    held.next().unwrap()
}

#[test]
fn a_reader_of_drained_engines_reads_them_as_one() {
    let mut peer = Peer::play(&capture("0.32.0-basic"), &[]);
    let tokens = scratch("fan_out_tokens.toml");
    let scopes = "[\"read\", \"tokens\", \"write\"]";
    std::fs::write(&tokens, format!("[[tokens]]\ntoken = \"{TOKEN}\"\nscopes = {scopes}\n"))
        .unwrap();
    let config = format!(
        "[http]\ntokens_file = {tokens:?}\n[compat.kv_cache_events]\ntokens = true\n\
         [[sources]]\nengine = \"vllm\"\nmodel = \"m\"\ninstance = \"engine:8000\"\n\
         endpoint = \"{}\"\nreplay = \"{}\"\n",
        peer.live(),
        peer.replay()
    );
    let mut bridge = Bridge::run_silent("fan_out_source", &config);
    bridge.sign_in(TOKEN);
    peer.wait_subscriber();
    peer.publish(20);
    bridge.reaches("exact", 20);
    let source = format!(
        "[[sources]]\nengine = \"trtllm\"\nmodel = \"m\"\ninstance = \"reader\"\nurl = \"{}\"\n",
        proxy(&bridge)
    );
    let reader = Bridge::run_silent("fan_out_reader", &source);
    let life = &lives("0.32.0-basic")[0];
    let holds = |wanted: &BTreeSet<u64>| {
        until("the reader to hold what the engine holds", || {
            let standing = reader.replicas().first()?.clone();
            let text = reader.get("/v1/replicas/m.reader.0/snapshot");
            let records = text.lines().filter(|line| line.contains("\"hash\""));
            let hash = |line: &str| {
                let record: Value = serde_json::from_str(line).unwrap();
                u64::from_str_radix(&record.text("hash"), 16).unwrap()
            };
            let blocks: BTreeSet<u64> = records.map(hash).collect();
            // As an engine of this form is believed that may drop blocks without a word.
            (standing["trust"] == "lower_bound" && blocks == *wanted).then_some(())
        });
    };
    holds(&held(life, 20));
    peer.publish(life.len() - 20);
    bridge.reaches("exact", life.len());
    holds(&held(life, life.len()));
    // It matches what it was told, by its tokens.
    let (ids, tokens) = asked_of_another();
    let ask = json!({"model": "m", "token_ids": ids, "accept": "lower_bound"}).to_string();
    let matched =
        |of: &Bridge| of.post("/v1/match", &ask).1["replicas"][0]["matched_tokens"].clone();
    assert_eq!(matched(&bridge), tokens);
    until("the same match", || (matched(&reader) == tokens).then_some(()));
}

#[test]
fn a_fan_out_that_fell_behind_rings_and_tells_all_again() {
    let life = &lives("0.32.0-basic")[0];
    let mut peer = Peer::play(&capture("0.32.0-basic"), &[]);
    let config = "[compat.kv_cache_events]\nqueue = 1\ngrace = \"30s\"\n";
    let bridge = Bridge::run("fan_out_lagging", &[peer.source()], config);
    peer.wait_subscriber();
    peer.publish(life.len());
    bridge.reaches("exact", life.len());
    // One place for messages, and some in a row: a resync withdraws, tells and vouches.
    until("the alarm", || {
        let alarms: Value = serde_json::from_str(&bridge.get("/v1/alarms")).unwrap();
        let rings = alarms.list("alarms").iter().any(|it| it["alarm"] == "fan_out_lagging");
        if !rings {
            bridge.post(&format!("/v1/replicas/{KEY}/resync"), "");
        }
        rings.then_some(())
    });
    Consumer::new(&bridge, "a").until_holds(&held(life, life.len()));
}
