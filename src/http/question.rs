//! What a router asks: a prompt, told in exactly one way. Read the same for a match and a route.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
};

use axum::{extract::Request as HttpRequest, http::StatusCode, response::Response};
use kvbridge_schemas::Trust;
use serde::{
    Deserialize, Deserializer,
    de::{Error, Visitor},
};

use super::{Grant, Problem, Shared, body, route::CandidateJson};
use crate::{
    config::limits,
    index::{Answer, Prompt, Query, QueryError},
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
    /// Who could serve it: a route has them, a match has not.
    candidates: Option<Vec<CandidateJson>>,
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
pub(super) struct Question {
    request: Request,
    told: Told,
}

/// Which of the two is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Match,
    Route,
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

    /// What the index says.
    pub(super) fn ask(&self, api: &Shared) -> Result<Answer, QueryError> {
        let Question { request, told } = self;
        api.alarms.matched(&request.model);
        let prompt = match told {
            Told::Tokens(tokens) => Prompt::Tokens(tokens),
            Told::Hashes { hashes, block_size } => {
                Prompt::Content { hashes, block_size: *block_size }
            }
        };
        api.pipeline.index.query(&Query {
            model: &request.model,
            prompt,
            lora: request.lora.as_deref(),
            salt: request.salt.as_deref(),
            accept: match request.accept {
                Some(Accept::LowerBound) => Trust::LowerBound,
                Some(Accept::Exact) | None => Trust::Exact,
            },
            hints: request.hints,
        })
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
    check_candidates(request.candidates.as_deref(), asked)?;
    Ok(Question { request, told })
}

fn check_candidates(candidates: Option<&[CandidateJson]>, asked: Asked) -> Result<(), Problem> {
    let problem = match (asked, candidates) {
        (Asked::Match, None) => return Ok(()),
        (Asked::Match, Some(_)) => ("unknown_field", "unknown field candidates".to_owned()),
        (Asked::Route, None | Some([])) => {
            ("no_candidates", "expected candidates: who could serve the request".to_owned())
        }
        (Asked::Route, Some(candidates))
            if candidates.len() > limits::ROUTE_CANDIDATE_COUNT_MAX =>
        {
            let max = limits::ROUTE_CANDIDATE_COUNT_MAX;
            ("too_many_candidates", format!("expected at most {max} candidates"))
        }
        (Asked::Route, Some(candidates))
            if candidates.iter().any(CandidateJson::has_no_capacity) =>
        {
            ("wrong_value", "a capacity is above 0, or left out".to_owned())
        }
        (Asked::Route, Some(_)) => return Ok(()),
    };
    Err(Problem::new(StatusCode::BAD_REQUEST, problem.0, problem.1))
}
