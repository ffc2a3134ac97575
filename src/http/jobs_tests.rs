//! Orders of jobs as operators send them, and what is refused.

use axum::{
    body::{Body, to_bytes},
    http::{Request, StatusCode, header},
};
use kvbridge_schemas::Trust;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::{
    Access,
    world_tests::{KEY, World, exact, guarded},
};
use crate::config::Limits;

const TOKENS: &str = r#"
    [[tokens]]
    token = "own-own-own-own-own"
    scopes = ["read", "write"]
    models = ["m"]
    [[tokens]]
    token = "other-other-other"
    scopes = ["read", "write"]
    models = ["other"]
"#;

async fn asked(world: &World, request: (&str, &str), body: Value) -> (u16, Value) {
    let (status, text) = world.send(request.0, request.1, body.to_string()).await;
    (status.as_u16(), serde_json::from_str(&text).unwrap())
}

#[tokio::test]
async fn an_order_is_shown_kept_and_cancelled() {
    let world = exact();
    let order = json!({"model": "m", "wait": "lower_bound", "timeout": "5s", "max_parallel": 3});
    let (status, job) = asked(&world, ("POST", "/v1/resync"), order).await;
    assert_eq!(status, 202);
    let expected = json!({
        "id": 1, "verb": "resync", "trigger": "operator", "state": "running",
        "wait": "lower_bound", "timeout_ms": 5_000, "max_parallel": 3,
        "replicas": [{"key": KEY, "state": "waiting", "trust": "none", "trust_reason": ""}],
    });
    assert_eq!(job, expected);
    assert_eq!(asked(&world, ("GET", "/v1/jobs/1"), json!(null)).await, (200, expected.clone()));
    let (_, all) = asked(&world, ("GET", "/v1/jobs"), json!(null)).await;
    assert_eq!(all, json!({"jobs": [expected]}));
    let (status, cancelled) = asked(&world, ("DELETE", "/v1/jobs/1"), json!(null)).await;
    assert_eq!((status, &cancelled["state"]), (200, &json!("cancelled")));
    assert_eq!(cancelled["replicas"][0]["reason"], "cancelled");
    let (status, again) = asked(&world, ("DELETE", "/v1/jobs/1"), json!(null)).await;
    assert_eq!((status, again), (200, cancelled), "it is over, and stays as it is");
    let defaults = asked(&world, ("POST", "/v1/resync"), json!({"all": true})).await.1;
    assert_eq!(
        (&defaults["wait"], &defaults["timeout_ms"], &defaults["max_parallel"]),
        (&json!("exact"), &json!(120_000), &json!(2))
    );
}

#[tokio::test]
async fn an_engine_that_nobody_knows_how_to_ask_is_named() {
    let world = exact();
    let (status, job) = asked(&world, ("POST", "/v1/flush"), json!({"replica": KEY})).await;
    assert_eq!((status, &job["state"]), (202, &json!("not_reached")));
    let replica = &job["replicas"][0];
    assert_eq!((&replica["state"], &replica["reason"]), (&json!("failed"), &json!("no_flush_url")));
    assert!(replica["detail"].as_str().unwrap().contains("sources.flush"));
}

#[tokio::test]
async fn what_is_wrong_with_an_order_is_named() {
    let world = exact();
    for (body, status, reason) in [
        (json!({}), 400, "no_selector"),
        (json!({"all": false}), 400, "no_selector"),
        (json!({"all": true, "model": "m"}), 400, "no_selector"),
        (json!({"all": true, "wait": "none"}), 400, "wrong_value"),
        (json!({"all": true, "timeout": "soon"}), 400, "wrong_value"),
        (json!({"all": true, "timeout": "0s"}), 400, "wrong_value"),
        (json!({"all": true, "timeout": "25h"}), 400, "wrong_value"),
        (json!({"all": true, "max_parallel": 0}), 400, "wrong_value"),
        (json!({"all": true, "max_parallel": 257}), 400, "wrong_value"),
        (json!({"all": true, "colour": 1}), 400, "unknown_field"),
        (json!({"model": "x"}), 404, "unknown_model"),
        (json!({"replica": "x"}), 404, "unknown_replica"),
        (json!({"model": "x".repeat(20_000)}), 413, "body_too_large"),
    ] {
        let (got, problem) = asked(&world, ("POST", "/v1/resync"), body.clone()).await;
        assert_eq!((got, &problem["reason"]), (status, &json!(reason)), "{body}");
    }
    for id in ["7", "x", "-1"] {
        let (status, problem) = asked(&world, ("GET", &format!("/v1/jobs/{id}")), json!(0)).await;
        assert_eq!((status, &problem["reason"]), (404, &json!("unknown_job")));
    }
    for _ in 0..8 {
        assert_eq!(asked(&world, ("POST", "/v1/resync"), json!({"all": true})).await.0, 202);
    }
    let (status, problem) = asked(&world, ("POST", "/v1/resync"), json!({"all": true})).await;
    assert_eq!((status, &problem["reason"]), (409, &json!("too_many_jobs")));
}

#[tokio::test]
async fn another_models_token_neither_orders_nor_sees() {
    let world = guarded(Trust::Exact, Limits::default(), Access::of(TOKENS));
    let send = async |token: &str, method: &str, path: &str| {
        let request = Request::builder().method(method).uri(path);
        let request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        let request = request.body(Body::from(r#"{"all":true}"#)).unwrap();
        let response = world.api.clone().router().oneshot(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    };
    let (own, other) = ("own-own-own-own-own", "other-other-other");
    let (status, body) = send(other, "POST", "/v1/resync").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(body.contains("no_replicas"), "{body}");
    assert_eq!(send(own, "POST", "/v1/resync").await.0, StatusCode::ACCEPTED);
    assert_eq!(send(other, "GET", "/v1/jobs").await.1, r#"{"jobs":[]}"#);
    for method in ["GET", "DELETE"] {
        assert_eq!(send(other, method, "/v1/jobs/1").await.0, StatusCode::NOT_FOUND);
    }
    assert!(send(own, "GET", "/v1/jobs/1").await.1.contains("\"running\""));
    assert_eq!(send(own, "DELETE", "/v1/jobs/1").await.0, StatusCode::OK);
}
