//! POST /v1/route as routers use it.

use axum::http::StatusCode;
use expect_test::expect;
use kvbridge_schemas::Trust;

use super::world_tests::{World, exact, world};
use crate::config::Limits;

#[tokio::test]
async fn a_route_weighs_the_match_against_the_load() {
    let exact = exact();
    let routed = async |world: &World, rest: &str| -> serde_json::Value {
        let body = format!(r#"{{"model":"m","token_ids":[1,2,3,4,5],{rest}}}"#);
        let (status, text) = world.send("POST", "/v1/route", body).await;
        assert_eq!(status, StatusCode::OK, "{text}");
        serde_json::from_str(&text).unwrap()
    };
    let both = |load: u32| {
        format!(
            r#""candidates":[{{"instance":"new:1","load":0,"capacity":64}},{{"instance":"h:8000","load":{load},"capacity":64}}]"#
        )
    };
    let answer = routed(&exact, &both(32)).await;
    expect![[r#"{"by":"prefix","candidates":[{"key":"m.new=3A1.0","load_term":0.0,"match_term":0.0,"matched_tokens":0,"reason":"unknown_replica","replica":{"instance":"new:1","model":"m","rank":0},"score":0.0,"speculative_tokens":0,"usable":false,"utilisation":0.0,"verdict":"shorter_match"},{"key":"m.h=3A8000.0","load_term":0.25,"match_term":0.8,"matched_tokens":4,"reason":"contiguous","replica":{"instance":"h:8000","model":"m","rank":0},"score":0.55,"speculative_tokens":0,"usable":true,"utilisation":0.5,"verdict":"chosen"}],"choice":{"key":"m.h=3A8000.0","replica":{"instance":"h:8000","model":"m","rank":0}},"fallback":null,"model":"m","prompt_tokens":5}"#]]
        .assert_eq(&answer.to_string());
    let full = routed(&exact, &both(64)).await;
    assert_eq!((&full["by"], &full["choice"]["key"]), (&"load".into(), &"m.new=3A1.0".into()));
    // Without anybody to believe, and of a model nobody knows, there is an answer too.
    let none = world(Trust::None, Limits::default());
    for model in ["m", "other"] {
        let body = format!(r#"{{"model":"{model}","token_ids":[1],{}}}"#, both(1));
        let (status, text) = none.send("POST", "/v1/route", body).await;
        assert_eq!(status, StatusCode::OK, "{text}");
        let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&answer["by"], &answer["fallback"]), (&"fallback".into(), &"load".into()));
        assert_eq!(answer["choice"]["replica"]["instance"], "new:1");
    }
    let metrics = none.get("/metrics").await;
    assert!(metrics.contains("kvbridge_routes_total{outcome=\"fallback\"} 2"), "{metrics}");
}

#[tokio::test]
async fn a_route_without_candidates_is_refused_by_name() {
    let exact = exact();
    let too_many = vec![r#"{"instance":"h","load":1}"#; 4097].join(",");
    for (candidates, reason) in [
        (String::new(), "no_candidates"),
        (r#","candidates":[]"#.to_owned(), "no_candidates"),
        (r#","candidates":[{"instance":"h"}]"#.to_owned(), "missing_field"),
        (r#","candidates":[{"instance":"h","load":-1}]"#.to_owned(), "wrong_value"),
        (r#","candidates":[{"instance":"h","load":1,"capacity":0}]"#.to_owned(), "wrong_value"),
        (format!(r#","candidates":[{too_many}]"#), "too_many_candidates"),
    ] {
        let body = format!(r#"{{"model":"m","token_ids":[1]{candidates}}}"#);
        let (status, text) = exact.send("POST", "/v1/route", body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{text}");
        assert!(text.contains(&format!(r#""reason":"{reason}""#)), "{text}");
    }
    let body = r#"{"model":"m","token_ids":[1],"candidates":[]}"#;
    let (_, text) = exact.send("POST", "/v1/match", body).await;
    assert!(text.contains("unknown_field"), "{text}");
}
