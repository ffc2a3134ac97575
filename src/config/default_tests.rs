//! The document's defaults are those of the code.

use std::{collections::BTreeMap, time::Duration};

use bytesize::ByteSize;

use super::{Flags, HeartbeatConfig, limits::BUS_SNAPSHOT_INTERVAL, load};
use crate::jobs::OnUnrecoverable;

/// Field → default, as `docs/configuration.md` says.
fn documented() -> BTreeMap<&'static str, &'static str> {
    let rows = include_str!("../../docs/configuration.md").lines();
    let cells = rows.filter(|row| row.starts_with("| `")).map(|row| row.split('`'));
    cells.filter_map(|mut cells| Some((cells.nth(1)?, cells.nth(1)?))).collect()
}

#[test]
fn documented_defaults_are_the_real_ones() {
    let mut documented = documented();
    let config = load(None, &[], Flags::default()).unwrap();
    let (recovery, limits) = (&config.recovery, &config.limits);
    let mut default = |field| documented.remove(field).unwrap_or_else(|| panic!("{field}: no row"));
    assert_eq!(default("http.listen"), config.listen.to_string());
    assert_eq!(default("recovery.on_unrecoverable"), "none");
    assert_eq!(recovery.on_unrecoverable, OnUnrecoverable::None);
    for (field, actual) in [
        ("recovery.replay_deadline", recovery.replay_deadline),
        ("recovery.idle_probe", recovery.idle_probe),
        ("recovery.audit", recovery.audit),
        ("recovery.lease", recovery.lease),
        ("recovery.rank_missing", recovery.rank_missing),
        ("discovery.refresh", config.discovery.refresh),
        ("discovery.resolve", config.discovery.resolve),
        ("discovery.grace", config.discovery.grace),
        ("limits.reconnect_min", limits.reconnect_min),
        ("limits.reconnect_max", limits.reconnect_max),
    ] {
        let duration: Duration = humantime::parse_duration(default(field)).unwrap();
        assert_eq!(duration, actual, "{field}");
    }
    let heartbeat = HeartbeatConfig::default();
    for (field, actual) in [
        ("bus.heartbeat", heartbeat.every),
        ("bus.heartbeat_ttl", heartbeat.ttl),
        ("bus.snapshot_interval", BUS_SNAPSHOT_INTERVAL),
    ] {
        let duration: Duration = humantime::parse_duration(default(field)).unwrap();
        assert_eq!(duration, actual, "{field}");
    }
    for (field, actual) in [
        ("recovery.held_bytes", recovery.held_bytes_max),
        ("limits.frame_max", limits.frame_bytes_max),
        ("limits.body_max", limits.body_bytes_max),
    ] {
        assert_eq!(default(field).parse::<ByteSize>().unwrap().as_u64(), actual, "{field}");
    }
    for (field, actual) in [
        ("index.writers", config.index.writer_count),
        ("recovery.parallel", recovery.parallel),
        ("recovery.attempts", recovery.attempt_count_max),
        ("recovery.held_batches", recovery.held_batch_count_max),
        ("limits.orphans_max", limits.orphan_count_max),
        ("limits.source_queue", limits.source_queue_batches),
        ("limits.match_tokens_max", limits.match_token_count_max),
        ("limits.events_queue", limits.events_queue),
        ("limits.events_readers_max", limits.events_reader_count_max),
    ] {
        assert_eq!(default(field), actual.to_string(), "{field}");
    }
    let bounds = ["recovery.", "limits.", "index."];
    documented.retain(|field, _| bounds.iter().any(|section| field.starts_with(section)));
    assert!(documented.is_empty(), "compare these too: {documented:?}");
}
