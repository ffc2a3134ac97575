//! POST /v1/match: how much of a prompt each replica of a model holds.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, atomic::Ordering},
};

use axum::{
    Extension,
    extract::{Request as HttpRequest, State},
    http::StatusCode,
    response::Response,
};
use kvbridge_schemas::Trust;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, Visitor},
};

use super::{Api, Grant, Problem, Shared, body, json, replicas::NameJson};
use crate::{
    clock::Clock,
    index::{Answer, Prompt, Query, ReplicaMatch},
};

/// A prompt above this many items is hashed on a thread of its own, so that short ones do not wait.
const INLINE_ITEM_COUNT_MAX: usize = 16_384;

// No Debug: token ids and salts are customers' secrets.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    model: String,
    token_ids: Option<Vec<u32>>,
    content_hashes: Option<Vec<ContentHash>>,
    block_size: Option<u32>,
    lora: Option<String>,
    salt: Option<String>,
    accept: Option<Accept>,
    /// Whether tiers whose engines announce no removals count too.
    #[serde(default)]
    hints: bool,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Accept {
    Exact,
    LowerBound,
}

/// A content hash: 16 hex digits as in envelopes, or the number itself.
struct ContentHash(u64);

impl<'de> Deserialize<'de> for ContentHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ContentHash, D::Error> {
        deserializer.deserialize_any(ContentHashVisitor)
    }
}

struct ContentHashVisitor;

impl Visitor<'_> for ContentHashVisitor {
    type Value = ContentHash;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("16 hex digits")
    }

    fn visit_u64<E: Error>(self, hash: u64) -> Result<ContentHash, E> {
        Ok(ContentHash(hash))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<ContentHash, E> {
        let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let hash = digits.then(|| u64::from_str_radix(text, 16).ok()).flatten();
        hash.map(ContentHash).ok_or_else(|| E::custom("expected 16 hex digits"))
    }
}

/// A request whose prompt is told in exactly one way.
struct Question {
    request: Request,
    told: Told,
}

enum Told {
    Tokens(Vec<u32>),
    Hashes { hashes: Vec<u64>, block_size: u32 },
}

impl Told {
    fn len(&self) -> usize {
        match self {
            Told::Tokens(tokens) => tokens.len(),
            Told::Hashes { hashes, .. } => hashes.len(),
        }
    }
}

#[derive(Serialize)]
struct AnswerJson<'a> {
    model: &'a str,
    fallback: Option<&'static str>,
    replicas: Vec<MatchJson<'a>>,
}

#[derive(Serialize)]
struct MatchJson<'a> {
    key: &'a str,
    replica: NameJson<'a>,
    trust: &'static str,
    usable: bool,
    reason: &'static str,
    block_size: Option<u32>,
    matched_blocks: u64,
    matched_tokens: u64,
    /// Blocks; each entry counts those of the tiers before it too.
    by_tier: BTreeMap<&'a str, u64>,
    as_of: AsOfJson,
}

#[derive(Serialize)]
struct AsOfJson {
    epoch: u64,
    next_seq: u64,
    age_ms: u64,
}

pub(super) async fn answer(
    State(Api(api)): State<Api>,
    Extension(grant): Extension<Arc<Grant>>,
    request: HttpRequest,
) -> Result<Response, Problem> {
    let started = api.pipeline.clock.elapsed();
    let result = async {
        let body = body::read(&api, request, api.body_bytes_max()).await?;
        let question = read(&api, &body)?;
        if !grant.sees(&question.request.model) {
            let detail = "the token is not for this model";
            return Err(Problem::new(StatusCode::FORBIDDEN, "model_not_allowed", detail));
        }
        if question.told.len() <= INLINE_ITEM_COUNT_MAX {
            return query(&api, &question);
        }
        let api = Arc::clone(&api);
        let asked = tokio::task::spawn_blocking(move || query(&api, &question)).await;
        asked.unwrap_or_else(|_| {
            let detail = "the match was not finished";
            Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "match_failed", detail))
        })
    }
    .await;
    if result.is_err() {
        api.metrics.matches.refused.increment(1);
    }
    api.metrics.matches.duration.record(api.pipeline.clock.elapsed().saturating_sub(started));
    result
}

fn query(api: &Shared, Question { request, told }: &Question) -> Result<Response, Problem> {
    api.alarms.matched(&request.model);
    let prompt = match told {
        Told::Tokens(tokens) => Prompt::Tokens(tokens),
        Told::Hashes { hashes, block_size } => Prompt::Content { hashes, block_size: *block_size },
    };
    let answer = api.pipeline.index.query(&Query {
        model: &request.model,
        prompt,
        lora: request.lora.as_deref(),
        salt: request.salt.as_deref(),
        accept: match request.accept {
            Some(Accept::LowerBound) => Trust::LowerBound,
            Some(Accept::Exact) | None => Trust::Exact,
        },
        hints: request.hints,
    })?;
    let outcome = &api.metrics.matches;
    if answer.fallback.is_some() { &outcome.fallback } else { &outcome.usable }.increment(1);
    Ok(json(&encode(&request.model, &answer)))
}

fn encode<'a>(model: &'a str, answer: &'a Answer) -> AnswerJson<'a> {
    let now_ms = Clock::unix_ms();
    let of = |found: &'a ReplicaMatch| MatchJson {
        key: found.key.as_str(),
        replica: NameJson::of(&found.replica),
        trust: found.trust.device.as_str(),
        usable: found.usable,
        reason: found.reason,
        block_size: found.block_size,
        matched_blocks: found.matched_blocks,
        matched_tokens: found.matched_tokens,
        by_tier: found.by_tier.iter().map(|tier| (tier.tier.as_str(), tier.blocks)).collect(),
        as_of: AsOfJson {
            epoch: found.as_of.cursor.epoch.0,
            next_seq: found.as_of.cursor.next_seq.0,
            age_ms: now_ms.saturating_sub(found.as_of.at_ms),
        },
    };
    AnswerJson {
        model,
        fallback: answer.fallback,
        replicas: answer.replicas.iter().map(of).collect(),
    }
}

fn read(api: &Shared, body: &[u8]) -> Result<Question, Problem> {
    let bad = |reason, detail: String| Problem::new(StatusCode::BAD_REQUEST, reason, detail);
    let mut request: Request = body::parse(body)?;
    let told = match (request.token_ids.take(), request.content_hashes.take(), request.block_size) {
        (Some(tokens), None, None) => Told::Tokens(tokens),
        (None, Some(hashes), Some(block_size)) if block_size > 0 => {
            Told::Hashes { hashes: hashes.into_iter().map(|hash| hash.0).collect(), block_size }
        }
        (None, Some(_), _) => {
            return Err(bad(
                "no_block_size",
                "content_hashes need a block_size above 0".to_owned(),
            ));
        }
        (Some(_), None, Some(_)) => {
            let detail = "token_ids take no block_size: each replica is hashed with its own";
            return Err(bad("block_size_with_tokens", detail.to_owned()));
        }
        (Some(_), Some(_), _) | (None, None, _) => {
            let detail = "expected either token_ids or content_hashes with block_size";
            return Err(bad("no_prompt", detail.to_owned()));
        }
    };
    let max =
        usize::try_from(api.match_token_count_max.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
    if told.len() > max {
        let detail = format!("expected at most {max} items, {} came", told.len());
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "prompt_too_long", detail));
    }
    Ok(Question { request, told })
}
