//! Deliberate resyncs and flushes, over HTTP and by the commands, of engines that play along or
//! not.

use std::{fmt::Write as _, path::Path};

use serde_json::{Value, json};

use crate::{
    harness::{Bridge, Engine, configure, folder, send, until},
    program::{Running, kvbridge},
};

/// A journal that does not answer is asked again and again, and trust waits for it.
const PATIENT: &str = "[recovery]\nreplay_deadline = \"200ms\"\nattempts = 1000\n";
/// One that does not answer is given up at once.
const HASTY: &str = "[recovery]\nreplay_deadline = \"200ms\"\nattempts = 1\n";

/// Exit code and output of a command against a bridge.
fn told(bridge: &Bridge, verb: &str, args: &str) -> (i32, String) {
    let mut command = kvbridge();
    command.args([verb, "--url", &bridge.url()]).args(args.split_whitespace());
    Running::start(&mut command).end(None)
}

fn order(bridge: &Bridge, verb: &str, order: &Value) -> String {
    let path = format!("/v1/{verb}");
    let (status, body) = bridge.send("POST", &path, &order.to_string()).unwrap();
    assert_eq!(status, 202, "{body}");
    let job: Value = serde_json::from_str(&body).unwrap();
    format!("/v1/jobs/{}", job["id"])
}

fn job(bridge: &Bridge, path: &str) -> Value {
    serde_json::from_str(&bridge.ask("GET", path).unwrap().1).unwrap()
}

/// State, and reason if there is one, of each replica.
fn states(job: &Value) -> Vec<String> {
    let of = |replica: &Value| {
        let word = |field: &str| replica[field].as_str().map(str::to_owned);
        [word("state"), word("reason")].into_iter().flatten().collect::<Vec<_>>().join(" ")
    };
    job["replicas"].as_array().unwrap().iter().map(of).collect()
}

fn until_states(bridge: &Bridge, path: &str, wanted: &[&str]) -> Value {
    until(&wanted.join(", "), || {
        let job = job(bridge, path);
        (states(&job) == wanted).then_some(job)
    })
}

#[test]
fn a_resync_brings_a_lower_bound_with_a_journal_to_exact() {
    let folder = folder("jobs_resync");
    let mut engine = Engine::start();
    engine.set(&json!({"stall_after": 0}));
    engine.publish(5);
    configure(&folder, &[engine.source("a")], HASTY);
    let bridge = Bridge::start(&folder);
    engine.wait_subscriber();
    engine.publish(1);
    assert_eq!(bridge.standing("a", "lower_bound", 6)["reason"], "joined_late");
    let (code, out) = told(&bridge, "resync", "--all --wait lower_bound");
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("1 of 1 replicas reached lower_bound"), "{out}");
    engine.set(&json!({"stall_after": null}));
    let (code, out) = told(&bridge, "resync", "--replica m.a.0 --timeout 30s");
    assert_eq!(code, 0, "{out}");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.first(), Some(&"job 2: resync of 1 replicas to exact"));
    assert!(lines.contains(&"m.a.0: done, trust exact contiguous"), "{out}");
    assert_eq!(lines.last(), Some(&"1 of 1 replicas reached exact"));
    bridge.standing("a", "exact", 6);
    let asked = bridge.metric("kvbridge_deliberate_resyncs_total{trigger=\"operator\"}");
    assert_eq!(asked, "2");
    let (code, out) = told(&bridge, "resync", "--model m --json");
    assert_eq!(code, 0, "{out}");
    let last: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert_eq!((&last["state"], &last["verb"]), (&json!("reached"), &json!("resync")));
    for (args, expected) in [("--model nobodys", 1), ("", 2), ("--all --replica m.a.0", 2)] {
        assert_eq!(told(&bridge, "resync", args).0, expected, "{args}");
    }
    bridge.end();
}

