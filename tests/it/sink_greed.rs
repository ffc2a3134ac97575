//! Peers that ask a sink for its past and do not read, that come all at once or ask nonsense: they
//! cost a bounded number of bytes, and nobody else waits for them.

use std::{
    io::{BufRead, BufReader},
    process::{Child, ChildStdin, Command, Stdio},
};

use serde_json::Value;

use crate::{
    bridge::Bridge,
    harness::{python, until},
    oracle::lives,
    peer::{Peer, capture, root},
};

/// `askers.py`: libzmq.
struct Askers {
    process: Child,
    _stdin: ChildStdin,
    said: Value,
}

impl Askers {
    /// Says what it did once it did it; its connections last as long as this.
    fn ask(line: &Value, arguments: &[&str]) -> Askers {
        let mut process = Command::new(python())
            .arg(root().join("tests/peers/askers.py"))
            .arg(line["replay"].as_str().unwrap())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = process.stdin.take().unwrap();
        let mut said = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut said).unwrap();
        Askers { process, _stdin: stdin, said: serde_json::from_str(&said).unwrap() }
    }
}

impl Drop for Askers {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// A bridge with a sink, its line, and the engine behind it.
fn world(name: &str) -> (Bridge, Value, Peer) {
    let life = &lives("0.32.0-basic")[0];
    let mut peer = Peer::play(&capture("0.32.0-basic"), &[]);
    let sink = "[[sinks]]\npreset = \"vllm\"\nlisten = \"127.0.0.1:0\"\nreplay = \"127.0.0.1:0\"\n\
                grace = \"50ms\"\nheartbeat = \"100ms\"\n";
    let bridge = Bridge::run(name, &[peer.source()], sink);
    peer.wait_subscriber();
    peer.publish(life.len());
    bridge.reaches("exact", life.len());
    let line = until("a line", || {
        let sinks: Value = serde_json::from_str(&bridge.get("/v1/sinks")).unwrap();
        let line = sinks["sinks"].get(0).filter(|line| line["shown"] == true);
        line.cloned()
    });
    (bridge, line, peer)
}

/// Whoever reads the line is served: live, and of the past.
fn is_served(name: &str, bridge: &Bridge, line: &Value) {
    let text = |field: &str| line[field].as_str().unwrap().to_owned();
    let options = ["--vllm", &text("listen"), "--replay", &text("replay"), "--model", "m"];
    let source = options.iter().map(|text| (*text).to_owned()).collect();
    let reader = Bridge::run(name, &[source], "");
    let device = |of: &Bridge| of.replicas().first()?["blocks"]["device"].as_u64();
    until("a reader to be served", || {
        let is_exact = reader.replicas().first()?["trust"] == "exact";
        (is_exact && device(&reader) == device(bridge)).then_some(())
    });
}

#[test]
fn peers_that_ask_again_and_again_and_never_read_hold_up_nobody() {
    let (bridge, line, _peer) = world("sink_greed");
    // As many answers as the library would queue, 100 000 messages a peer, before it waits.
    let askers = Askers::ask(&line, &["deaf", "3", "1000"]);
    assert_eq!(askers.said["asked"], 3000);
    is_served("sink_greed_reader", &bridge, &line);
    let polite = Askers::ask(&line, &["read", "1"]);
    assert_eq!(polite.said["ended"], 1);
    assert!(bridge.metric("kvbridge_sink_requests_total", "outcome=\"refused\"") > 0);
}

#[test]
fn peers_that_come_together_are_all_answered() {
    let (bridge, line, _peer) = world("sink_crowd");
    assert_eq!(Askers::ask(&line, &["read", "200"]).said["ended"], 200);
    is_served("sink_crowd_reader", &bridge, &line);
}

#[test]
fn requests_that_are_none_are_nothing() {
    let (bridge, line, _peer) = world("sink_strange");
    let strange = Askers::ask(&line, &["strange"]);
    assert_eq!(strange.said["asked"], 5);
    is_served("sink_strange_reader", &bridge, &line);
    assert!(bridge.metric("kvbridge_sink_requests_total", "outcome=\"malformed\"") > 0);
}
