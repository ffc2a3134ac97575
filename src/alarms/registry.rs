//! PURE. Every alarm with what it means, where to look first and what to do.

use super::bus_registry::{
    BRIDGE_SILENT, BUS_RESET, BUS_RETENTION_PASSED, COMPETING_CONSUMER, FAN_OUT_LAGGING,
    LOG_BEHIND, SINK_LAGGING, SNAPSHOT_FAILED, TAIL_LOSS, TWO_PUBLISHERS,
};
use super::hit_registry::{
    ENGINE_HIT_RATE_BELOW_PREDICTION, HIT_RATE_BELOW_BASELINE, PREDICTION_BELOW_ENGINE,
};
use super::signal_registry::{
    BLOCK_SIZE_MISMATCH, CLOCK_SKEW, INSTANCE_NAME_MISMATCH, PERMANENT_HOLE, REPLAY_TRUNCATED,
    ROLLBACK, SOURCE_GONE, VIEW_EMPTY_UNDER_TRAFFIC, ZERO_MATCHES_ON_REPEATED_PREFIXES,
};

/// How soon somebody must look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Routing is worse than it could be; this working day.
    Warning,
    /// The cache signal of a replica is dead or cannot be believed; now.
    Critical,
}

impl Severity {
    /// The word shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        }
    }
}

/// One way in which the cache signal of a replica can die.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Alarm {
    /// Requests come, events do not.
    StreamSilent,
    /// Missing batches do not come back.
    GapOpen,
    /// Something of the engine's batches cannot be read.
    UndecodableEvents,
    /// The view holds more than the engine's device can.
    ViewOverCapacity,
    /// The view was given up.
    OverLimit,
    /// The engine's journal does not answer.
    ReplayUnusable,
    /// Two engines answer under one name, or bridges that read them otherwise.
    TwoPublishers,
    /// Another reader takes an engine's events away.
    CompetingConsumer,
    /// No bridge speaks for the log.
    BridgeSilent,
    /// The log takes nothing any more.
    LogBehind,
    /// The log is another one, or without what it had.
    BusReset,
    /// Messages went before they were read.
    BusRetentionPassed,
    /// Batches that a bridge vouched for did not come.
    TailLoss,
    /// Views on the bus are out of reach.
    SnapshotFailed,
    /// A sink fell behind.
    SinkLagging,
    /// The fan-out fell behind.
    FanOutLagging,
    /// Announced tokens do not give the announced hashes.
    HashSchemeMismatch,
    /// One of an instance's ranks never said anything.
    RankMissing,
    /// The engine does not have what the view says.
    EngineHitRateBelowPrediction,
    /// The engine has what the view does not know.
    PredictionBelowEngine,
    /// Less is cached than before something changed.
    HitRateBelowBaseline,
    /// Requests are served, and the view holds nothing.
    ViewEmptyUnderTraffic,
    /// Prompts that begin alike match nothing.
    ZeroMatchesOnRepeatedPrefixes,
    /// Routers send blocks of another size.
    BlockSizeMismatch,
    /// The engine's numbers went backwards.
    Rollback,
    /// The engine's journal did not reach back.
    ReplayTruncated,
    /// Batches were lost for good.
    PermanentHole,
    /// The source is out of reach.
    SourceGone,
    /// The engine's clock and ours differ.
    ClockSkew,
    /// Routers call the replica by another name.
    InstanceNameMismatch,
}

/// What is told about an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// Label of the metric, heading of the runbook.
    pub name: &'static str,
    /// How soon to look.
    pub severity: Severity,
    /// What is the case.
    pub meaning: &'static str,
    /// Where to look first.
    pub first_look: &'static str,
    /// What ends it.
    pub action: &'static str,
}

const HASH_SCHEME_MISMATCH: About = About {
    name: "hash_scheme_mismatch",
    severity: Severity::Warning,
    meaning: "the tokens that the engine announces do not give the block hashes it announces",
    first_look: "hashes of the replica in /v1/replicas; sources.hash_scheme and hash_seed against the engine's options",
    action: "correct hash_scheme or hash_seed; if they are right, route by engine hashes alone and report it",
};

const RANK_MISSING: About = About {
    name: "rank_missing",
    severity: Severity::Warning,
    meaning: "other ranks of this instance send batches, and this one never sent any",
    first_look: "sources.dp against the engine's own number of ranks, and this rank's ports",
    action: "correct dp or the ports; if they are right see whether the rank serves and publishes",
};

impl Alarm {
    /// All of them.
    pub const ALL: [Alarm; 30] = [
        Alarm::StreamSilent,
        Alarm::GapOpen,
        Alarm::UndecodableEvents,
        Alarm::ViewOverCapacity,
        Alarm::OverLimit,
        Alarm::ReplayUnusable,
        Alarm::TwoPublishers,
        Alarm::CompetingConsumer,
        Alarm::BridgeSilent,
        Alarm::LogBehind,
        Alarm::BusReset,
        Alarm::BusRetentionPassed,
        Alarm::TailLoss,
        Alarm::SnapshotFailed,
        Alarm::SinkLagging,
        Alarm::FanOutLagging,
        Alarm::HashSchemeMismatch,
        Alarm::RankMissing,
        Alarm::EngineHitRateBelowPrediction,
        Alarm::PredictionBelowEngine,
        Alarm::HitRateBelowBaseline,
        Alarm::ViewEmptyUnderTraffic,
        Alarm::ZeroMatchesOnRepeatedPrefixes,
        Alarm::BlockSizeMismatch,
        Alarm::Rollback,
        Alarm::ReplayTruncated,
        Alarm::PermanentHole,
        Alarm::SourceGone,
        Alarm::ClockSkew,
        Alarm::InstanceNameMismatch,
    ];

