//! SIGTERM ends in order, a second one at once; SIGHUP and POST touch what changed.

use std::fs;

use crate::harness::{Bridge, Engine, configure, folder, until};

#[test]
fn a_termination_is_seen_at_readyz_and_ends_in_time() {
    let folder = folder("signal_term");
    let mut engine = Engine::start();
    configure(&folder, &[engine.source("a")], "[shutdown]\ndrain = \"1s\"\ntimeout = \"20s\"");
    let bridge = Bridge::start(&folder);
    engine.wait_subscriber();
    engine.publish(4);
    bridge.standing("a", "exact", 4);
    assert_eq!(bridge.ask("GET", "/readyz").unwrap().0, 200);
    bridge.signal("-TERM");
    let (_, body) =
        until("readyz 503", || bridge.ask("GET", "/readyz").filter(|(status, _)| *status == 503));
    assert!(body.contains("\"stopping\""), "{body}");
    assert_eq!(bridge.wait().code(), Some(0));
    assert!(folder.join("state/m.a.0.ckpt").exists());
}

#[test]
fn a_second_signal_ends_at_once() {
    let folder = folder("signal_twice");
    configure(
        &folder,
        &["[[sources]]\nengine = \"vllm\"\nendpoint = \"tcp://127.0.0.1:9\"\n".to_owned()],
        "[shutdown]\ndrain = \"10m\"\ntimeout = \"20m\"",
    );
    let bridge = Bridge::start(&folder);
    bridge.signal("-TERM");
    // Its engine never answers, so that it is not ready before either: two signals at once are one.
    until("stopping", || {
        bridge.ask("GET", "/readyz").filter(|(_, body)| body.contains("stopping"))
    });
    bridge.signal("-TERM");
    assert_eq!(bridge.wait().code(), Some(130));
}

#[test]
fn a_reload_touches_only_what_changed() {
    let folder = folder("signal_reload");
    let (mut a, mut b) = (Engine::start(), Engine::start());
    configure(&folder, &[a.source("a")], "");
    let bridge = Bridge::start(&folder);
    a.wait_subscriber();
    a.publish(10);
    let epoch = bridge.standing("a", "exact", 10)["epoch"].clone();

    configure(&folder, &[a.source("a"), b.source("b")], "");
    bridge.signal("-HUP");
    until("b", || (!bridge.replica("b").is_null()).then_some(()));
    b.wait_subscriber();
    b.publish(6);
    let added = bridge.standing("b", "exact", 6)["epoch"].clone();
    assert_eq!(bridge.standing("a", "exact", 10)["epoch"], epoch);

    let good = fs::read_to_string(folder.join("kvbridge.toml")).unwrap();
    let bad = format!("{good}[limits]\nframe_max = 5\nsurprise = 1\n");
    fs::write(folder.join("kvbridge.toml"), bad).unwrap();
    let (status, body) = bridge.ask("POST", "/v1/config/reload").unwrap();
    assert_eq!(status, 422, "{body}");
    assert!(body.contains("limits.frame_max") && body.contains("surprise"), "{body}");
    assert_eq!(bridge.replica("b")["epoch"], added);

    assert!(bridge.metric("kvbridge_gaps_total{replica=\"m.a.0\"}").starts_with('0'));
    let mut events = bridge.events();
    configure(&folder, &[b.source("b")], "[limits]\nframe_max = \"1MiB\"\nmatch_tokens_max = 9");
    let (status, body) = bridge.ask("POST", "/v1/config/reload").unwrap();
    assert_eq!(status, 200, "{body}");
    assert_eq!(
        body,
        r#"{"added":[],"removed":["m.a.0"],"changed":[],"applied":["limits.match_tokens_max"],"needs_restart":["limits.frame_max"]}"#
    );
    assert!(bridge.replica("a").is_null());
    let removed =
        events.find(|line| line.starts_with("event: removed")).and_then(|_| events.next());
    assert!(removed.unwrap().starts_with(r#"data: {"key":"m.a.0""#));
    assert_eq!(bridge.metric("kvbridge_gaps_total{replica=\"m.a.0\"}"), "");
    assert!(bridge.metric("kvbridge_gaps_total{replica=\"m.b.0\"}").starts_with('0'));
    b.publish(1);
    assert_eq!(bridge.standing("b", "exact", 7)["epoch"], added);
    bridge.end();
}