/// Engines `a`, `b`, … that are exact, and whose journals then fall silent.
fn silenced(folder: &Path, names: &[&str]) -> (Vec<Engine>, Bridge) {
    let mut engines: Vec<Engine> = names.iter().map(|_| Engine::start()).collect();
    let sources: Vec<String> =
        engines.iter().zip(names).map(|(engine, name)| engine.source(name)).collect();
    configure(folder, &sources, PATIENT);
    let bridge = Bridge::start(folder);
    for (engine, name) in engines.iter_mut().zip(names) {
        engine.wait_subscriber();
        engine.publish(5);
        bridge.standing(name, "exact", 5);
        engine.set(&json!({"stall_after": 0}));
    }
    (engines, bridge)
}

#[test]
fn two_at_a_time_and_no_more_once_it_is_cancelled() {
    let (mut engines, bridge) = silenced(&folder("jobs_parallel"), &["a", "b", "c", "d"]);
    let path = order(&bridge, "resync", &json!({"all": true, "max_parallel": 2}));
    until_states(&bridge, &path, &["asked", "asked", "waiting", "waiting"]);
    for name in ["a", "b"] {
        bridge.standing(name, "none", 0);
    }
    engines[0].set(&json!({"stall_after": null}));
    until_states(&bridge, &path, &["done", "asked", "asked", "waiting"]);
    bridge.standing("d", "exact", 5);
    let (status, body) = bridge.ask("DELETE", &path).unwrap();
    assert_eq!(status, 200);
    let cancelled: Value = serde_json::from_str(&body).unwrap();
    let expected = ["done", "failed cancelled", "failed cancelled", "failed cancelled"];
    assert_eq!(states(&cancelled), expected);
    // Another order is not held up by what is over, and `d` was never touched.
    engines[3].set(&json!({"stall_after": null}));
    let path = order(&bridge, "resync", &json!({"replica": "m.d.0"}));
    until_states(&bridge, &path, &["done"]);
    let asked = bridge.metric("kvbridge_deliberate_resyncs_total{trigger=\"operator\"}");
    assert_eq!(asked, "4", "a, b, c and d, each once");
    bridge.end();
}

#[test]
fn what_takes_too_long_fails_and_an_interrupt_cancels() {
    let (_engines, bridge) = silenced(&folder("jobs_timeout"), &["a"]);
    let (code, out) = told(&bridge, "resync", "--all --timeout 1s");
    assert_eq!(code, 3, "{out}");
    assert!(out.contains("m.a.0: failed (timeout), trust none"), "{out}");
    assert!(out.contains("0 of 1 replicas reached exact"), "{out}");
    let mut command = kvbridge();
    command.args(["resync", "--url", &bridge.url(), "--all", "--timeout", "60s"]);
    let mut waits = Running::start(&mut command);
    assert_eq!(waits.line(), "job 2: resync of 1 replicas to exact");
    until_states(&bridge, "/v1/jobs/2", &["asked"]);
    let (code, out) = waits.end(Some("-INT"));
    assert_eq!(code, 130, "{out}");
    assert_eq!(job(&bridge, "/v1/jobs/2")["state"], "cancelled");
    bridge.end();
}

/// A modelled engine without a journal that the bridge joins late, and its server.
struct Late {
    _fake: Running,
    http: String,
    bridge: Bridge,
}

impl Late {
    fn start(name: &str, engine: &str, more: &str) -> Late {
        let mut command = kvbridge();
        command.args(["fake-engine", "--engine", engine, "--blocks", "64", "--step-ms", "1"]);
        command.args(["--ports-json", "--pub", "0", "--replay", "0", "--http", "127.0.0.1:0"]);
        let mut fake = Running::start(&mut command);
        let ports: Value = serde_json::from_str(&fake.line()).unwrap();
        let url = ports["http"].as_str().unwrap();
        let http = url.strip_prefix("http://").unwrap().to_owned();
        let folder = folder(name);
        let mut source = format!("[[sources]]\nengine = \"{engine}\"\nmodel = \"m\"\n");
        writeln!(source, "instance = \"a\"").unwrap();
        let (live, flush) = (&ports["ranks"][0]["live"], ["/reset_prefix_cache", "/flush_cache"]);
        match engine {
            "trtllm" => writeln!(source, "url = {live}").unwrap(),
            _ => {
                let path = flush[usize::from(engine == "sglang")];
                write!(source, "endpoint = {live}\nflush = \"{url}{path}\"\n").unwrap();
            }
        }
        burst(&http);
        configure(&folder, &[source], more);
        let bridge = Bridge::start(&folder);
        Late { _fake: fake, http, bridge }
    }

