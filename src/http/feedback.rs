//! POST /v1/feedback: what came of a request, so that a prediction can be compared with the truth.

use std::{
    collections::{BTreeSet, hash_map::RandomState},
    hash::BuildHasher,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    Extension,
    extract::{Request, State},
    response::Response,
};
use serde::Serialize;

use super::{
    Api, Grant, Problem, Shared, json,
    question::{Asked, Question},
};
use crate::{
    clock::Clock,
    pipeline::{Fleet, ReplicaHandle},
    slo::{Conversations, Prediction, Served, Turn},
    telemetry::FeedbackMetrics,
};

/// What is remembered of requests that were served.
pub(super) struct Feedback {
    conversations: Mutex<Conversations>,
    metrics: Mutex<FeedbackMetrics>,
    /// Its keys are drawn at the start: what is remembered of a conversation's name cannot be
    /// compared with names from elsewhere.
    hasher: RandomState,
}

#[derive(Serialize)]
struct FeedbackJson {
    prediction: &'static str,
    predicted_tokens: Option<u64>,
    turn: Option<&'static str>,
}

pub(super) async fn answer(
    State(Api(api)): State<Api>,
    Extension(grant): Extension<Arc<Grant>>,
    request: Request,
) -> Result<Response, Problem> {
    let result = Question::answered(&api, &grant, request, Asked::Feedback, take).await;
    if result.is_err() {
        api.metrics.feedback_refused.increment(1);
    }
    result
}

fn take(api: &Shared, question: &Question) -> Result<Response, Problem> {
    let (replica, handle) = question.replica(api)?;
    let (input_tokens, cached_tokens) = question.served_tokens();
    let (prediction, predicted) = question.prediction(api, &replica);
    let predicted_tokens = predicted.map(|tokens| tokens.min(input_tokens));
    let feedback = &api.feedback;
    let served = Served {
        replica: feedback.hasher.hash_one(replica.as_str()),
        input_tokens,
        cached_tokens,
        predicted_tokens,
    };
    let turn = feedback.note(&api.pipeline.clock, &handle, question, (prediction, served));
    api.metrics.feedback_taken.increment(1);
    Ok(json(&FeedbackJson {
        prediction: prediction.as_str(),
        predicted_tokens,
        turn: turn.map(Turn::as_str),
    }))
}

impl Feedback {
    pub(super) fn new(fleet: &Fleet) -> Feedback {
        let mut metrics = FeedbackMetrics::default();
        // From the start on all series are there: a rate needs a value to begin with.
        fleet.replicas().for_each(|(key, handle)| metrics.expect(&key, &handle.replica.model));
        Feedback {
            conversations: Mutex::default(),
            metrics: Mutex::new(metrics),
            hasher: RandomState::new(),
        }
    }

    fn note(
        &self,
        clock: &Clock,
        handle: &ReplicaHandle,
        question: &Question,
        (prediction, served): (Prediction, Served),
    ) -> Option<Turn> {
        let model = question.model();
        let turn = question.conversation().map(|name| {
            let id = self.hasher.hash_one((model, name));
            // Single inserts and removals: nothing in them can panic half-way.
            let mut conversations =
                self.conversations.lock().unwrap_or_else(PoisonError::into_inner);
            conversations.note(clock.now(), model, id, served)
        });
        let mut metrics = self.metrics.lock().unwrap_or_else(PoisonError::into_inner);
        handle.signs.served(prediction, served);
        metrics.served(&handle.replica.key(), prediction, served);
        let (turn, again) = turn?;
        metrics.turn(model, turn, again);
        Some(turn)
    }

    /// Sets what is only looked at, and forgets who is served no more.
    pub(super) fn refresh(&self, api: &Shared) {
        let fleet = &api.pipeline.fleet;
        let served: BTreeSet<String> =
            fleet.replicas().map(|(_, handle)| handle.replica.model.clone()).collect();
        let mut conversations = self.conversations.lock().unwrap_or_else(PoisonError::into_inner);
        conversations.keep_models(|model| served.contains(model));
        let mut metrics = self.metrics.lock().unwrap_or_else(PoisonError::into_inner);
        metrics.keep(|key| fleet.has(key), |model| served.contains(model));
        for (model, ratio) in conversations.scatter_ratios(api.pipeline.clock.now()) {
            metrics.scatter_ratio(model, ratio);
        }
    }
}