    /// What is told about it.
    pub fn about(self) -> About {
        match self {
            Alarm::StreamSilent => About {
                name: "stream_silent",
                severity: Severity::Critical,
                meaning: "routers ask for this model, and the engine has sent no batch for 30 s",
                first_look: "kvbridge_source_connections_total and kvbridge tail on the engine's endpoint",
                action: "check that the engine runs with KV events on and that the port is the event port",
            },
            Alarm::GapOpen => About {
                name: "gap_open",
                severity: Severity::Critical,
                meaning: "batches are missing for over 10 s and the replay has not brought them",
                first_look: "kvbridge_source_replay_failures_total and the replica's facts in the log",
                action: "make the replay port reachable, or give the engine a longer journal, then resync",
            },
            Alarm::UndecodableEvents => About {
                name: "undecodable_events",
                severity: Severity::Critical,
                meaning: "events of this engine could not be read in the last minute",
                first_look: "kvbridge_batches_lossy_total by loss; kvbridge tail names the event and field",
                action: "upgrade kvbridge for this engine release; list harmless types in ignore_tags",
            },
            Alarm::ViewOverCapacity => About {
                name: "view_over_capacity",
                severity: Severity::Critical,
                meaning: "the view holds more blocks on the device than the engine's pool has",
                first_look: "sources.pool_blocks or what sources.metrics tells, against the engine's own number of blocks",
                action: "correct pool_blocks; if it is right the view holds ghosts: resync and report it",
            },
            Alarm::OverLimit => About {
                name: "over_limit",
                severity: Severity::Critical,
                meaning: "the replica's view was given up because of view.blocks_max or the memory limit",
                first_look: "kvbridge_memory_bytes against kvbridge_memory_limit_bytes, then view.blocks_max",
                action: "raise the limit or move replicas to another kvbridge, then resync the replica",
            },
            Alarm::ReplayUnusable => About {
                name: "replay_unusable",
                severity: Severity::Warning,
                meaning: "the replay port answers without batches: the next gap costs exact trust",
                first_look: "the source's replay endpoint and the engine's replay buffer setting",
                action: "name the right replay port, give the engine a journal, then resync",
            },
            Alarm::TwoPublishers => TWO_PUBLISHERS,
            Alarm::CompetingConsumer => COMPETING_CONSUMER,
            Alarm::BridgeSilent => BRIDGE_SILENT,
            Alarm::LogBehind => LOG_BEHIND,
            Alarm::BusReset => BUS_RESET,
            Alarm::BusRetentionPassed => BUS_RETENTION_PASSED,
            Alarm::TailLoss => TAIL_LOSS,
            Alarm::SnapshotFailed => SNAPSHOT_FAILED,
            Alarm::SinkLagging => SINK_LAGGING,
            Alarm::FanOutLagging => FAN_OUT_LAGGING,
            Alarm::HashSchemeMismatch => HASH_SCHEME_MISMATCH,
            Alarm::RankMissing => RANK_MISSING,
            Alarm::EngineHitRateBelowPrediction => ENGINE_HIT_RATE_BELOW_PREDICTION,
            Alarm::PredictionBelowEngine => PREDICTION_BELOW_ENGINE,
            Alarm::HitRateBelowBaseline => HIT_RATE_BELOW_BASELINE,
            Alarm::ViewEmptyUnderTraffic => VIEW_EMPTY_UNDER_TRAFFIC,
            Alarm::ZeroMatchesOnRepeatedPrefixes => ZERO_MATCHES_ON_REPEATED_PREFIXES,
            Alarm::BlockSizeMismatch => BLOCK_SIZE_MISMATCH,
            Alarm::Rollback => ROLLBACK,
            Alarm::ReplayTruncated => REPLAY_TRUNCATED,
            Alarm::PermanentHole => PERMANENT_HOLE,
            Alarm::SourceGone => SOURCE_GONE,
            Alarm::ClockSkew => CLOCK_SKEW,
            Alarm::InstanceNameMismatch => INSTANCE_NAME_MISMATCH,
        }
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        self.about().name
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_runbook_has_one_heading_for_each_alarm_and_says_what_the_registry_says() {
        let runbook = include_str!("../../docs/runbook.md");
        let headings: Vec<&str> =
            runbook.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        let names: Vec<&str> = Alarm::ALL.iter().map(|alarm| alarm.as_str()).collect();
        assert_eq!(headings, names);
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        for alarm in Alarm::ALL {
            let About { severity, meaning, first_look, action, .. } = alarm.about();
            for text in [severity.as_str(), meaning, first_look, action] {
                assert!(runbook.contains(text), "{} misses: {text}", alarm.as_str());
            }
        }
    }
}
