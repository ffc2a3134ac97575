//! Handlers without a socket: answers, refusals, limits.

use std::sync::Arc;

use axum::{
    body::{Body, to_bytes},
    http::{Request, StatusCode},
};
use expect_test::expect;
use futures::StreamExt;
use kvbridge_schemas::{
    Digest, Engine, EngineKind, Envelope, Epoch, HashInfo, HashScheme, Seq, SnapshotHeader, Trust,
    content_hash,
};
use tower::ServiceExt;

use super::{
    world_tests::{KEY, World, exact, replica, stored, world},
    *,
};
use crate::pipeline::{Command, FleetEvent, ViewCut};

#[tokio::test]
async fn health_and_readiness() {
    let world = exact();
    assert_eq!(world.get("/healthz").await, r#"{"alive":true}"#);
    assert_eq!(
        world.get("/readyz").await,
        r#"{"ready":true,"mode":"converged","trust":{"exact":1},"bus":{"kind":"embedded","state":"ready"}}"#
    );
    let unproven = self::world(Trust::None, Limits::default());
    let (status, body) = unproven.send("GET", "/readyz", Body::empty()).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(body.contains("starting") && body.contains("0 of 1 replicas proven"), "{body}");
    let metrics = unproven.get("/metrics").await;
    assert!(metrics.contains("kvbridge_ready_mode{mode=\"starting\"} 1"), "{metrics}");
    world.stop.cancel();
    let (status, body) = world.send("GET", "/readyz", Body::empty()).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(body.contains(r#""reason":"stopping""#), "{body}");
}

#[tokio::test]
async fn replicas_are_listed_and_found() {
    let world = exact();
    let timeless = |text: String| text.split_once(r#","age_ms""#).unwrap().0.to_owned();
    let one = timeless(world.get(&format!("/v1/replicas/{KEY}")).await);
    expect![[r#"{"key":"m.h=3A8000.0","replica":{"model":"m","instance":"h:8000","rank":0},"trust":"exact","reason":"contiguous","since":5,"epoch":9,"next_seq":4,"blocks":{"device":2},"alarms":[],"engine":"vllm""#]]
        .assert_eq(&one);
    assert_eq!(timeless(world.get("/v1/replicas").await), format!(r#"{{"replicas":[{one}"#));
    let (status, body) = world.send("GET", "/v1/replicas/x", Body::empty()).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(body.contains(r#""reason":"unknown_replica""#), "{body}");
}

#[tokio::test]
async fn a_match_by_tokens_or_by_hashes() {
    let world = exact();
    let by_tokens = world.matched(r#"{"model":"m","token_ids":[1,2,3,4,5]}"#).await;
    expect![[r#"{"fallback":null,"model":"m","replicas":[{"as_of":{"age_ms":null,"epoch":9,"next_seq":4},"block_size":2,"by_tier":{"device":2},"key":"m.h=3A8000.0","matched_blocks":2,"matched_tokens":4,"reason":"contiguous","replica":{"instance":"h:8000","model":"m","rank":0},"speculative_tokens":0,"trust":"exact","usable":true}]}"#]]
        .assert_eq(&by_tokens.to_string());
    let hash = content_hash(&[1, 2]);
    for hash in [format!("\"{hash:016x}\""), hash.to_string()] {
        let body = format!(r#"{{"model":"m","content_hashes":[{hash}],"block_size":2}}"#);
        assert_eq!(world.matched(&body).await["replicas"][0]["matched_blocks"], 1);
    }
    let other = world.matched(r#"{"model":"m","token_ids":[1,2],"lora":"a"}"#).await;
    assert_eq!(other["replicas"][0]["matched_blocks"], 0);
}

#[tokio::test]
async fn without_trust_a_replica_is_listed_with_zeros() {
    let none = world(Trust::None, Limits::default());
    let answer = none.matched(r#"{"model":"m","token_ids":[1,2]}"#).await;
    assert_eq!(answer["fallback"], "load");
    assert_eq!(answer["replicas"][0]["usable"], false);
    assert_eq!(answer["replicas"][0]["matched_blocks"], 0);
    let lower = world(Trust::LowerBound, Limits::default());
    let body = r#"{"model":"m","token_ids":[1,2],"accept":"lower_bound"}"#;
    assert_eq!(lower.matched(body).await["replicas"][0]["matched_blocks"], 1);
    let strict = lower.matched(r#"{"model":"m","token_ids":[1,2]}"#).await;
    assert_eq!(strict["fallback"], "load");
}

#[tokio::test]
async fn what_cannot_be_answered_is_named_and_shows_no_value() {
    let limits = Limits { match_token_count_max: 2, body_bytes_max: 1024, ..Limits::default() };
    let world = world(Trust::Exact, limits);
    let long = format!(r#"{{"model":"{}"}}"#, "x".repeat(2000));
    let mut seen = String::new();
    for body in [
        r#"{"model":"m","token_ids":[47110815,-47110815]}"#,
        r#"{"model":"m","token_ids":[1],"salt":47110815}"#,
        r#"{"model":"m","token_ids":[1],"tokens":[2]}"#,
        r#"{"token_ids":[1]}"#,
        r#"{"model":"m"}"#,
        r#"{"model":"m","token_ids":[1],"content_hashes":[]}"#,
        r#"{"model":"m","content_hashes":["00"],"block_size":2}"#,
        r#"{"model":"m","content_hashes":[1]}"#,
        r#"{"model":"m","token_ids":[1],"block_size":2}"#,
        r#"{"model":"m","token_ids":[1],"accept":"none"}"#,
        r#"{"model":"m","token_ids":[1,2,3]}"#,
        r#"{"model":"x","token_ids":[1]}"#,
        r#"{"model":"m","content_hashes":[1],"block_size":16}"#,
        r#"{"model":47110815"#,
        r#"{"model":"m","token_ids":[1]} 47110815"#,
        &long,
    ] {
        let (status, text) = world.send("POST", "/v1/match", body.to_owned()).await;
        assert!(!text.contains("47110815"), "{text}");
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["status"], status.as_u16());
        let (reason, detail) = (&value["reason"], &value["detail"]);
        seen.push_str(&format!("{} {reason} {detail}\n", status.as_u16()));
    }
    expect![[r#"
        400 "wrong_value" "token_ids[1] has another type or value than expected"
        400 "wrong_value" "salt has another type or value than expected"
        400 "unknown_field" "unknown field tokens"
        400 "missing_field" "missing field `model`"
        400 "no_prompt" "expected either token_ids or content_hashes with block_size"
        400 "no_prompt" "expected either token_ids or content_hashes with block_size"
        400 "wrong_value" "content_hashes[0] has another type or value than expected"
        400 "no_block_size" "content_hashes need a block_size above 0"
        400 "block_size_with_tokens" "token_ids take no block_size: each replica is hashed with its own"
        400 "wrong_value" "accept has another type or value than expected"
        413 "prompt_too_long" "expected at most 2 items, 3 came"
        404 "unknown_model" "no replica of this model is known"
        409 "block_size_mismatch" "no replica of this model uses the prompt's block size, expected one of [2]"
        400 "wrong_value" "model has another type or value than expected"
        400 "not_json" "something follows the JSON object"
        413 "body_too_large" "the body has over 1024 bytes"
    "#]].assert_eq(&seen);
}

#[tokio::test]
async fn a_page_from_elsewhere_is_refused_by_name_and_counted() {
    let world = exact();
    let path = format!("/v1/replicas/{KEY}/resync");
    let ask = async |method: &str, path: &str, name: &str, value: &str| {
        let request = Request::builder().method(method).uri(path).header(name, value);
        let request = request.body(Body::empty()).unwrap();
        let response = world.api.clone().router().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    };
    // Before the path is looked at, too.
    for path in [&path, "/v1/flush", "/nothing"] {
        let (status, body) = ask("POST", path, "sec-fetch-site", "cross-site").await;
        assert_eq!((status, body.contains(r#""reason":"cross_site""#)), (403, true), "{body}");
    }
    let (status, body) = ask("GET", "/metrics", "host", "elsewhere.example").await;
    assert_eq!((status, body.contains(r#""reason":"unknown_host""#)), (421, true), "{body}");
    assert!(world.commands.is_empty(), "nobody was asked");
    assert_eq!(ask("POST", &path, "sec-fetch-site", "same-origin").await.0, 202);
    let metrics = world.get("/metrics").await;
    for wanted in ["{reason=\"cross_site\"} 3", "{reason=\"unknown_host\"} 1"] {
        assert!(metrics.contains(&format!("kvbridge_http_foreign_total{wanted}")), "{metrics}");
    }
}

#[tokio::test]
async fn unknown_paths_and_methods_are_problems_too() {
    let world = exact();
    let (status, body) = world.send("GET", "/nothing", Body::empty()).await;
    assert_eq!((status, body.contains("not_found")), (StatusCode::NOT_FOUND, true));
    let (status, body) = world.send("GET", "/v1/match", Body::empty()).await;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
    assert!(body.contains("method_not_allowed"), "{body}");
}

#[tokio::test]
async fn a_snapshot_is_streamed_whole() {
    let World { api, mut commands, view, status: _status, .. } = exact();
    let driver = tokio::spawn(async move {
        let Some(Command::Snapshot(answer)) = commands.recv().await else { panic!("snapshot") };
        let header = SnapshotHeader {
            state: None,
            replica: replica(),
            epoch: Epoch(9),
            resume_seq: Seq(4),
            bus_seq: None,
            last_digest: None,
            trust: Trust::Exact,
            block_count: 0,
        };
        assert!(answer.send(ViewCut { header, view }).is_ok());
    });
    let request = Request::get(format!("/v1/replicas/{KEY}/snapshot")).body(Body::empty()).unwrap();
    let response = api.router().oneshot(request).await.unwrap();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    driver.await.unwrap();
    expect![[r#"
        {"v":1,"replica":{"model":"m","instance":"h:8000","rank":0},"epoch":9,"resume_seq":4,"trust":"exact","blocks":2}
        {"hash":"000000000000000a","parent":null,"content":"9581a6bbf9cef45a","block_size":2,"tier":"device","count":1}
        {"hash":"000000000000000b","parent":"000000000000000a","content":"24f1bf0c78a5ca72","block_size":2,"tier":"device","count":1}
        {"end":true,"blocks":2}
    "#]].assert_eq(std::str::from_utf8(&body).unwrap());
}

#[tokio::test]
async fn resync_is_asked_once_and_then_refused_while_it_waits() {
    let mut world = exact();
    let path = format!("/v1/replicas/{KEY}/resync");
    let (status, _) = world.send("POST", &path, Body::empty()).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    let (status, body) = world.send("POST", &path, Body::empty()).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(body.contains(r#""reason":"busy""#), "{body}");
    assert!(matches!(world.commands.recv().await, Some(Command::Resync)));
}

pub(super) fn envelope(seq: u64) -> FleetEvent {
    FleetEvent::Applied(Arc::new(Envelope {
        replica: replica(),
        epoch: Epoch(9),
        incarnation: None,
        seq: Seq(seq),
        span: 1,
        digest: Digest::default(),
        trust: Trust::Exact,
        ts: 0,
        engine: Engine { kind: EngineKind::Vllm, format: "f".to_owned() },
        hash: HashInfo { scheme: HashScheme::Unknown, block_size: 2 },
        events: vec![stored()],
    }))
}

#[tokio::test]
async fn events_hide_tokens_and_tell_a_slow_reader_what_it_missed() {
    let world = exact();
    let request = Request::get("/v1/events").body(Body::empty()).unwrap();
    let response = world.api.clone().router().oneshot(request).await.unwrap();
    let mut chunks = response.into_body().into_data_stream();
    let events = world.fleet.events_sender();
    for seq in 0..5 {
        events.send(envelope(seq)).unwrap();
    }
    let mut text = String::new();
    let first = chunks.next().await.unwrap().unwrap();
    assert!(first.starts_with(b"event: standing\ndata: {\"key\":\"m.h=3A8000.0\""));
    for _ in 0..2 {
        text.push_str(std::str::from_utf8(&chunks.next().await.unwrap().unwrap()).unwrap());
    }
    assert!(text.starts_with("event: lagged\ndata: {\"missed\":3}\n\nevent: envelope\n"), "{text}");
    assert!(text.contains("\"tokens\":{\"count\":4}"), "{text}");
    world.stop.cancel();
    while chunks.next().await.is_some() {}
}

#[tokio::test]
async fn readers_of_events_have_a_limit_and_give_their_place_back() {
    let limits = Limits { events_reader_count_max: 1, ..Limits::default() };
    let world = world(Trust::Exact, limits);
    let open = || Request::get("/v1/events").body(Body::empty()).unwrap();
    let first = world.api.clone().router().oneshot(open()).await.unwrap();
    let (status, body) = world.send("GET", "/v1/events", Body::empty()).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(body.contains("too_many_readers"), "{body}");
    drop(first);
    let again = world.api.clone().router().oneshot(open()).await.unwrap();
    assert_eq!(again.status(), StatusCode::OK);
}

#[tokio::test]
async fn metrics_render_as_prometheus_text() {
    let world = exact();
    world.matched(r#"{"model":"m","token_ids":[1,2]}"#).await;
    let text = world.get("/metrics").await;
    assert!(text.contains("kvbridge_matches_total{outcome=\"usable\"} 1"), "{text}");
    assert!(text.contains("kvbridge_cursor_age_seconds{replica=\"m.h=3A8000.0\"}"), "{text}");
    assert!(text.contains("kvbridge_match_duration_seconds_bucket"), "{text}");
}