    /// Requests until the bridge has seen a batch and knows that it came late.
    fn joined_late(&self) {
        until("it joined late", || {
            burst(&self.http);
            let shown = self.bridge.replica("a");
            (shown["reason"] == "joined_late" && shown["trust"] == "lower_bound").then_some(())
        });
    }
}

fn burst(http: &str) {
    let fault = r#"{"fault": "burst", "count": 3}"#;
    assert_eq!(send(http, ("POST", "/control"), fault).unwrap().0, 200);
}

#[test]
fn a_flush_waits_for_the_next_step_and_makes_exact_what_could_not_be() {
    let late = Late::start("jobs_flush", "vllm", "");
    late.joined_late();
    let (code, out) = told(&late.bridge, "flush", "--model m --timeout 2s");
    assert_eq!(code, 3, "{out}");
    assert!(out.contains("m.a.0: pending (no_traffic)"), "{out}");
    assert!(out.contains("m.a.0: failed (timeout), trust lower_bound joined_late"), "{out}");
    let path = order(&late.bridge, "flush", &json!({"all": true, "timeout": "60s"}));
    until_states(&late.bridge, &path, &["asked"]);
    burst(&late.http);
    let done = until_states(&late.bridge, &path, &["done"]);
    assert_eq!(
        (&done["state"], &done["replicas"][0]["trust"]),
        (&json!("reached"), &json!("exact"))
    );
    assert_eq!(late.bridge.replica("a")["trust"], "exact");
    late.bridge.end();
}

#[test]
fn a_flush_that_is_published_at_once_needs_no_traffic() {
    let late = Late::start("jobs_flush_at_once", "sglang", "");
    late.joined_late();
    let (code, out) = told(&late.bridge, "flush", "--replica m.a.0 --timeout 30s");
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("m.a.0: done, trust exact contiguous"), "{out}");
    late.bridge.end();
}

#[test]
fn an_engine_that_cannot_be_flushed_is_named() {
    let late = Late::start("jobs_flush_unsupported", "trtllm", "");
    let (code, out) = told(&late.bridge, "flush", "--all");
    assert_eq!(code, 3, "{out}");
    assert!(out.contains("m.a.0: failed (flush_unsupported)"), "{out}");
    assert_eq!(late.bridge.metric("kvbridge_deliberate_resyncs_total{trigger=\"operator\"}"), "0");
    late.bridge.end();
}

#[test]
fn a_replica_that_does_not_come_back_is_flushed_where_that_is_the_policy() {
    let policy = "[recovery]\non_unrecoverable = \"flush\"\n";
    let late = Late::start("jobs_policy", "vllm", policy);
    late.joined_late();
    let asked = || late.bridge.metric("kvbridge_deliberate_resyncs_total{trigger=\"policy\"}");
    until("the policy asks", || (asked() == "1").then_some(()));
    until("it is exact", || {
        burst(&late.http);
        (late.bridge.replica("a")["trust"] == "exact").then_some(())
    });
    let shown = until("the job is over", || {
        let job = job(&late.bridge, "/v1/jobs/1");
        (job["state"] == "reached").then_some(job)
    });
    assert_eq!((&shown["trigger"], &shown["max_parallel"]), (&json!("policy"), &json!(1)));
    assert_eq!(asked(), "1");
    late.bridge.end();
}
