//! Sources that come and go over HTTP, across restarts and reloads.

use serde_json::Value;

use crate::harness::{Bridge, Engine, configure, folder, until};

fn reason(answer: Option<(u16, String)>) -> (u16, String) {
    let (status, body) = answer.unwrap();
    let body: Value = serde_json::from_str(&body).unwrap();
    (status, body["reason"].as_str().unwrap_or("-").to_owned())
}

fn names(bridge: &Bridge) -> Vec<String> {
    let (_, body) = bridge.ask("GET", "/v1/sources").unwrap();
    let body: Value = serde_json::from_str(&body).unwrap();
    let of = |source: &Value| {
        let text = |field: &str| source[field].as_str().unwrap().to_owned();
        // The file is named as it was given, with its folders.
        let origin = text("origin").rsplit('/').next().unwrap().to_owned();
        let replicas = source["replicas"].as_array().unwrap().len();
        format!("{} of {origin}, {replicas} replicas", text("name"))
    };
    body["sources"].as_array().unwrap().iter().map(of).collect()
}

#[test]
fn a_source_that_is_added_outlives_the_process_until_it_is_taken_away() {
    let folder = folder("sources_api");
    let (mut file, mut http) = (Engine::start(), Engine::start());
    configure(&folder, &[file.source("a").replace("[[sources]]", "[[sources]]\nname = \"a\"")], "");
    let bridge = Bridge::start(&folder);
    let added = http.source_json("b", "b");
    assert_eq!(bridge.send("POST", "/v1/sources", &added).unwrap().0, 201);
    file.wait_subscriber();
    http.wait_subscriber();
    file.publish(10);
    http.publish(20);
    let epoch = bridge.standing("b", "exact", 20)["epoch"].clone();
    let both = ["a of kvbridge.toml, 1 replicas", "b of http, 1 replicas"];
    assert_eq!(names(&bridge), both);
    for (body, refusal) in [
        (added.as_str(), (409, "source_exists")),
        (&http.source_json("c", "b"), (422, "wrong_config")),
        (r#"{"name": "c"}"#, (422, "wrong_config")),
        (r#"{"name": "c", "colour": "red"}"#, (400, "unknown_field")),
        (r#"{"name": 5}"#, (400, "wrong_value")),
        ("{", (400, "not_json")),
    ] {
        let refused = reason(bridge.send("POST", "/v1/sources", body));
        assert_eq!((refused.0, refused.1.as_str()), refusal, "{body}");
    }
    assert_eq!(reason(bridge.ask("DELETE", "/v1/sources/a")), (409, "source_of_file".to_owned()));
    assert_eq!(reason(bridge.ask("DELETE", "/v1/sources/c")), (404, "unknown_source".to_owned()));
    // A reload is of the file, and touches nothing that did not come from there.
    assert_eq!(bridge.ask("POST", "/v1/config/reload").unwrap().0, 200);
    assert_eq!(names(&bridge), both);
    assert_eq!(bridge.standing("b", "exact", 20)["epoch"], epoch);
    bridge.end();
    let bridge = Bridge::start(&folder);
    assert_eq!(names(&bridge), both);
    http.publish(10);
    assert_eq!(bridge.standing("b", "exact", 30)["epoch"], epoch, "the same life");
    assert_eq!(bridge.ask("DELETE", "/v1/sources/b").unwrap().0, 200);
    until("b is gone", || bridge.replica("b").is_null().then_some(()));
    bridge.standing("a", "exact", 10);
    bridge.end();
    let bridge = Bridge::start(&folder);
    assert_eq!(names(&bridge), ["a of kvbridge.toml, 1 replicas"]);
    bridge.end();
}

#[test]
fn what_cannot_be_kept_is_not_opened() {
    let folder = folder("sources_unkept");
    let engine = Engine::start();
    let text = format!("{}[http]\nlisten = \"127.0.0.1:0\"\n", engine.source("a"));
    std::fs::write(folder.join("kvbridge.toml"), text).unwrap();
    let bridge = Bridge::start(&folder);
    let refused = reason(bridge.send("POST", "/v1/sources", &engine.source_json("b", "b")));
    assert_eq!(refused, (409, "no_state_dir".to_owned()));
    assert!(bridge.replica("b").is_null());
    bridge.end();
    // What another program wrote is neither guessed at nor written over.
    configure(&folder, &[], "");
    let state = folder.join("state");
    std::fs::create_dir_all(&state).unwrap();
    std::fs::write(state.join("sources.json"), r#"{"version": 2, "sources": []}"#).unwrap();
    let ended = Bridge::command(&folder).output().unwrap();
    assert_eq!(ended.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("has version 2"));
}
