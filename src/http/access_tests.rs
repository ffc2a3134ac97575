//! Scope × endpoint: what each token is let do, and how a refusal is named.

use axum::{
    body::{Body, to_bytes},
    http::{Request, StatusCode, header},
};
use futures::StreamExt;
use kvbridge_schemas::{Epoch, Seq, SnapshotHeader, Trust};
use tower::ServiceExt;

use super::{
    tests::envelope,
    world_tests::{KEY, World, guarded, replica},
    *,
};
use crate::pipeline::{Command, ViewCut};

const TOKENS: &str = r#"
    [[tokens]]
    name = "router"
    token = "read-read-read-read"
    scopes = ["read"]
    [[tokens]]
    token = "tokens-tokens-tokens"
    scopes = ["read", "tokens"]
    models = ["m", "n"]
    [[tokens]]
    token = "write-write-write-write"
    scopes = ["write"]
    [[tokens]]
    token = "report-report-report-report"
    scopes = ["report"]
    [[tokens]]
    token = "other-other-other-other"
    scopes = ["read", "tokens", "write", "report"]
    models = ["other"]
    [[tokens]]
    token = "expired-expired-expired"
    scopes = ["read", "tokens", "write"]
    expires = "2020-01-01T00:00:00Z"
"#;

fn world() -> World {
    guarded(Trust::Exact, Limits::default(), Access::of(TOKENS))
}

/// Status and reason. A driver that answers is not part of this: asked, it counts as let in.
async fn ask(authorization: Option<&str>, method: &str, path: &str) -> String {
    let World { api, commands, .. } = world();
    drop((commands, api.reloads(), api.source_requests()));
    let body = match (method, path) {
        ("POST", "/v1/sources") => r#"{"name":"s","url":"http://h:1"}"#,
        ("POST", "/v1/route") => {
            r#"{"model":"m","token_ids":[1,2],"candidates":[{"instance":"h:8000","load":1}]}"#
        }
        ("POST", "/v1/feedback") => {
            r#"{"model":"m","instance":"h:8000","input_tokens":2,"cached_tokens":1}"#
        }
        ("POST", "/v1/resync" | "/v1/flush") => r#"{"all":true}"#,
        ("POST", "/v1/backfill") => r#"{"model":"m","instance":"h:8000","token_ids":[1,2]}"#,
        ("POST", _) => r#"{"model":"m","token_ids":[1,2]}"#,
        _ => "",
    };
    let mut request = Request::builder().method(method).uri(path);
    if let Some(authorization) = authorization {
        request = request.header(header::AUTHORIZATION, authorization);
    }
    let response = api.router().oneshot(request.body(Body::from(body)).unwrap()).await.unwrap();
    let status = response.status();
    let challenge = response.headers().get(header::WWW_AUTHENTICATE).cloned();
    assert_eq!(challenge.is_some(), status == StatusCode::UNAUTHORIZED);
    if status.is_success() {
        return status.as_u16().to_string();
    }
    let kind = response.headers().get(header::CONTENT_TYPE).unwrap();
    assert_eq!(kind, "application/problem+json");
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    let value: serde_json::Value = serde_json::from_slice(&body).unwrap();
    format!("{} {}", status.as_u16(), value["reason"].as_str().unwrap())
}

