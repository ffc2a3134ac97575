//! `kvbridge sink test`: a made-up view for every router, a running sink, and an engine that some
//! router cannot read.

use std::process::Stdio;

use serde_json::Value;

use crate::{
    bridge::Bridge,
    peer::{Peer, capture},
    program::kvbridge,
};

fn test(arguments: &[&str]) -> std::process::Command {
    let mut command = kvbridge();
    command.args(["sink", "test"]).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Exit code and output.
fn ran(arguments: &[&str]) -> (i32, String) {
    let output = test(arguments).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

fn json(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_made_up_view_breaks_no_rule_of_any_router_and_shows_no_token() {
    let streamed: &[&str] = if cfg!(feature = "sink-smg") { &["smg"] } else { &[] };
    let published = ["llm-d", "dynamo", "vllm", "aibrix", "conductor"];
    for preset in published.iter().chain(streamed) {
        let (code, text) = ran(&["--preset", preset, "--count", "60", "--json"]);
        assert_eq!(code, 0, "{text}");
        let lines = json(&text);
        let last = lines.last().unwrap();
        assert_eq!((&last["messages"], &last["broken"]), (&60.into(), &0.into()));
        let messages: Vec<&Value> =
            lines.iter().filter(|line| line["message"] != "request").collect();
        assert_eq!(messages.len(), 62, "the first line, 60 messages, the last line");
        assert!(text.contains("\"token_count\":16") && !text.contains("token_ids"), "{text}");
        assert!(!text.contains("pepper"), "a salt is a secret: {text}");
        let known = last["rules"]["known"]["kept"].as_u64().unwrap();
        assert!(known > 5, "{last}");
    }
    let (code, text) = ran(&["--preset", "dynamo", "--count", "3"]);
    assert_eq!(code, 0);
    assert!(text.contains("stored 3 of 16 on GPU behind nothing: "), "{text}");
    assert!(text.contains("(48 tokens)") && text.ends_with("3 messages: no rule is broken\n"));
    assert_eq!(ran(&["--preset", "someone"]).0, 2);
}

#[test]
fn a_running_sink_is_read_from_its_beginning() {
    let mut peer = Peer::play(&capture("0.32.0-basic"), &[]);
    let sink = "[[sinks]]\npreset = \"llm-d\"\nlisten = \"127.0.0.1:0\"\n\
                replay = \"127.0.0.1:0\"\nheartbeat = \"100ms\"\n";
    let bridge = Bridge::run("sink_command", &[peer.source()], sink);
    peer.wait_subscriber();
    peer.publish(20);
    bridge.reaches("exact", 20);
    let asked = ["--preset", "llm-d", "--url", &bridge.url, "--count", "12", "--json"];
    let (code, text) = ran(&asked);
    assert_eq!(code, 0, "{text}");
    let lines = json(&text);
    assert_eq!((&lines[1]["message"], &lines[1]["seq"]), (&"request".into(), &0.into()));
    assert_eq!(lines[2]["message"], "answer");
    assert_eq!(lines.last().unwrap()["messages"], 12);
    assert_eq!(lines[2]["topic"], "kv@engine:8000@m");
    assert!(text.contains("\"event\":\"stored\""), "{text}");
    // No line for that replica, none of that preset: said, and exit 2.
    let (code, _) = ran(&[&asked[..4], &["--replica", "nobody"]].concat());
    assert_eq!(code, 2);
    assert_eq!(ran(&["--preset", "dynamo", "--url", &bridge.url]).0, 2);
}

#[test]
fn an_engine_that_a_router_cannot_read_is_exit_3_with_the_rule() {
    let mut peer = Peer::play(&capture("0.32.0-basic"), &[]);
    let live = peer.live();
    let child = test(&["--preset", "aibrix", "--endpoint", &live, "--count", "3"]).spawn().unwrap();
    peer.wait_subscriber();
    peer.publish(3);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("BREAKS form: Maps came"), "{text}");
    // Frames that do not come are no success either.
    let silent = ran(&["--preset", "vllm", "--endpoint", &live, "--timeout", "300ms"]);
    assert_eq!(silent.0, 3, "{}", silent.1);
}
