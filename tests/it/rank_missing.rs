//! Four data-parallel ranks of which one says nothing.

use std::{fmt::Write as _, net::TcpListener};

use serde_json::Value;

use crate::{
    harness::{Bridge, folder, send, until},
    program::{Running, kvbridge},
};

#[test]
fn a_rank_that_never_spoke_is_named_and_the_others_are_usable() {
    let mut command = kvbridge();
    command.args(["fake-engine", "--engine", "vllm", "--dp", "3", "--blocks", "64"]);
    command.args(["--ports-json", "--step-ms", "1", "--pub", "0", "--replay", "0"]);
    let mut fake = Running::start(command.args(["--http", "127.0.0.1:0"]));
    let ports: Value = serde_json::from_str(&fake.line()).unwrap();
    // Somebody listens at the fourth rank's port, and it is no engine.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("tcp://{}", silent.local_addr().unwrap());
    let folder = folder("rank_missing");
    let mut text =
        String::from("[http]\nlisten = \"127.0.0.1:0\"\n[recovery]\nrank_missing = \"500ms\"\n");
    for rank in 0..4_usize {
        let ports = &ports["ranks"][rank];
        let live = ports["live"].as_str().unwrap_or(&silent);
        write!(
            text,
            "[[sources]]\nengine = \"vllm\"\nmodel = \"m\"\ninstance = \"i\"\nrank = {rank}\n\
             endpoint = \"{live}\"\n"
        )
        .unwrap();
    }
    std::fs::write(folder.join("kvbridge.toml"), text).unwrap();
    let bridge = Bridge::start(&folder);
    let rank = |number: u32| -> Value {
        let (_, body) = bridge.ask("GET", &format!("/v1/replicas/m.i.{number}")).unwrap();
        serde_json::from_str(&body).unwrap()
    };
    let http = ports["http"].as_str().unwrap().strip_prefix("http://").unwrap();
    let fault = r#"{"fault": "burst", "count": 3}"#;
    until("three ranks are usable", || {
        assert_eq!(send(http, ("POST", "/control"), fault).unwrap().0, 200);
        (0..3).all(|it| rank(it)["trust"] != "none").then_some(())
    });
    let missing = until("the fourth is missing", || {
        let shown = rank(3);
        (shown["reason"] == "rank_missing").then_some(shown)
    });
    assert_eq!(missing["trust"], "none");
    until("it rings", || rank(3)["alarms"].to_string().contains("rank_missing").then_some(()));
    for number in 0..3 {
        let shown = rank(number);
        assert_ne!(shown["trust"], "none", "{shown}");
        assert!(!shown["alarms"].to_string().contains("rank_missing"), "{shown}");
    }
    bridge.end();
}
