//! What a router asks or reports: a prompt, told in exactly one way, and what belongs to it.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
};

use axum::{extract::Request as HttpRequest, http::StatusCode, response::Response};
use kvbridge_schemas::{Replica, ReplicaKey, Trust};
use serde::{
    Deserialize, Deserializer,
    de::{Error, Visitor},
};

use super::{Grant, Problem, Shared, body, fields, route::CandidateJson};
use crate::{
    index::{Answer, Prompt, Query, QueryError},
    pipeline::ReplicaHandle,
    slo::Prediction,
};

/// A prompt above this many items is hashed on a thread of its own, so that short ones do not wait.
const INLINE_ITEM_COUNT_MAX: usize = 16_384;

// No Debug: token ids and salts are customers' secrets.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    model: String,
    token_ids: Option<Vec<u32>>,
    content_hashes: Option<Vec<ContentHash>>,
    block_size: Option<u32>,
    lora: Option<String>,
    salt: Option<String>,
    pub(super) accept: Option<Accept>,
    /// Whether tiers whose engines announce no removals count too.
    pub(super) hints: Option<bool>,
    /// Who could serve it: a route has them, a match has not.
    pub(super) candidates: Option<Vec<CandidateJson>>,
    /// Who served it.
    pub(super) instance: Option<String>,
    pub(super) rank: Option<u32>,
    pub(super) input_tokens: Option<u64>,
    pub(super) cached_tokens: Option<u64>,
    /// What a match or route said of that replica.
    pub(super) predicted_tokens: Option<u64>,
    /// Any name that its turns share.
    pub(super) conversation: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Accept {
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
pub(super) struct Question {
    request: Request,
    told: Told,
}

/// What is asked or reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Match,
    Route,
    Feedback,
    Backfill,
}

impl Question {
    /// Reads a request and has it answered, on a thread of its own if that takes long.
    pub(super) async fn answered(
        api: &Arc<Shared>,
        grant: &Grant,
        request: HttpRequest,
        asked: Asked,
        answer: fn(&Shared, &Question) -> Result<Response, Problem>,
    ) -> Result<Response, Problem> {
        let body = body::read(api, request, api.body_bytes_max()).await?;
        let question = read(api, &body, asked)?;
        if !grant.sees(&question.request.model) {
            let detail = "the token is not for this model";
            return Err(Problem::new(StatusCode::FORBIDDEN, "model_not_allowed", detail));
        }
        if question.told.len() <= INLINE_ITEM_COUNT_MAX {
            return answer(api, &question);
        }
        let api = Arc::clone(api);
        let asked = tokio::task::spawn_blocking(move || answer(&api, &question)).await;
        asked.unwrap_or_else(|_| {
            let detail = "the match was not finished";
            Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "match_failed", detail))
        })
    }

    pub(super) fn model(&self) -> &str {
        &self.request.model
    }

    pub(super) fn candidates(&self) -> &[CandidateJson] {
        self.request.candidates.as_deref().unwrap_or_default()
    }

    /// How long the prompt is; of hashes that of their whole blocks.
    pub(super) fn token_count(&self) -> u64 {
        let count = u64::try_from(self.told.len()).unwrap_or(u64::MAX);
        match &self.told {
            Told::Tokens(_) => count,
            Told::Hashes { block_size, .. } => count.saturating_mul(u64::from(*block_size)),
        }
    }

    /// What the index says, with guesses beside it.
    pub(super) fn ask(&self, api: &Shared) -> Result<Answer, QueryError> {
        let (query, now) = (self.query(), api.pipeline.clock.now());
        let answer = api.pipeline.index.query(&query);
        api.alarms.asked(now, &query, answer.as_ref());
        let mut answer = answer?;
        api.pipeline.index.speculate(&query, &mut answer, api.backfill.mode, now);
        Ok(answer)
    }

    /// The question as the index takes it.
    pub(super) fn query(&self) -> Query<'_> {
        let Question { request, told } = self;
        let prompt = match told {
            Told::Tokens(tokens) => Prompt::Tokens(tokens),
            Told::Hashes { hashes, block_size } => {
                Prompt::Content { hashes, block_size: *block_size }
            }
        };
        Query {
            model: &request.model,
            prompt,
            lora: request.lora.as_deref(),
            salt: request.salt.as_deref(),
            accept: match request.accept {
                Some(Accept::LowerBound) => Trust::LowerBound,
                Some(Accept::Exact) | None => Trust::Exact,
            },
            hints: request.hints.unwrap_or(false),
        }
    }

    /// Who served it.
    pub(super) fn replica(&self, api: &Shared) -> Result<(ReplicaKey, ReplicaHandle), Problem> {
        let Request { model, instance, rank, .. } = &self.request;
        let instance = instance.clone().unwrap_or_default();
        let replica = Replica { model: model.clone(), instance, rank: rank.unwrap_or(0) };
        let key = replica.key();
        let handle = api.pipeline.fleet.get(&key);
        api.alarms.named(model, handle.as_ref().map(|_| &key));
        Ok((key, handle.ok_or_else(Problem::unknown_replica)?))
    }

    /// How long its input was, and how much of it was cached.
    pub(super) fn served_tokens(&self) -> (u64, u64) {
        let Request { input_tokens, cached_tokens, .. } = self.request;
        (input_tokens.unwrap_or(0), cached_tokens.unwrap_or(0))
    }

    /// The conversation it is a turn of.
    pub(super) fn conversation(&self) -> Option<&str> {
        self.request.conversation.as_deref().filter(|name| !name.is_empty())
    }

    /// What was predicted of that replica, or would be now.
    pub(super) fn prediction(&self, api: &Shared, key: &ReplicaKey) -> (Prediction, Option<u64>) {
        if let Some(tokens) = self.request.predicted_tokens {
            return (Prediction::Routed, Some(tokens));
        }
        if self.told.len() == 0 {
            api.alarms.counted(&self.request.model);
            return (Prediction::None, None);
        }
        let answer = self.ask(api).ok();
        let found = answer
            .and_then(|answer| answer.replicas.into_iter().find(|it| it.key == *key && it.usable));
        match found {
            Some(found) => (Prediction::Late, Some(found.matched_tokens)),
            None => (Prediction::None, None),
        }
    }
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

fn read(api: &Shared, body: &[u8], asked: Asked) -> Result<Question, Problem> {
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
        // What a prediction was made of need not be told again.
        (None, None, None) if asked == Asked::Feedback => Told::Tokens(Vec::new()),
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
    fields::check(&request, asked)?;
    Ok(Question { request, told })
}