#[tokio::test]
async fn every_token_at_every_endpoint() {
    let shown: [(&str, Option<&str>); 10] = [
        ("no token", None),
        ("basic", Some("Basic cmVhZA==")),
        ("unknown", Some("Bearer read-read-read-reaX")),
        ("expired", Some("Bearer expired-expired-expired")),
        ("read", Some("Bearer read-read-read-read")),
        ("read, lower case", Some("bearer read-read-read-read")),
        ("read+tokens of m", Some("Bearer tokens-tokens-tokens")),
        ("write", Some("Bearer write-write-write-write")),
        ("report", Some("Bearer report-report-report-report")),
        ("all of another model", Some("Bearer other-other-other-other")),
    ];
    let endpoints = [
        ("GET", "/healthz".to_owned()),
        ("GET", "/".to_owned()),
        ("GET", "/page/app.js".to_owned()),
        ("GET", "/readyz".to_owned()),
        ("GET", "/metrics".to_owned()),
        ("GET", "/v1/replicas".to_owned()),
        ("GET", format!("/v1/replicas/{KEY}")),
        ("GET", format!("/v1/replicas/{KEY}/snapshot")),
        ("GET", format!("/v1/replicas/{KEY}/snapshot?tokens=true")),
        ("POST", format!("/engines/{KEY}/kv_cache_events?consumer=a")),
        ("GET", "/v1/alarms".to_owned()),
        ("GET", "/v1/events".to_owned()),
        ("GET", "/v1/events?tokens=true".to_owned()),
        ("GET", "/v1/events?color=red".to_owned()),
        ("POST", "/v1/match".to_owned()),
        ("POST", "/v1/route".to_owned()),
        ("POST", "/v1/feedback".to_owned()),
        ("POST", "/v1/backfill".to_owned()),
        ("POST", format!("/v1/replicas/{KEY}/resync")),
        ("POST", "/v1/resync".to_owned()),
        ("POST", "/v1/flush".to_owned()),
        ("GET", "/v1/jobs".to_owned()),
        ("GET", "/v1/jobs/1".to_owned()),
        ("DELETE", "/v1/jobs/1".to_owned()),
        ("POST", "/v1/config/reload".to_owned()),
        ("GET", "/v1/sources".to_owned()),
        ("POST", "/v1/sources".to_owned()),
        ("DELETE", "/v1/sources/s".to_owned()),
    ];
    let mut matrix = String::new();
    for (name, authorization) in shown {
        matrix.push_str(&format!("{name}\n"));
        for (method, path) in &endpoints {
            let answer = ask(authorization, method, path).await;
            matrix.push_str(&format!("  {method} {path}: {answer}\n"));
        }
    }
    expect_test::expect_file!["access_matrix.txt"].assert_eq(&matrix);
}

#[tokio::test]
async fn another_models_token_sees_nothing_of_this_one() {
    let World { api, fleet, stop, .. } = world();
    let get = |path: &str, token: &str| {
        let request = Request::get(path).header(header::AUTHORIZATION, format!("Bearer {token}"));
        api.clone().router().oneshot(request.body(Body::empty()).unwrap())
    };
    let response = get("/v1/replicas", "other-other-other-other").await.unwrap();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    assert_eq!(body, r#"{"replicas":[]}"#);
    let other = get("/v1/events", "other-other-other-other").await.unwrap();
    let own = get("/v1/events?tokens=true", "tokens-tokens-tokens").await.unwrap();
    fleet.events_sender().send(envelope(1)).unwrap();
    let mut chunks = own.into_body().into_data_stream();
    let standing = chunks.next().await.unwrap().unwrap();
    assert!(standing.starts_with(b"event: standing"));
    let envelope = String::from_utf8(chunks.next().await.unwrap().unwrap().to_vec()).unwrap();
    assert!(envelope.contains("\"tokens\":[1,2,3,4]"), "{envelope}");
    stop.cancel();
    let mut chunks = other.into_body().into_data_stream();
    assert!(chunks.next().await.is_none(), "neither standing nor envelope");
}

#[tokio::test]
async fn a_snapshot_shows_salts_only_when_asked_with_the_scope() {
    for (query, shown) in [("?tokens=true", true), ("", false)] {
        let World { api, mut commands, view, .. } = world();
        tokio::spawn(async move {
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
            let mut records = view.snapshot();
            records.iter_mut().for_each(|record| record.salt = Some("SALT".to_owned()));
            let settings = crate::view::ViewSettings::of(
                kvbridge_schemas::Projection::Last8,
                kvbridge_adapters_api::Removal::PerCopy,
                10,
            );
            let view = crate::view::View::install(settings, records).unwrap();
            assert!(answer.send(ViewCut { header, view }).is_ok());
        });
        let request = Request::get(format!("/v1/replicas/{KEY}/snapshot{query}"))
            .header(header::AUTHORIZATION, "Bearer tokens-tokens-tokens")
            .body(Body::empty())
            .unwrap();
        let response = api.router().oneshot(request).await.unwrap();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert_eq!(text.contains("SALT"), shown, "{text}");
        assert!(text.ends_with("{\"end\":true,\"blocks\":2}\n"), "{text}");
    }
}
