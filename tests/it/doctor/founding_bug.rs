//! The bug that this program was founded on: servers of which no event comes, a router that goes by
//! load alone, and nobody who says so. Each cause that shows on the wire is named; a router that
//! tells what it routed loses next to nothing.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use super::{Fake, Look};
use crate::{
    harness::{send, until},
    program::{Running, kvbridge},
};

const SERVERS: usize = 3;

/// Between two rounds of requests.
const ROUND_EVERY: Duration = Duration::from_millis(100);

/// Three context servers, and a bridge that reads them.
struct World {
    fakes: Vec<Fake>,
    bridge: Running,
    address: String,
}

impl World {
    fn start(engine: &str, args: &str) -> World {
        let fakes: Vec<Fake> = (0..SERVERS).map(|_| Fake::start(engine, args)).collect();
        let mut command = kvbridge();
        command.args(["run", "--listen", "127.0.0.1:0"]);
        for (at, fake) in fakes.iter().enumerate() {
            command.args(["--trtllm", fake.url(), "--model", "fake", "--instance", &name(at)]);
        }
        let mut bridge = Running::start(&mut command);
        let address = bridge.line().split_once("http://").unwrap().1.to_owned();
        World { fakes, bridge, address }
    }

    fn get(&self, path: &str) -> Value {
        let (_, body) = send(&self.address, ("GET", path), "").unwrap();
        serde_json::from_str(&body).unwrap()
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let (status, body) = send(&self.address, ("POST", path), &body.to_string()).unwrap();
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// One request as a router makes it; what the engine generated, and how much it had cached.
    fn serve(&self, at: usize, tokens: &[u32], (conversation, predicted): (u64, u64)) -> Served {
        let body = json!({"model": "fake", "prompt": tokens, "max_tokens": 16});
        let answer = self.fakes[at].post("/v1/completions", &body.to_string());
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
        let output = serde_json::from_value(answer["choices"][0]["token_ids"].clone()).unwrap();
        self.post(
            "/v1/feedback",
            &json!({
                "model": "fake", "instance": name(at), "input_tokens": tokens.len(),
                "cached_tokens": cached, "predicted_tokens": predicted,
                "conversation": conversation.to_string(),
            }),
        );
        Served { output, cached }
    }

    /// Whether the bridge has everything that was said.
    fn is_caught_up(&self) -> bool {
        let replicas = self.get("/v1/replicas");
        self.fakes.iter().enumerate().all(|(at, fake)| {
            let address = fake.url().strip_prefix("http://").unwrap();
            let (_, truth) = send(address, ("GET", "/truth"), "").unwrap();
            let head: Value = serde_json::from_str(truth.lines().next().unwrap()).unwrap();
            let all = replicas["replicas"].as_array().unwrap();
            let of = all.iter().find(|it| it["replica"]["instance"] == name(at)).unwrap();
            of["trust"] == "exact" && of["next_seq"] == head["next_seq"]
        })
    }

    fn end(self) {
        assert_eq!(self.bridge.end(Some("-TERM")).0, 0);
        self.fakes.into_iter().for_each(Fake::end);
    }
}

struct Served {
    output: Vec<u32>,
    cached: u64,
}

fn name(at: usize) -> String {
    format!("ctx{at}:8000")
}

/// The replicas of which that alarm rings, with that cause.
fn rings(world: &World, alarm: &str, cause: Option<&str>) -> usize {
    let alarms = world.get("/v1/alarms");
    let all = alarms["alarms"].as_array().unwrap();
    let is_it = |it: &&Value| it["alarm"] == alarm && it["cause"].as_str() == cause;
    all.iter().filter(is_it).count()
}

/// Traffic begins, and the alarm names the cause for every server; so does doctor.
#[track_caller]
fn is_named(
    (engine, args): (&str, &str),
    fault: Option<&str>,
    meanwhile: impl Fn(&Fake) + Sync,
    (alarm, cause): (&str, Option<&str>),
) {
    let world = World::start(engine, args);
    if let Some(fault) = fault {
        world.fakes.iter().for_each(|fake| fake.fault(fault));
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|threads| {
        let end = EndOnDrop(&is_over);
        let traffic = threads.spawn(|| {
            let mut round = 0_u32;
            while !is_over.load(Ordering::Relaxed) {
                for (at, fake) in world.fakes.iter().enumerate() {
                    let first = round * 100;
                    let tokens: Vec<u32> = (first..first + 64).collect();
                    world.post("/v1/match", &json!({"model": "fake", "token_ids": tokens}));
                    meanwhile(fake);
                    world.serve(at, &tokens, (u64::from(round), 0));
                }
                round += 1;
                thread::park_timeout(ROUND_EVERY);
            }
        });
        until("the alarm with its cause", || {
            assert!(!traffic.is_finished());
            (rings(&world, alarm, cause) == SERVERS).then_some(())
        });
        let look = Look::with(&["--kvbridge", &format!("http://{}", world.address)]);
        let shown = cause.unwrap_or("alarm_critical");
        let found = look.findings.iter().filter(|it| it["id"] == shown).count();
        assert!(found >= SERVERS, "{:#?}", look.findings);
        if cause.is_none() {
            let detail = look.find("alarm_critical")["detail"].as_str().unwrap();
            assert!(detail.starts_with(alarm), "{detail}");
        }
        drop(end);
    });
    world.end();
}

/// Ends the traffic also where a test fails.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

const EMPTY: &str = "view_empty_under_traffic";

#[test]
fn events_that_are_off_ring_with_their_cause() {
    let off = ("trtllm", "--buffer-steps 0");
    is_named(off, None, |_| (), (EMPTY, Some("buffer_off")));
}

#[test]
fn a_server_that_no_request_wakes_rings_with_its_cause() {
    let latch = r#"{"fault": "latch", "on": true}"#;
    let stuck = ("trtllm", "--buffer-steps 0 --drain-wait-ms 300");
    is_named(stuck, Some(latch), |_| (), (EMPTY, Some("drain_latched")));
}

#[test]
fn answers_that_load_holds_back_ring_with_their_cause() {
    let load = |fake: &Fake| fake.fault(r#"{"fault": "burst", "count": 2}"#);
    is_named(("trtllm", "--rps 20"), None, load, (EMPTY, Some("drain_held")));
}

#[test]
fn blocks_of_another_size_than_told_ring_with_their_cause() {
    let other = ("trtllm", "--told-block-size 8 --drain-wait-ms 60");
    is_named(other, None, |_| (), (EMPTY, Some("block_size_mismatch")));
}

#[test]
fn a_server_without_the_path_rings_with_its_cause() {
    let other = ("vllm", "--encoding 0.16");
    is_named(other, None, |_| (), (EMPTY, Some("drain_absent")));
}

#[test]
fn another_reader_rings() {
    let thief = |fake: &Fake| {
        fake.fault(r#"{"fault": "burst", "count": 4}"#);
        fake.post("/kv_cache_events", "");
    };
    let busy = ("trtllm", "--drain-wait-ms 60");
    is_named(busy, None, thief, ("competing_consumer", None));
}

const CONVERSATIONS: u32 = 18;
const TURNS: usize = 5;

/// How a router learns where a conversation is.
#[derive(Clone, Copy, PartialEq)]
enum Learns {
    ByEvents,
    ByBackfill,
    Never,
}

/// Hit rate in permille of conversations that are routed turn by turn.
fn hit_rate(args: &str, learns: Learns) -> u64 {
    let world = World::start("trtllm", &format!("--drain-wait-ms 60 {args}"));
    // What was guessed before a replica is joined goes with what its view held before.
    until("all are joined", || {
        let asked = json!({"model": "fake", "token_ids": [1]});
        let answer = world.post("/v1/match", &asked);
        let all = answer["replicas"].as_array().unwrap();
        let is_joined = |it: &Value| it["usable"] == true || it["reason"] == "joined_late";
        (all.len() == SERVERS && all.iter().all(is_joined)).then_some(())
    });
    let mut conversations: Vec<Vec<u32>> = vec![Vec::new(); CONVERSATIONS as usize];
    let (mut input, mut hit) = (0, 0);
    for turn in 0..TURNS {
        let mut loads = [0_u32; SERVERS];
        for (number, tokens) in (0_u32..).zip(&mut conversations) {
            let first = number * 1_000 + u32::try_from(turn).unwrap() * 100;
            tokens.extend(first..first + 80);
            let candidates = loads.iter().enumerate().map(
                |(at, load)| json!({"instance": name(at), "load": load, "capacity": CONVERSATIONS}),
            );
            let candidates: Vec<Value> = candidates.collect();
            let asked = json!({"model": "fake", "token_ids": tokens, "candidates": candidates});
            let route = world.post("/v1/route", &asked);
            let chosen = route["choice"]["replica"]["instance"].as_str().unwrap();
            let at = (0..SERVERS).find(|at| name(*at) == chosen).unwrap();
            loads[at] += 1;
            let served = world.serve(at, tokens, (u64::from(number), 0));
            input += u64::try_from(tokens.len()).unwrap();
            hit += served.cached;
            tokens.extend(served.output);
            if learns == Learns::ByBackfill {
                let told = json!({"model": "fake", "instance": chosen, "token_ids": tokens});
                assert_eq!(world.post("/v1/backfill", &told)["outcome"], "taken");
            }
        }
        if learns == Learns::ByEvents {
            until("the events of the turn", || world.is_caught_up().then_some(()));
        }
    }
    world.end();
    hit * 1000 / input
}

#[test]
fn a_router_that_tells_what_it_routed_keeps_its_hit_rate() {
    let by_events = hit_rate("", Learns::ByEvents);
    let by_backfill = hit_rate("--buffer-steps 0", Learns::ByBackfill);
    let by_load = hit_rate("--buffer-steps 0", Learns::Never);
    let all = format!("{by_events} by events, {by_backfill} told, {by_load} by load");
    assert!(by_events.abs_diff(by_backfill) <= 10, "{all}");
    assert!(by_load + 100 < by_events, "{all}");
}
