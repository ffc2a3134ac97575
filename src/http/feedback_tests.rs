//! POST /v1/feedback as routers use it.

use axum::http::StatusCode;
use kvbridge_schemas::Trust;

use super::world_tests::{World, exact, world};
use crate::config::Limits;

async fn told(world: &World, rest: &str) -> String {
    let body = format!(r#"{{"model":"m","instance":"h:8000",{rest}}}"#);
    let (status, text) = world.send("POST", "/v1/feedback", body).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    text
}

fn has(metrics: &str, lines: &[&str]) {
    for line in lines {
        assert!(metrics.lines().any(|it| it == *line), "no {line}\n{metrics}");
    }
}

#[tokio::test]
async fn what_was_predicted_is_counted_beside_what_was_cached() {
    let exact = exact();
    let routed = told(&exact, r#""input_tokens":5,"cached_tokens":2,"predicted_tokens":4"#).await;
    assert_eq!(routed, r#"{"prediction":"routed","predicted_tokens":4,"turn":null}"#);
    let late = told(&exact, r#""token_ids":[1,2,9],"input_tokens":3,"cached_tokens":3"#).await;
    assert_eq!(late, r#"{"prediction":"late","predicted_tokens":2,"turn":null}"#);
    let none = told(&exact, r#""input_tokens":7,"cached_tokens":1"#).await;
    assert_eq!(none, r#"{"prediction":"none","predicted_tokens":null,"turn":null}"#);
    let replica = r#"replica="m.h=3A8000.0""#;
    let count = |what: &str, prediction: &str, count: u64| {
        format!("kvbridge_{what}_tokens_total{{{replica},prediction=\"{prediction}\"}} {count}")
    };
    let lines = [
        count("input", "routed", 5),
        count("cached", "routed", 2),
        count("predicted", "routed", 4),
        count("input", "late", 3),
        count("cached", "late", 3),
        count("predicted", "late", 2),
        count("input", "none", 7),
        count("cached", "none", 1),
        count("predicted", "none", 0),
    ];
    let metrics = exact.get("/metrics").await;
    has(&metrics, &lines.each_ref().map(String::as_str));
    // A replica that may not be matched predicts nothing, and its requests count all the same.
    let unproven = world(Trust::None, Limits::default());
    let none = told(&unproven, r#""token_ids":[1,2],"input_tokens":2,"cached_tokens":2"#).await;
    assert_eq!(none, r#"{"prediction":"none","predicted_tokens":null,"turn":null}"#);
}

#[tokio::test]
async fn turns_are_told_apart_and_no_name_is_shown() {
    let world = exact();
    for (rest, turn) in [
        (r#""conversation":"alice","input_tokens":100,"cached_tokens":0"#, "\"first\""),
        (r#""conversation":"alice","input_tokens":150,"cached_tokens":96"#, "\"follow_up\""),
        (
            r#""conversation":"alice","input_tokens":200,"cached_tokens":0,"predicted_tokens":50"#,
            "\"scattered\"",
        ),
        (r#""conversation":"bob","input_tokens":200,"cached_tokens":0"#, "\"first\""),
        (r#""conversation":"","input_tokens":200,"cached_tokens":0"#, "null"),
    ] {
        let text = told(&world, rest).await;
        assert!(text.ends_with(&format!("\"turn\":{turn}}}")), "{rest}: {text}");
    }
    let metrics = world.get("/metrics").await;
    has(
        &metrics,
        &[
            r#"kvbridge_turns_total{model="m",turn="first"} 2"#,
            r#"kvbridge_turns_total{model="m",turn="follow_up"} 1"#,
            r#"kvbridge_turns_total{model="m",turn="scattered"} 1"#,
            r#"kvbridge_turn_scatter_ratio{model="m"} 0.5"#,
            r#"kvbridge_reprefilled_tokens_total{model="m",reason="scattered"} 0"#,
            r#"kvbridge_reprefilled_tokens_total{model="m",reason="evicted"} 100"#,
            r#"kvbridge_reprefilled_tokens_total{model="m",reason="unknown"} 54"#,
            r#"kvbridge_feedback_total{outcome="taken"} 5"#,
        ],
    );
    assert!(!metrics.contains("alice") && !metrics.contains("bob"));
}

#[tokio::test]
async fn a_report_that_cannot_be_right_is_refused_by_name() {
    let world = exact();
    for (body, status, reason) in [
        (r#"{"model":"m","instance":"h:8000","input_tokens":1}"#, 400, "missing_field"),
        (r#"{"model":"m","input_tokens":1,"cached_tokens":1}"#, 400, "missing_field"),
        (
            r#"{"model":"m","instance":"h:8000","input_tokens":1,"cached_tokens":2}"#,
            400,
            "wrong_value",
        ),
        (
            r#"{"model":"m","instance":"h:8000","input_tokens":1,"cached_tokens":-1}"#,
            400,
            "wrong_value",
        ),
        (
            r#"{"model":"m","instance":"h:8000","input_tokens":1,"cached_tokens":1,"accept":"exact"}"#,
            400,
            "unknown_field",
        ),
        (
            r#"{"model":"m","instance":"h:8001","input_tokens":1,"cached_tokens":1}"#,
            404,
            "unknown_replica",
        ),
        (
            r#"{"model":"x","instance":"h:8000","input_tokens":1,"cached_tokens":1}"#,
            404,
            "unknown_replica",
        ),
    ] {
        let (got, text) = world.send("POST", "/v1/feedback", body).await;
        assert_eq!(got.as_u16(), status, "{text}");
        assert!(text.contains(&format!(r#""reason":"{reason}""#)), "{text}");
    }
    let (_, text) =
        world.send("POST", "/v1/match", r#"{"model":"m","token_ids":[1],"rank":0}"#).await;
    assert!(text.contains("unknown field rank"), "{text}");
    let metrics = world.get("/metrics").await;
    has(&metrics, &[r#"kvbridge_feedback_total{outcome="refused"} 7"#]);
}
