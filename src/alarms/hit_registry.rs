//! PURE. What is told about the alarms of hit rates.

use super::{About, Severity};

pub(super) const ENGINE_HIT_RATE_BELOW_PREDICTION: About = About {
    name: "engine_hit_rate_below_prediction",
    severity: Severity::Critical,
    meaning: "over five minutes the engine had cached ten points less of its input than was predicted",
    first_look: "hashes of the replica in /v1/replicas, and which blocks its snapshot has that the engine has not",
    action: "check that instance, model, lora and salt are told to kvbridge as to the engine; resync the replica and report it",
};

pub(super) const PREDICTION_BELOW_ENGINE: About = About {
    name: "prediction_below_engine",
    severity: Severity::Warning,
    meaning: "over five minutes the engine had cached ten points more of its input than was predicted",
    first_look: "trust and blocks of the replica in /v1/replicas; whether requests are matched by the tokens that the engine sees",
    action: "match the prompt as the engine tokenises it, template included; a view that is lower_bound needs a resync",
};

pub(super) const HIT_RATE_BELOW_BASELINE: About = About {
    name: "hit_rate_below_baseline",
    severity: Severity::Warning,
    meaning: "over five minutes the hit rate is five points below the replica's own of the hour before, within 30 min of a change",
    first_look: "event of the alarm in /v1/alarms: epoch, trust or source, and what the log says at that time",
    action: "wait out a cache that fills anew after an epoch; else undo the change, or resync the replica",
};
