//! POST /v1/backfill as routers use it, and what answers show of it.

use axum::http::StatusCode;
use kvbridge_schemas::Trust;
use serde_json::Value;

use super::world_tests::{World, exact, world};
use crate::config::Limits;

async fn told(world: &World, path: &str, body: &str) -> Value {
    let (status, text) = world.send("POST", path, body.to_owned()).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    serde_json::from_str(&text).unwrap()
}

const BACKFILL: &str = r#"{"model":"m","instance":"h:8000","token_ids":[1,2,3,4,5,6,7]}"#;
const MATCH: &str = r#"{"model":"m","token_ids":[1,2,3,4,5,6,8]}"#;
const ROUTE: &str = r#"{"model":"m","token_ids":[1,2,3,4,5,6,8,9],"candidates":[
    {"instance":"new:1","load":0,"capacity":64},{"instance":"h:8000","load":1,"capacity":64}]}"#;

#[tokio::test]
async fn guesses_are_shown_apart_and_route_a_replica_without_trust() {
    let world = world(Trust::None, Limits::default());
    let before = told(&world, "/v1/route", ROUTE).await;
    assert_eq!((&before["by"], &before["fallback"]), (&"fallback".into(), &"load".into()));
    let taken = told(&world, "/v1/backfill", BACKFILL).await;
    assert_eq!((&taken["outcome"], &taken["blocks"]), (&"taken".into(), &3.into()));
    let answer = told(&world, "/v1/match", MATCH).await;
    let found = &answer["replicas"][0];
    assert_eq!((&found["matched_tokens"], &found["speculative_tokens"]), (&0.into(), &6.into()));
    assert_eq!((&found["usable"], &answer["fallback"]), (&false.into(), &"load".into()));
    let routed = told(&world, "/v1/route", ROUTE).await;
    assert_eq!(routed["by"], "prefix");
    let chosen = &routed["candidates"][1];
    assert_eq!((&chosen["verdict"], &chosen["usable"]), (&"chosen".into(), &false.into()));
    assert_eq!((&chosen["matched_tokens"], &chosen["speculative_tokens"]), (&0.into(), &6.into()));
    assert_eq!(chosen["match_term"], 0.75);
    let salted = MATCH.replace("\"model\"", "\"salt\":\"s\",\"model\"");
    let other = told(&world, "/v1/match", &salted).await;
    assert_eq!(other["replicas"][0]["speculative_tokens"], 0, "another salt, other blocks");
    let metrics = world.get("/metrics").await;
    assert!(metrics.contains("kvbridge_backfills_total{outcome=\"taken\"} 1"), "{metrics}");
    assert!(metrics.contains("kvbridge_backfilled_blocks_total 3"), "{metrics}");
}

#[tokio::test]
async fn behind_a_lower_bound_guesses_go_on_where_the_view_ends() {
    let world = world(Trust::LowerBound, Limits::default());
    let taken = told(&world, "/v1/backfill", BACKFILL).await;
    assert_eq!(taken["blocks"], 1, "the view has two");
    for (accept, matched, guessed) in [("exact", 0, 6), ("lower_bound", 4, 2)] {
        let body = MATCH.replace("\"model\"", &format!("\"accept\":\"{accept}\",\"model\""));
        let found = &told(&world, "/v1/match", &body).await["replicas"][0];
        assert_eq!(found["matched_tokens"], matched, "{accept}");
        assert_eq!(found["speculative_tokens"], guessed, "{accept}");
    }
}

#[tokio::test]
async fn an_exact_replica_takes_nothing_and_mistakes_are_named() {
    let world = exact();
    let refused = told(&world, "/v1/backfill", BACKFILL).await;
    assert_eq!((&refused["outcome"], &refused["blocks"]), (&"exact".into(), &0.into()));
    let found = &told(&world, "/v1/match", MATCH).await["replicas"][0];
    assert_eq!((&found["matched_tokens"], &found["speculative_tokens"]), (&4.into(), &0.into()));
    let unproven = self::world(Trust::None, Limits::default());
    for (body, status, reason) in [
        (r#"{"model":"m","instance":"h:8000"}"#, 400, "no_prompt"),
        (r#"{"model":"m","token_ids":[1]}"#, 400, "missing_field"),
        (
            r#"{"model":"m","instance":"h:8000","token_ids":[1],"conversation":"c"}"#,
            400,
            "unknown_field",
        ),
        (r#"{"model":"m","instance":"h:8001","token_ids":[1]}"#, 404, "unknown_replica"),
        (
            r#"{"model":"m","instance":"h:8000","content_hashes":[1],"block_size":3}"#,
            409,
            "block_size_mismatch",
        ),
    ] {
        let (got, text) = unproven.send("POST", "/v1/backfill", body).await;
        assert_eq!(got.as_u16(), status, "{text}");
        assert!(text.contains(&format!(r#""reason":"{reason}""#)), "{text}");
    }
}
