//! POST and GET /engines/{key}/kv_cache_events: a replica's events as an engine that is drained
//! tells them, to each consumer all of them.
//!
//! The answer is an array in the engine's own form, at once; there may be more. Token ids and salts
//! are in it with `?tokens=true` only, as everywhere: a router needs the hashes alone.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Path, State},
    http::{StatusCode, Uri},
    response::Response,
};
use kvbridge_schemas::{ExtraKey, ReplicaKey, Tier};
use serde::Serialize;

use super::{Api, Grant, Problem, Scope, Shared, json};
use crate::{
    config::limits::KV_EVENTS_CONSUMER_BYTES_MAX,
    fan_out::FanOut,
    sink_line::{FanEvent, FanRefusal},
    view::Described,
};

/// The priority that the engine gives a block where nobody asked for another one.
const PRIORITY: u32 = 35;

#[derive(Serialize)]
struct EventJson {
    event_id: u64,
    data: DataJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash_algo: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attention_dp_rank: Option<u32>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum DataJson {
    Created { num_blocks_per_cache_level: [u64; 2] },
    Stored { parent_hash: Option<u64>, blocks: Vec<BlockJson> },
    Removed { block_hashes: Vec<u64> },
    Updated { block_hash: u64, cache_level: DiffJson, priority: Option<DiffJson> },
}

#[derive(Serialize)]
struct DiffJson {
    r#type: &'static str,
    new_value: u32,
    old_value: u32,
}

#[derive(Serialize)]
struct BlockJson {
    r#type: &'static str,
    block_hash: u64,
    tokens: Vec<TokenJson>,
    cache_level: u32,
    priority: u32,
    mm_keys: Vec<MediaJson>,
    cache_salt: Option<String>,
}

#[derive(Serialize)]
struct TokenJson {
    r#type: &'static str,
    token_id: u32,
    token_extra_id: u32,
}

#[derive(Serialize)]
struct MediaJson {
    r#type: &'static str,
    hash: String,
    start_offset: i64,
}

/// Who asks, and for what.
struct Asked {
    consumer: String,
    tokens: bool,
}

impl Asked {
    fn read(grant: &Grant, uri: &Uri) -> Result<Asked, Problem> {
        let bad = |reason, detail: &str| Problem::new(StatusCode::BAD_REQUEST, reason, detail);
        let url = format!("http://h/?{}", uri.query().unwrap_or_default());
        let url = reqwest::Url::parse(&url)
            .map_err(|_| bad("unknown_parameter", "the parameters could not be read"))?;
        let (mut consumer, mut tokens) = (String::new(), false);
        for (name, value) in url.query_pairs() {
            match (&*name, &*value) {
                ("consumer", value) => value.clone_into(&mut consumer),
                ("tokens", "true") => tokens = true,
                ("tokens", "false") => tokens = false,
                _ => {
                    let detail = "the parameters are consumer and tokens, true or false";
                    return Err(bad("unknown_parameter", detail));
                }
            }
        }
        if consumer.is_empty() || consumer.len() > KV_EVENTS_CONSUMER_BYTES_MAX {
            let detail = format!(
                "expected ?consumer=NAME of up to {KV_EVENTS_CONSUMER_BYTES_MAX} bytes: each has \
                 a place of its own among the events"
            );
            return Err(bad("no_consumer", &detail));
        }
        if tokens {
            grant.require(Scope::Tokens)?;
        }
        Ok(Asked { consumer, tokens })
    }
}

pub(super) async fn take(
    State(Api(api)): State<Api>,
    Extension(grant): Extension<Arc<Grant>>,
    Path(key): Path<String>,
    uri: Uri,
) -> Result<Response, Problem> {
    let Some(fan_out) = &api.pipeline.fan_out else {
        let detail = "no events are kept for consumers: set [compat.kv_cache_events]";
        return Err(Problem::new(StatusCode::CONFLICT, "kv_events_off", detail));
    };
    let asked = Asked::read(&grant, &uri)?;
    if asked.tokens && !fan_out.has_tokens() {
        let detail = "token ids are not kept: set compat.kv_cache_events.tokens";
        return Err(Problem::new(StatusCode::CONFLICT, "tokens_not_kept", detail));
    }
    let members: Vec<_> =
        fan_out.members(&key).into_iter().filter(|(_, it)| grant.sees(&it.model)).collect();
    let mut events = Vec::new();
    let mut refused = Some(FanRefusal::Gone);
    for (member, replica) in &members {
        // A rank is named where all of them were asked for.
        let rank = (member.as_str() != key).then_some(replica.rank);
        match events_of(&api, fan_out, (member, rank), &asked) {
            Ok(more) => {
                events.extend(more);
                refused = None;
            }
            Err(refusal) => refused = refused.map(|_| refusal),
        }
    }
    match refused {
        None => Ok(json(&events)),
        Some(FanRefusal::Gone) => Err(Problem::unknown_replica()),
        Some(FanRefusal::TooManyConsumers) => {
            let detail = "as many consumers as may be have a place among the events already";
            Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_consumers", detail))
        }
    }
}

fn events_of(
    api: &Shared,
    fan_out: &FanOut,
    (key, rank): (&ReplicaKey, Option<u32>),
    asked: &Asked,
) -> Result<Vec<EventJson>, FanRefusal> {
    let answer = fan_out.take(api.pipeline.clock.now(), key, &asked.consumer)?;
    let handle = api.pipeline.fleet.get(key);
    let pool = handle.as_ref().and_then(|handle| handle.signs.pool_blocks()).unwrap_or(0);
    let hash_algo = handle.and_then(|handle| handle.signs.hash_scheme()).map(|it| algorithm(&it));
    let numbered = (answer.first_id..).zip(answer.events);
    Ok(numbered
        .map(|(event_id, event)| EventJson {
            event_id,
            data: DataJson::of(event, pool, asked.tokens),
            hash_algo: hash_algo.clone(),
            attention_dp_rank: rank,
        })
        .collect())
}

/// The engine's name of an algorithm. Of a digest our numbers are the first eight bytes, and the
/// engine has a name for that too.
fn algorithm(scheme: &str) -> String {
    let name = scheme.split_once('.').map_or(scheme, |(_, name)| name);
    if name.ends_with("_sha256") { format!("{name}_64") } else { name.to_owned() }
}

impl DataJson {
    fn of(event: FanEvent, pool: u64, tokens: bool) -> DataJson {
        match event {
            FanEvent::Created => DataJson::Created { num_blocks_per_cache_level: [pool, 0] },
            FanEvent::Stored { parent, tier, blocks } => {
                let level = level(&tier);
                let block = |(key, described): (u64, Arc<Described>)| {
                    BlockJson::of(key, level, tokens.then_some(&described))
                };
                let blocks = blocks.into_iter().map(block).collect();
                DataJson::Stored { parent_hash: parent, blocks }
            }
            FanEvent::Moved { key, from, to } => {
                let (new_value, old_value) = (level(&to), level(&from));
                let cache_level = DiffJson { r#type: "event_diff", new_value, old_value };
                DataJson::Updated { block_hash: key, cache_level, priority: None }
            }
            FanEvent::Removed(block_hashes) => DataJson::Removed { block_hashes },
        }
    }
}

impl BlockJson {
    fn of(key: u64, cache_level: u32, described: Option<&Arc<Described>>) -> BlockJson {
        let ids = described.map(|it| it.tokens.0.as_slice()).unwrap_or_default();
        let extra = described.map(|it| it.extra.as_slice()).unwrap_or_default();
        let token =
            |id: &u32| TokenJson { r#type: "unique_token", token_id: *id, token_extra_id: 0 };
        let media = |key: &ExtraKey| match key {
            ExtraKey::Item { id, offset } => {
                Some(MediaJson { r#type: "mm_key", hash: id.clone(), start_offset: *offset })
            }
            ExtraKey::Text(_) | ExtraKey::Bytes(_) => None,
        };
        BlockJson {
            r#type: "stored_block",
            block_hash: key,
            tokens: ids.iter().map(token).collect(),
            cache_level,
            priority: PRIORITY,
            mm_keys: extra.iter().filter_map(media).collect(),
            cache_salt: described.and_then(|it| it.salt.as_deref()).map(str::to_owned),
        }
    }
}

fn level(tier: &Tier) -> u32 {
    match tier {
        Tier::Device => 0,
        Tier::Host => 1,
        Tier::Disk | Tier::External | Tier::Other(_) => 2,
    }
}
