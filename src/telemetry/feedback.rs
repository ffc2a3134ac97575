//! Handles of what routers report. Made when a replica or model is first reported of, and kept.

use std::collections::BTreeMap;

use kvbridge_schemas::ReplicaKey;
use metrics::{Counter, Gauge, Label, counter, gauge};

use super::{label, name};
use crate::slo::{Prediction, Reprefilled, Served, Turn};

/// What the metrics of this file say.
pub(super) fn describe() {
    for (metric, text) in [
        (name::FEEDBACK, "reports of requests that were served"),
        (name::INPUT_TOKENS, "input tokens of requests that were reported"),
        (name::CACHED_TOKENS, "of these, what the engines had cached"),
        (name::PREDICTED_TOKENS, "of these, what was predicted to be cached"),
        (name::TURNS, "turns of conversations"),
        (name::REPREFILLED, "tokens of an earlier turn that were computed again"),
        (name::BACKFILLS, "what routers said that replicas computed"),
        (name::BACKFILLED, "blocks guessed by it"),
        (name::BACKFILL_EVICTED, "guesses that made room for others before their time"),
        (name::ENGINE_INPUT_TOKENS, "tokens that the engine says it looked up in its cache"),
        (name::ENGINE_CACHED_TOKENS, "of these, those that it had"),
    ] {
        metrics::describe_counter!(metric, text);
    }
    let text = "part of the follow-up turns with under half of the input cached";
    metrics::describe_gauge!(name::SCATTER_RATIO, text);
}

/// Handles by replica and by model. Only what the fleet serves is reported of.
#[derive(Default)]
pub struct FeedbackMetrics {
    replicas: BTreeMap<ReplicaKey, [Tokens; Prediction::ALL.len()]>,
    models: BTreeMap<String, Turns>,
}

/// Tokens of requests whose prediction came from one place: only these may be compared.
struct Tokens {
    prediction: Prediction,
    input: Counter,
    cached: Counter,
    predicted: Counter,
}

struct Turns {
    turns: [(Turn, Counter); Turn::ALL.len()],
    reprefilled: [Counter; 3],
    scatter_ratio: Gauge,
}

impl FeedbackMetrics {
    /// Requests of a replica may be reported.
    pub fn expect(&mut self, key: &ReplicaKey, model: &str) {
        let register = || Prediction::ALL.map(|prediction| Tokens::register(key, prediction));
        self.replicas.entry(key.clone()).or_insert_with(register);
        self.model(model);
    }

    /// A request was served.
    pub fn served(&mut self, key: &ReplicaKey, prediction: Prediction, served: Served) {
        let register = || Prediction::ALL.map(|prediction| Tokens::register(key, prediction));
        let of_key = self.replicas.entry(key.clone()).or_insert_with(register);
        for tokens in of_key.iter().filter(|tokens| tokens.prediction == prediction) {
            tokens.input.increment(served.input_tokens);
            tokens.cached.increment(served.cached_tokens);
            tokens.predicted.increment(served.predicted_tokens.unwrap_or(0));
        }
    }

    /// It was a turn of a conversation.
    pub fn turn(&mut self, model: &str, turn: Turn, again: Reprefilled) {
        let turns = self.model(model);
        for (_, count) in turns.turns.iter().filter(|(it, _)| *it == turn) {
            count.increment(1);
        }
        let Reprefilled { scattered, evicted, unknown } = again;
        for (count, tokens) in turns.reprefilled.iter().zip([scattered, evicted, unknown]) {
            count.increment(tokens);
        }
    }

    /// Shows the share of scattered turns.
    pub fn scatter_ratio(&mut self, model: &str, ratio: f64) {
        self.model(model).scatter_ratio.set(ratio);
    }

    /// Forgets the rest. A model that is gone shows no share.
    pub fn keep(
        &mut self,
        has_replica: impl Fn(&ReplicaKey) -> bool,
        has_model: impl Fn(&str) -> bool,
    ) {
        self.replicas.retain(|key, _| has_replica(key));
        for (_, turns) in self.models.iter().filter(|(model, _)| !has_model(model)) {
            turns.scatter_ratio.set(0.0);
        }
        self.models.retain(|model, _| has_model(model));
    }

    fn model(&mut self, model: &str) -> &mut Turns {
        self.models.entry(model.to_owned()).or_insert_with(|| Turns::register(model))
    }
}

impl Tokens {
    fn register(key: &ReplicaKey, prediction: Prediction) -> Tokens {
        let count = |name: &'static str| {
            let labels = vec![
                Label::new(label::REPLICA, key.to_string()),
                Label::new(label::PREDICTION, prediction.as_str()),
            ];
            counter!(name, labels)
        };
        Tokens {
            prediction,
            input: count(name::INPUT_TOKENS),
            cached: count(name::CACHED_TOKENS),
            predicted: count(name::PREDICTED_TOKENS),
        }
    }
}

impl Turns {
    fn register(model: &str) -> Turns {
        let with = |label: &'static str, value: &'static str| {
            vec![Label::new(label::MODEL, model.to_owned()), Label::new(label, value)]
        };
        Turns {
            turns: Turn::ALL
                .map(|turn| (turn, counter!(name::TURNS, with(label::TURN, turn.as_str())))),
            reprefilled: ["scattered", "evicted", "unknown"]
                .map(|reason| counter!(name::REPREFILLED, with(label::REASON, reason))),
            scatter_ratio: gauge!(name::SCATTER_RATIO, label::MODEL => model.to_owned()),
        }
    }
}

/// Handles of what routers said that replicas computed.
pub struct Backfills {
    /// It was taken.
    pub taken: Counter,
    /// Nothing is taken.
    pub off: Counter,
    /// The replica's own events are believed.
    pub exact: Counter,
    /// It could not be read, or is of a replica that nobody knows.
    pub refused: Counter,
    /// See [`name::BACKFILLED`].
    pub blocks: Counter,
    /// See [`name::BACKFILL_EVICTED`].
    pub evicted: Counter,
}

impl Backfills {
    /// Registers the handles.
    pub(super) fn register() -> Backfills {
        let outcome = |word: &'static str| counter!(name::BACKFILLS, label::OUTCOME => word);
        Backfills {
            taken: outcome("taken"),
            off: outcome("off"),
            exact: outcome("exact"),
            refused: outcome("refused"),
            blocks: counter!(name::BACKFILLED),
            evicted: counter!(name::BACKFILL_EVICTED),
        }
    }
}

/// Handles of what an engine's own metrics say of its cache.
pub struct EngineHits {
    input: Counter,
    cached: Counter,
    /// What it said last.
    said: (u64, u64),
}

impl EngineHits {
    /// Registers the handles of a replica.
    pub fn register(key: &ReplicaKey) -> EngineHits {
        EngineHits {
            input: counter!(name::ENGINE_INPUT_TOKENS, label::REPLICA => key.to_string()),
            cached: counter!(name::ENGINE_CACHED_TOKENS, label::REPLICA => key.to_string()),
            said: (0, 0),
        }
    }

    /// What it says now. Behind an engine that starts anew the counters go on.
    pub fn set(&mut self, (input, cached): (u64, u64)) {
        let added = |now: u64, said: u64| now.checked_sub(said).unwrap_or(now);
        self.input.increment(added(input, self.said.0));
        self.cached.increment(added(cached, self.said.1));
        self.said = (input, cached);
    }
}
