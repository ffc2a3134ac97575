//! Alarms of a signal that is there and fits nobody: names, sizes, prompts, clocks, restarts.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{
    harness::{Bridge, configure, folder, send, until},
    program::{Running, kvbridge},
};

fn ringing(bridge: &Bridge) -> BTreeSet<String> {
    let (_, body) = bridge.ask("GET", "/v1/alarms").unwrap();
    let body: Value = serde_json::from_str(&body).unwrap();
    let name = |alarm: &Value| alarm["alarm"].as_str().unwrap().to_owned();
    body["alarms"].as_array().unwrap().iter().map(name).collect()
}

/// A modelled engine, its server, and a bridge that reads it.
struct Pair {
    fake: Running,
    http: String,
    bridge: Bridge,
}

impl Pair {
    fn start(name: &str) -> Pair {
        let mut command = kvbridge();
        command.args(["fake-engine", "--engine", "vllm", "--blocks", "64", "--step-ms", "1"]);
        command.args(["--ports-json", "--pub", "0", "--replay", "0", "--http", "127.0.0.1:0"]);
        let mut fake = Running::start(&mut command);
        let ports: Value = serde_json::from_str(&fake.line()).unwrap();
        let http = ports["http"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
        let rank = &ports["ranks"][0];
        let source = format!(
            "[[sources]]\nengine = \"vllm\"\nmodel = \"m\"\ninstance = \"a\"\n\
             endpoint = {}\nreplay = {}\n",
            rank["live"], rank["replay"]
        );
        let folder = folder(name);
        configure(&folder, &[source], "");
        let pair = Pair { fake, http, bridge: Bridge::start(&folder) };
        until("it is exact", || {
            pair.burst();
            (pair.bridge.replica("a")["trust"] == "exact").then_some(())
        });
        pair
    }

    fn fault(&self, fault: &Value) {
        let (status, _) = send(&self.http, ("POST", "/control"), &fault.to_string()).unwrap();
        assert_eq!(status, 200);
    }

    fn burst(&self) {
        self.fault(&json!({"fault": "burst", "count": 3}));
    }
}

#[test]
fn an_engine_whose_clock_stands_still_rings() {
    let pair = Pair::start("signal_clock");
    pair.fault(&json!({"fault": "freeze_clock", "on": true}));
    until("the clocks differ", || {
        pair.burst();
        ringing(&pair.bridge).contains("clock_skew").then_some(())
    });
    assert_eq!(pair.bridge.replica("a")["trust"], "exact", "trust does not depend on it");
    pair.bridge.end();
}

#[test]
fn a_signal_that_fits_nobody_rings_by_name() {
    let mut pair = Pair::start("signal_alarms");
    let bridge = &pair.bridge;
    pair.fault(&json!({"fault": "silent_restart"}));
    let wanted = [
        "block_size_mismatch",
        "instance_name_mismatch",
        "rollback",
        "zero_matches_on_repeated_prefixes",
    ];
    let served = json!({
        "model": "m", "instance": "elsewhere", "input_tokens": 1, "cached_tokens": 0,
    });
    let sized = json!({"model": "m", "content_hashes": [1], "block_size": 7});
    let prompt = json!({"model": "m", "token_ids": vec![7; 100]});
    until("all of them ring", || {
        pair.burst();
        for (path, body, status) in [
            ("/v1/feedback", &served, 404),
            ("/v1/match", &sized, 409),
            ("/v1/match", &prompt, 200),
        ] {
            let (got, body) = bridge.send("POST", path, &body.to_string()).unwrap();
            // While the new life is learnt there may be no block to compare with.
            assert!(got == status || path == "/v1/match", "{path}: {got} {body}");
        }
        let rings = ringing(bridge);
        wanted.iter().all(|name| rings.contains(*name)).then_some(())
    });
    assert!(!ringing(bridge).contains("view_empty_under_traffic"));
    pair.fake.kill();
    until("its source is gone", || ringing(bridge).contains("source_gone").then_some(()));
    pair.bridge.end();
}

#[test]
fn a_view_that_stays_empty_while_requests_come_rings() {
    let mut command = kvbridge();
    // As an engine whose event buffer is off: it serves, and nothing is to be read.
    command.args(["fake-engine", "--engine", "trtllm", "--ports-json", "--http", "127.0.0.1:0"]);
    let mut fake = Running::start(&mut command);
    let ports: Value = serde_json::from_str(&fake.line()).unwrap();
    let source = format!(
        "[[sources]]\nengine = \"trtllm\"\nmodel = \"m\"\ninstance = \"a\"\nurl = {}\n",
        ports["http"]
    );
    let folder = folder("signal_empty");
    configure(&folder, &[source], "");
    let bridge = Bridge::start(&folder);
    until("the view is empty under traffic", || {
        bridge.send("POST", "/v1/match", r#"{"model":"m","token_ids":[1]}"#).unwrap();
        ringing(&bridge).contains("view_empty_under_traffic").then_some(())
    });
    bridge.end();
}
