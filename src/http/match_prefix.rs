//! POST /v1/match: how much of a prompt each replica of a model holds.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Extension,
    extract::{Request, State},
    response::Response,
};
use serde::Serialize;

use super::{
    Api, Grant, Problem, Shared, json,
    question::{Asked, Question},
    replicas::NameJson,
};
use crate::{
    clock::Clock,
    index::{Answer, ReplicaMatch},
};

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
    /// Behind the matched ones: guesses that no event has confirmed.
    speculative_tokens: u64,
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
    request: Request,
) -> Result<Response, Problem> {
    let started = api.pipeline.clock.elapsed();
    let result = Question::answered(&api, &grant, request, Asked::Match, query).await;
    if result.is_err() {
        api.metrics.matches.refused.increment(1);
    }
    api.metrics.matches.duration.record(api.pipeline.clock.elapsed().saturating_sub(started));
    result
}

fn query(api: &Shared, question: &Question) -> Result<Response, Problem> {
    let answer = question.ask(api)?;
    let outcome = &api.metrics.matches;
    if answer.fallback.is_some() { &outcome.fallback } else { &outcome.usable }.increment(1);
    Ok(json(&encode(question.model(), &answer)))
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
        speculative_tokens: found.speculative_tokens,
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
