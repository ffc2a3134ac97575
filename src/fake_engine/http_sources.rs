//! SHELL. What an engine's server tells of itself: where its events are, and which model it serves.

use std::sync::Arc;

use axum::{Router, extract::State, http::StatusCode, response::Response, routing::get};
use serde_json::{Value, json};

use super::{
    Model, RankPorts,
    http::{Fake, Refusal, Shared, json_response},
};

pub(super) fn router() -> Router<Arc<Shared>> {
    Router::new()
        .route("/kv_event_sources", get(sources))
        .route("/server_info", get(server_info))
        .route("/get_server_info", get(older_server_info))
        .route("/v1/models", get(models))
}

fn absent() -> Refusal {
    Refusal(StatusCode::NOT_FOUND, "Not Found".to_owned())
}

/// As the OpenAI API lists them; an adapter has a parent.
async fn models(State(fake): Fake) -> Response {
    let model = &fake.settings.model;
    let adapters = fake.settings.traffic.loras.iter();
    let adapters = adapters.map(|name| json!({"id": name, "object": "model", "parent": model}));
    let base = json!({"id": model, "object": "model", "root": model, "parent": null});
    let data: Vec<Value> = adapters.chain([base]).collect();
    json_response(&json!({"object": "list", "data": data}))
}

/// Rank to its configuration, as the engine's discovery endpoint of 0.31 has it.
async fn sources(State(fake): Fake) -> Result<Response, Refusal> {
    if !matches!(fake.settings.engine, Model::Paged(release) if release.tells_sources()) {
        return Err(absent());
    }
    let of_rank = |ports: &RankPorts| {
        let config = json!({
            "enable_kv_cache_events": !fake.settings.told.is_mute,
            "publisher": if fake.settings.told.is_mute { "null" } else { "zmq" },
            "endpoint": ports.live,
            "replay_endpoint": (!fake.settings.told.hides_replay).then_some(&ports.replay),
            "buffer_steps": fake.settings.buffer_steps,
            "hwm": 100_000,
            "max_queue_size": 100_000,
            "topic": fake.settings.topic,
        });
        (ports.rank.to_string(), config)
    };
    let map: serde_json::Map<String, Value> = fake.ports.ranks.iter().map(of_rank).collect();
    Ok(json_response(&Value::Object(map)))
}

/// Where events are, as the engine with a tree tells it since 0.5.22. Ports of ranks follow the
/// first one's; free ports do not, so this is of use with `--pub` and `--replay` only.
async fn server_info(State(fake): Fake) -> Result<Response, Refusal> {
    let tells_sources = match fake.settings.engine {
        Model::Drained(release) => return Ok(drained_info(&fake, release.algorithm())),
        // It does not tell of its stream.
        Model::Native(_) => return Ok(drained_info(&fake, "v2_sha256_64")),
        Model::Radix(release) => release.tells_sources(),
        // It has one only for developers.
        Model::Paged(_) => return Err(absent()),
    };
    let port = |endpoint: &str| -> Option<u16> { endpoint.rsplit(':').next()?.parse().ok() };
    let first = fake.ports.ranks.first();
    let base = |of: fn(&RankPorts) -> &str| first.and_then(|ports| port(of(ports)));
    let (live, replay) = (base(|ports| &ports.live), base(|ports| &ports.replay));
    let mut info = json!({
        "page_size": fake.settings.block_size,
        "speculative_algorithm": null,
        "enable_hierarchical_cache": false,
        "kv_events": {
            "publisher": "zmq",
            "endpoint_host": "*",
            "endpoint_port_base": live,
            "topic": fake.settings.topic,
            "block_size": fake.settings.told_block_size(),
            "dp_size": fake.settings.dp,
            "replay_endpoint_port_base": replay,
        },
    });
    if let Some(snapshot) = first.and_then(|ports| port(ports.snapshot.as_ref()?)) {
        info["kv_events"]["snapshot_endpoint_port_base"] = json!(snapshot);
    }
    if !tells_sources || fake.settings.told.is_mute {
        info["kv_events"].take();
    } else if fake.settings.told.hides_replay {
        info["kv_events"]["replay_endpoint_port_base"].take();
    }
    Ok(json_response(&info))
}

fn drained_info(fake: &Shared, algorithm: &str) -> Response {
    json_response(&json!({
        "tokens_per_block": fake.settings.told_block_size(),
        "kv_cache_hash_algo": fake.settings.told.algorithm.as_deref().unwrap_or(algorithm),
    }))
}

/// The same by its older name, which the engine with a tree has kept.
async fn older_server_info(fake: Fake) -> Result<Response, Refusal> {
    match fake.settings.engine {
        Model::Radix(_) => server_info(fake).await,
        Model::Drained(_) | Model::Native(_) | Model::Paged(_) => Err(absent()),
    }
}
