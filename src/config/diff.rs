//! Two proven configurations: what to touch in a running program, and what must wait for a new
//! start.

use std::collections::BTreeMap;

use kvbridge_schemas::Replica;

use super::{Config, HttpConfig, Limits, RecoveryConfig, SourceConfig, ViewConfig};

/// What differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// Sources of replicas that were not there.
    pub added: Vec<SourceConfig>,
    /// Sources that must be opened anew.
    pub changed: Vec<SourceConfig>,
    /// Replicas that are not named any more.
    pub removed: Vec<Replica>,
    /// Fields that take effect at once.
    pub applied: Vec<&'static str>,
    /// Fields that differ and cannot take effect.
    pub needs_restart: Vec<&'static str>,
    /// What runs afterwards: the wanted configuration with the fields above as they were.
    pub merged: Config,
}

/// Compares. Every field is looked at: a new one does not compile until it is decided here.
pub fn changes(running: &Config, wanted: &Config) -> Changes {
    let Config {
        listen,
        http,
        sources,
        // A process has the same ones to its end.
        adapters: _,
        engines,
        entries,
        discovery,
        bus,
        index,
        view,
        recovery,
        limits,
        state,
        ready,
        backfill,
        shutdown,
        sinks,
        compat,
    } = wanted;
    let mut changes = Changes {
        added: Vec::new(),
        changed: Vec::new(),
        removed: Vec::new(),
        applied: Vec::new(),
        needs_restart: Vec::new(),
        merged: running.clone(),
    };
    compare_sources(&running.sources, sources, &mut changes);
    changes.merged.sources.clone_from(sources);
    changes.merged.engines.clone_from(engines);
    changes.merged.entries.clone_from(entries);
    let mut fixed = vec![
        ("http.listen", running.listen == *listen),
        ("discovery", running.discovery == *discovery),
        ("bus", running.bus == *bus),
        ("index", running.index == *index),
        ("state.dir", running.state.dir == state.dir),
        ("ready", running.ready == *ready),
        ("backfill", running.backfill == *backfill),
        ("sinks", running.sinks == *sinks),
        ("compat", running.compat == *compat),
    ];
    fixed.extend(fixed_http(&running.http, http));
    fixed.extend(fixed_view(&running.view, view));
    fixed.extend(fixed_recovery(&running.recovery, recovery));
    fixed.extend(fixed_limits(&running.limits, limits));
    changes.needs_restart = differing(fixed);
    let live = [
        ("state.interval", running.state.interval == state.interval),
        ("shutdown.timeout", running.shutdown.timeout == shutdown.timeout),
        ("shutdown.drain", running.shutdown.drain == shutdown.drain),
        (
            "limits.match_tokens_max",
            running.limits.match_token_count_max == limits.match_token_count_max,
        ),
    ];
    changes.applied = differing(live);
    changes.merged.state.interval = state.interval;
    changes.merged.shutdown = shutdown.clone();
    changes.merged.limits.match_token_count_max = limits.match_token_count_max;
    changes
}

fn differing(fields: impl IntoIterator<Item = (&'static str, bool)>) -> Vec<&'static str> {
    fields.into_iter().filter(|(_, same)| !same).map(|(field, _)| field).collect()
}

fn compare_sources(running: &[SourceConfig], wanted: &[SourceConfig], changes: &mut Changes) {
    let mut before: BTreeMap<&Replica, &SourceConfig> =
        running.iter().map(|source| (&source.replica, source)).collect();
    for source in wanted {
        match before.remove(&source.replica) {
            None => changes.added.push(source.clone()),
            Some(old) if old != source => changes.changed.push(source.clone()),
            Some(_) => (),
        }
    }
    changes.removed = before.into_keys().cloned().collect();
}

fn fixed_http(running: &HttpConfig, wanted: &HttpConfig) -> [(&'static str, bool); 7] {
    let HttpConfig {
        tokens_file,
        tls,
        names,
        connection_count_max,
        header_deadline,
        body_deadline,
        stall_deadline,
    } = wanted;
    [
        ("http.tokens_file", running.tokens_file == *tokens_file),
        ("http.tls", running.tls == *tls),
        ("http.names", running.names == *names),
        ("http.connections_max", running.connection_count_max == *connection_count_max),
        ("http.header_deadline", running.header_deadline == *header_deadline),
        ("http.body_deadline", running.body_deadline == *body_deadline),
        ("http.stall_deadline", running.stall_deadline == *stall_deadline),
    ]
}

fn fixed_view(running: &ViewConfig, wanted: &ViewConfig) -> [(&'static str, bool); 2] {
    let ViewConfig { blocks_max, memory_max } = wanted;
    [
        ("view.blocks_max", running.blocks_max == *blocks_max),
        ("view.memory_max", running.memory_max == *memory_max),
    ]
}

fn fixed_recovery(running: &RecoveryConfig, wanted: &RecoveryConfig) -> [(&'static str, bool); 10] {
    let RecoveryConfig {
        replay_deadline,
        parallel,
        attempt_count_max,
        held_batch_count_max,
        held_bytes_max,
        idle_probe,
        audit,
        lease,
        rank_missing,
        on_unrecoverable,
    } = wanted;
    [
        ("recovery.replay_deadline", running.replay_deadline == *replay_deadline),
        ("recovery.parallel", running.parallel == *parallel),
        ("recovery.attempts", running.attempt_count_max == *attempt_count_max),
        ("recovery.held_batches", running.held_batch_count_max == *held_batch_count_max),
        ("recovery.held_bytes", running.held_bytes_max == *held_bytes_max),
        ("recovery.idle_probe", running.idle_probe == *idle_probe),
        ("recovery.audit", running.audit == *audit),
        ("recovery.lease", running.lease == *lease),
        ("recovery.rank_missing", running.rank_missing == *rank_missing),
        ("recovery.on_unrecoverable", running.on_unrecoverable == *on_unrecoverable),
    ]
}

fn fixed_limits(running: &Limits, wanted: &Limits) -> [(&'static str, bool); 8] {
    let Limits {
        frame_bytes_max,
        orphan_count_max,
        source_queue_batches,
        reconnect_min,
        reconnect_max,
        body_bytes_max,
        match_token_count_max: _,
        events_queue,
        events_reader_count_max,
    } = wanted;
    [
        ("limits.frame_max", running.frame_bytes_max == *frame_bytes_max),
        ("limits.orphans_max", running.orphan_count_max == *orphan_count_max),
        ("limits.source_queue", running.source_queue_batches == *source_queue_batches),
        ("limits.reconnect_min", running.reconnect_min == *reconnect_min),
        ("limits.reconnect_max", running.reconnect_max == *reconnect_max),
        ("limits.body_max", running.body_bytes_max == *body_bytes_max),
        ("limits.events_queue", running.events_queue == *events_queue),
        ("limits.events_readers_max", running.events_reader_count_max == *events_reader_count_max),
    ]
}
