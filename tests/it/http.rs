//! The API of a running process: refusals, resync, events, metrics.

use serde_json::{Value, json};

use crate::{
    bridge::Bridge,
    oracle::{Text, lives},
    peer::{Peer, capture},
};

const RECORDING: &str = "0.32.0-basic";

fn settled(name: &str, options: &[&str], config: &str) -> (Peer, Bridge) {
    let mut peer = Peer::play(&capture(RECORDING), options);
    let bridge = Bridge::run(name, &[peer.source()], config);
    peer.wait_subscriber();
    peer.publish(20);
    bridge.reaches("exact", 20);
    (peer, bridge)
}

#[test]
fn what_cannot_be_answered_is_a_named_problem() {
    let (_peer, bridge) = settled("http_problems", &[], "body_max = \"2KiB\"\n");
    let large = format!(r#"{{"model":"m","token_ids":[{}1]}}"#, "1,".repeat(2048));
    bridge.until_usable(20);
    let hashes = r#"["5db68f4acfcc6982"]"#;
    let cases = [
        (r#"{"model":"x","token_ids":[1]}"#.to_owned(), 404, "unknown_model"),
        (
            format!(r#"{{"model":"m","content_hashes":{hashes},"block_size":16}}"#),
            409,
            "block_size_mismatch",
        ),
        (format!(r#"{{"model":"m","content_hashes":{hashes}}}"#), 400, "no_block_size"),
        (r#"{"model":"m"}"#.to_owned(), 400, "no_prompt"),
        (r#"{"model":"m","token_ids":[1],"colour":1}"#.to_owned(), 400, "unknown_field"),
        (r#"{"model":"m","token_ids":[-77123]}"#.to_owned(), 400, "wrong_value"),
        (r#"{"model":"m","#.to_owned(), 400, "not_json"),
        (large, 413, "body_too_large"),
    ];
    for (body, status, reason) in cases {
        let url = format!("{}/v1/match", bridge.url);
        let response = bridge.block_on(bridge.client.post(url).body(body).send()).unwrap();
        assert_eq!(response.status().as_u16(), status, "{reason}");
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        let text = bridge.block_on(response.text()).unwrap();
        assert!(!text.contains("77123"), "{text}");
        let problem: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((problem.text("reason").as_str(), &problem["status"]), (reason, &json!(status)));
        assert_eq!(problem.text("type"), format!("urn:kvbridge:problem:{reason}"));
        assert!(problem["title"].is_string() && problem["detail"].is_string());
    }
    for path in ["/v1/replicas/nobody", "/v1/replicas/nobody/snapshot", "/nowhere"] {
        let url = format!("{}{path}", bridge.url);
        assert_eq!(bridge.ask(bridge.client.get(url)).0, 404, "{path}");
    }
    // Refusals change nothing.
    bridge.reaches("exact", 20);
    assert!(bridge.get("/healthz").contains("true") && bridge.get("/readyz").contains("true"));
}

#[test]
fn a_resync_returns_to_a_proven_state() {
    let (mut peer, bridge) = settled("http_resync", &[], "");
    let key = bridge.replicas()[0].text("key");
    let (status, asked) = bridge.post(&format!("/v1/replicas/{key}/resync"), "");
    assert_eq!((status, asked), (202, json!({"key": key, "asked": "resync"})));
    bridge.until_fact("resync_asked", 1);
    bridge.reaches("exact", 20);
    bridge.view_is(&lives(RECORDING)[0].fold(0..20));
    let given = |said: &[(String, Value)]| {
        let exact = said.iter().filter(|(_, standing)| standing["reason"] == "contiguous");
        (exact.count() == 2).then_some(())
    };
    bridge.heard("trust that was given back", given);
    assert!(bridge.trusts().contains(&"none verifying".to_owned()), "{:?}", bridge.trusts());
    peer.publish(10);
    bridge.reaches("exact", 30);
    bridge.view_is(&lives(RECORDING)[0].fold(0..30));
    assert_eq!(bridge.post("/v1/replicas/nobody/resync", "").0, 404);
}

#[test]
fn pages_from_elsewhere_have_nothing_done_and_read_nothing() {
    let (_peer, bridge) = settled("http_foreign", &[], "[http]\nnames = [\"kv.example\"]\n");
    let resync = format!("/v1/replicas/{}/resync", bridge.replicas()[0].text("key"));
    let ask = |method: &str, path: &str, headers: &[(&str, &str)]| {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = bridge.client.request(method, format!("{}{path}", bridge.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (status, body) = bridge.ask(request);
        let problem: Value = serde_json::from_str(&body).unwrap();
        (status, problem["reason"].as_str().unwrap_or_default().to_owned())
    };
    let refused = |status, reason: &str| (status, reason.to_owned());
    for headers in [
        &[("sec-fetch-site", "cross-site")][..],
        &[("origin", "http://elsewhere.example")],
        &[("origin", "null"), ("sec-fetch-site", "same-origin")],
    ] {
        assert_eq!(ask("POST", &resync, headers), refused(403, "cross_site"), "{headers:?}");
    }
    let foreign = [("host", "elsewhere.example")];
    assert_eq!(ask("GET", "/v1/replicas", &foreign), refused(421, "unknown_host"));
    assert_eq!(ask("GET", "/v1/replicas", &[("host", "kv.example")]).0, 200);
    let count = |reason| bridge.metric("kvbridge_http_foreign_total", reason);
    assert_eq!((count("cross_site"), count("unknown_host")), (3, 1));
    assert_eq!(bridge.fact("resync_asked"), 0);
    let own = [("sec-fetch-site", "same-origin"), ("origin", bridge.url.as_str())];
    assert_eq!(ask("POST", &resync, &own).0, 202);
    bridge.until_fact("resync_asked", 1);
}

/// Nothing in it is a list under the name of tokens.
fn hides_tokens(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().all(hides_tokens),
        Value::Object(fields) => {
            let hidden =
                |name: &String, value: &Value| !(name.contains("token") && value.is_array());
            fields.iter().all(|(name, value)| hidden(name, value) && hides_tokens(value))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

#[test]
fn events_tell_everything_but_tokens_and_salts() {
    let (_peer, bridge) = settled("http_events", &[], "");
    let envelopes = bridge.heard("20 envelopes", |said| {
        let envelopes = said.iter().filter(|(name, _)| name == "envelope");
        let envelopes: Vec<Value> = envelopes.map(|(_, envelope)| envelope.clone()).collect();
        (envelopes.len() >= 20).then_some(envelopes)
    });
    for (seq, envelope) in envelopes.iter().enumerate() {
        assert_eq!(envelope["seq"], seq);
        assert!(hides_tokens(envelope), "{envelope}");
        assert!(!envelope.to_string().contains("salt-1"), "{envelope}");
    }
    let stored = &envelopes[0]["events"][0];
    assert_eq!(stored["tokens"], json!({"count": 64}));
}

#[test]
fn a_gap_is_counted() {
    let (mut peer, bridge) = settled("http_gap", &["--withhold", "22,23,24"], "");
    let counts = || {
        let missing = bridge.metric("kvbridge_missing_batches_total", "");
        (bridge.metric("kvbridge_gaps_total", ""), bridge.fact("gap"), missing)
    };
    assert_eq!(counts(), (0, 0, 0));
    // Whoever was slow to publish its first batch was asked for it, once.
    let replays = || bridge.metric("kvbridge_source_replays_total", "");
    let before = replays();
    peer.publish(10);
    bridge.reaches("exact", 30);
    assert_eq!((counts(), replays() - before), ((1, 1, 3), 1));
}

#[test]
fn the_page_and_all_that_it_names_are_served() {
    let (_peer, bridge) = settled("http_page", &[], "");
    let get = |path: &str| {
        let response = bridge.block_on(bridge.client.get(format!("{}{path}", bridge.url)).send());
        let response = response.unwrap();
        assert_eq!(response.status().as_u16(), 200, "{path}");
        let policy = response.headers()["content-security-policy"].to_str().unwrap().to_owned();
        assert!(policy.starts_with("default-src 'self';"), "{policy}");
        assert_eq!(response.headers()["x-content-type-options"], "nosniff");
        assert_eq!(response.headers()["referrer-policy"], "no-referrer");
        bridge.block_on(response.text()).unwrap()
    };
    let page = get("/");
    let named: Vec<&str> = page.split('"').filter(|part| part.starts_with("/page/")).collect();
    assert!(named.len() >= 3, "{page}");
    named.into_iter().for_each(|path| assert!(!get(path).is_empty(), "{path}"));
    let missing = bridge.block_on(bridge.client.get(format!("{}/page/x", bridge.url)).send());
    assert_eq!(missing.unwrap().status().as_u16(), 404);
}

#[test]
fn how_a_replica_stood_before_is_told() {
    let (mut peer, bridge) = settled("http_changes", &["--withhold", "22,23,24"], "");
    peer.publish(10);
    bridge.reaches("exact", 30);
    let replicas = |path: &str| serde_json::from_str::<Value>(&bridge.get(path)).unwrap();
    let all = replicas("/v1/replicas?changes=true");
    let changes = all["replicas"][0].list("changes");
    let trusts: Vec<String> = changes.iter().map(|change| change.text("trust")).collect();
    assert!(trusts.ends_with(&["exact", "none", "exact"].map(str::to_owned)), "{trusts:?}");
    assert!(changes.is_sorted_by_key(|change| change["at"].as_u64()));
    assert!(replicas("/v1/replicas")["replicas"][0].get("changes").is_none());
}
