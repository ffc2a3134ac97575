//! POST /v1/route: where a request should go. Whatever is unknown of caches, there is an answer: a
//! router that gets none would have to have a rule of its own.

use std::{
    collections::hash_map::RandomState,
    hash::BuildHasher,
    sync::{Arc, atomic::Ordering},
};

use axum::{
    Extension,
    extract::{Request, State},
    response::Response,
};
use kvbridge_schemas::{Replica, ReplicaKey};
use serde::{Deserialize, Serialize};
use tracing::info;

use super::{
    Api, Grant, Problem, Shared, json,
    question::{Asked, Question},
    replicas::NameJson,
};
use crate::{
    config::limits,
    index::{Answer, QueryError},
    route::{self, By, Candidate, Decision, Judged},
};

/// Who could serve the request, and how busy it is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CandidateJson {
    instance: String,
    #[serde(default)]
    rank: u32,
    load: u32,
    capacity: Option<u32>,
}

impl CandidateJson {
    pub(super) fn has_no_capacity(&self) -> bool {
        self.capacity == Some(0)
    }
}

#[derive(Serialize)]
struct RouteJson<'a> {
    model: &'a str,
    choice: ChoiceJson<'a>,
    by: &'static str,
    fallback: Option<&'static str>,
    prompt_tokens: u64,
    candidates: Vec<JudgedJson<'a>>,
}

#[derive(Serialize)]
struct ChoiceJson<'a> {
    key: &'a str,
    replica: NameJson<'a>,
}

#[derive(Serialize)]
struct JudgedJson<'a> {
    key: &'a str,
    replica: NameJson<'a>,
    verdict: &'static str,
    score: f64,
    match_term: f64,
    load_term: f64,
    utilisation: f64,
    matched_tokens: u64,
    /// Behind the matched ones; in the match term below exact trust alone.
    speculative_tokens: u64,
    usable: bool,
    /// Why the replica's match counts or does not: that of its trust.
    reason: &'static str,
}

pub(super) async fn answer(
    State(Api(api)): State<Api>,
    Extension(grant): Extension<Arc<Grant>>,
    request: Request,
) -> Result<Response, Problem> {
    let started = api.pipeline.clock.elapsed();
    let result = Question::answered(&api, &grant, request, Asked::Route, decide).await;
    if result.is_err() {
        api.metrics.routes.refused.increment(1);
    }
    api.metrics.routes.duration.record(api.pipeline.clock.elapsed().saturating_sub(started));
    result
}

/// One candidate with what the index says of it.
struct Known {
    key: ReplicaKey,
    replica: Replica,
    candidate: Candidate,
    usable: bool,
    matched_tokens: u64,
    speculative_tokens: u64,
    reason: &'static str,
}

impl Known {
    fn of(model: &str, it: &CandidateJson, asked: &Result<Answer, QueryError>) -> Known {
        let CandidateJson { instance, rank, load, capacity } = it;
        let replica = Replica { model: model.to_owned(), instance: instance.clone(), rank: *rank };
        let key = replica.key();
        let unknown = Candidate { load: *load, capacity: *capacity, matched_tokens: None };
        let (candidate, found, unfound) = match asked {
            Ok(answer) => {
                let found = answer.replicas.iter().find(|found| found.key == key);
                let candidate = Candidate::found(answer, &key, *load, *capacity);
                (candidate, found, "unknown_replica")
            }
            Err(error) => (unknown, None, error.as_str()),
        };
        Known {
            key,
            replica,
            candidate,
            usable: found.is_some_and(|found| found.usable),
            matched_tokens: found.map_or(0, |found| found.matched_tokens),
            speculative_tokens: found.map_or(0, |found| found.speculative_tokens),
            reason: found.map_or(unfound, |found| found.reason),
        }
    }

    fn json(&self, judged: &Judged) -> JudgedJson<'_> {
        JudgedJson {
            key: self.key.as_str(),
            replica: NameJson::of(&self.replica),
            verdict: judged.verdict.as_str(),
            score: judged.score,
            match_term: judged.match_term,
            load_term: judged.load_term,
            utilisation: judged.utilisation,
            matched_tokens: self.matched_tokens,
            speculative_tokens: self.speculative_tokens,
            usable: self.usable,
            reason: self.reason,
        }
    }
}

fn decide(api: &Shared, question: &Question) -> Result<Response, Problem> {
    let (model, asked) = (question.model(), question.ask(api));
    let known: Vec<Known> =
        question.candidates().iter().map(|it| Known::of(model, it, &asked)).collect();
    let fleet = &api.pipeline.fleet;
    let named = known.iter().map(|it| fleet.has(&it.key).then_some(&it.key));
    api.alarms.candidates(api.pipeline.clock.now(), model, named);
    let candidates: Vec<Candidate> = known.iter().map(|it| it.candidate).collect();
    let prompt_tokens = question.token_count();
    // A fresh `RandomState` has other keys each time: draws need no generator.
    let draw = RandomState::new().hash_one(0_u8);
    let decision = route::choose(&candidates, prompt_tokens, draw)
        .expect("a question without candidates was refused");
    let chosen = &known[decision.chosen];
    note(api, &decision, chosen, prompt_tokens);
    Ok(json(&RouteJson {
        model,
        choice: ChoiceJson { key: chosen.key.as_str(), replica: NameJson::of(&chosen.replica) },
        by: decision.by.as_str(),
        fallback: (decision.by == By::Fallback).then_some("load"),
        prompt_tokens,
        candidates: known
            .iter()
            .zip(&decision.judged)
            .map(|(it, judged)| it.json(judged))
            .collect(),
    }))
}

/// Counts a decision, and logs one of many: enough to see what routing does.
fn note(api: &Shared, decision: &Decision, chosen: &Known, prompt_tokens: u64) {
    api.metrics.routes.decided(decision.by).increment(1);
    let number = api.routes_decided.fetch_add(1, Ordering::Relaxed);
    if !number.is_multiple_of(limits::ROUTE_LOG_ONE_OF) {
        return;
    }
    let judged = &decision.judged[decision.chosen];
    info!(
        replica = chosen.key.as_str(),
        by = decision.by.as_str(),
        reason = chosen.reason,
        matched_tokens = chosen.matched_tokens,
        speculative_tokens = chosen.speculative_tokens,
        prompt_tokens,
        score = judged.score,
        load_term = judged.load_term,
        utilisation = judged.utilisation,
        candidates = decision.judged.len(),
        one_of = limits::ROUTE_LOG_ONE_OF,
        "route decided"
    );
}
