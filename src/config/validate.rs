//! File as typed → [`Config`]: pure and total, every problem is noted and reading goes on.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use super::{
    BackfillConfig, BusConfig, CompatConfig, Config, IndexConfig, Limits, Problems, ReadyConfig,
    RecoveryConfig, ShutdownConfig, StateConfig, ViewConfig,
    file::{
        BackfillFile, File, IndexFile, LimitsFile, ReadyFile, RecoveryFile, ShutdownFile, Size,
        Span, StateFile, ViewFile,
    },
    limits,
    sources::Named,
};
use crate::{adapters::Adapters, index::BackfillMode, jobs::OnUnrecoverable};

/// Where the API listens: loopback, because nobody is asked who they are unless it is configured.
pub(super) const LISTEN_DEFAULT: &str = "127.0.0.1:8090";

/// Model name of a source that names none.
pub(super) const MODEL_DEFAULT: &str = "default";

pub(super) type Origin<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Notes problems together with where the value came from.
pub(super) struct Check<'a> {
    origin: Origin<'a>,
    problems: Problems,
    pub(super) adapters: &'a Adapters,
}

pub(super) fn validate(
    file: File,
    adapters: Adapters,
    origin: Origin<'_>,
    problems: Problems,
) -> Result<Config, Problems> {
    let mut check = Check { origin, problems, adapters: &adapters };
    let listen = check.listen(file.http.listen.as_deref());
    let most_ranks = file.sources.iter().filter_map(|source| source.dp).max().unwrap_or(1);
    let mut named = Named::default();
    check.sources(&mut named, &file.sources, false);
    let mut config = Config {
        listen,
        http: check.http(listen, file.http),
        adapters: adapters.clone(),
        sources: named.sources,
        engines: named.engines,
        entries: named.entries,
        discovery: check.discovery(&file.discovery),
        bus: check.bus(file.bus),
        index: check.index(&file.index),
        view: check.view(&file.view),
        recovery: check.recovery(&file.recovery),
        limits: check.limits(&file.limits),
        state: check.state(&file.state),
        ready: check.ready(&file.ready),
        backfill: check.backfill(&file.backfill),
        shutdown: check.shutdown(&file.shutdown),
        sinks: check.sinks(&file.sinks, most_ranks),
        compat: CompatConfig::default(),
    };
    config.compat = check.compat(file.compat, config.http.asks());
    match &mut config.bus {
        BusConfig::Nats(nats) => {
            nats.reconnect = (config.limits.reconnect_min, config.limits.reconnect_max);
            nats.read |= config.entries.is_empty();
        }
        BusConfig::Zmq(zmq) => {
            let has_sources = !config.entries.is_empty();
            check.zmq_beside(zmq, has_sources, config.state.dir.as_ref());
        }
        BusConfig::Embedded => (),
    }
    if check.problems.0.is_empty() { Ok(config) } else { Err(check.problems) }
}

impl<'a> Check<'a> {
    /// Nothing noted yet.
    pub(super) fn of(origin: Origin<'a>, adapters: &'a Adapters) -> Check<'a> {
        Check { origin, problems: Problems::default(), adapters }
    }

    /// What was noted, if anything.
    pub(super) fn done(self) -> Result<(), Problems> {
        if self.problems.0.is_empty() { Ok(()) } else { Err(self.problems) }
    }

    pub(super) fn origin_of(&self, path: &str) -> Option<String> {
        (self.origin)(path)
    }
}

impl Check<'_> {
    pub(super) fn note(&mut self, path: &str, message: impl Into<String>) {
        self.problems.add_from(path, (self.origin)(path), message);
    }

    fn listen(&mut self, text: Option<&str>) -> SocketAddr {
        let text = text.unwrap_or(LISTEN_DEFAULT);
        text.parse().unwrap_or_else(|_| {
            let message = format!("expected an address such as {LISTEN_DEFAULT}, got {text:?}");
            self.note("http.listen", message);
            SocketAddr::from(([127, 0, 0, 1], 0))
        })
    }

    fn index(&mut self, file: &IndexFile) -> IndexConfig {
        IndexConfig {
            writer_count: self.count("index.writers", file.writers, limits::INDEX_WRITER_COUNT),
        }
    }

    fn view(&mut self, file: &ViewFile) -> ViewConfig {
        if file.blocks_max == Some(0) {
            self.note("view.blocks_max", "must be at least 1");
        }
        let memory_max = file.memory_max.map(|size| self.size("view.memory_max", Some(size), 0));
        ViewConfig { blocks_max: file.blocks_max, memory_max }
    }

    fn recovery(&mut self, file: &RecoveryFile) -> RecoveryConfig {
        let at = |field| format!("recovery.{field}");
        let config = RecoveryConfig {
            replay_deadline: self.span(
                &at("replay_deadline"),
                file.replay_deadline,
                limits::REPLAY_DEADLINE,
            ),
            parallel: self.count(&at("parallel"), file.parallel, limits::RECOVERY_PARALLEL),
            attempt_count_max: self.count(
                &at("attempts"),
                file.attempts,
                limits::ATTEMPT_COUNT_MAX,
            ),
            held_batch_count_max: self.count(
                &at("held_batches"),
                file.held_batches,
                limits::HELD_BATCH_COUNT_MAX,
            ),
            held_bytes_max: self.size(&at("held_bytes"), file.held_bytes, limits::HELD_BYTES_MAX),
            idle_probe: self.span(&at("idle_probe"), file.idle_probe, limits::IDLE_PROBE),
            audit: self.span(&at("audit"), file.audit, limits::AUDIT),
            lease: self.span(&at("lease"), file.lease, limits::LEASE),
            rank_missing: self.span(&at("rank_missing"), file.rank_missing, limits::RANK_MISSING),
            on_unrecoverable: self.on_unrecoverable(file.on_unrecoverable.as_deref()),
        };
        if config.lease <= config.idle_probe.max(config.audit) {
            // Else every quiet minute would end trust before the probe that could have kept it.
            self.note(
                "recovery.lease",
                "must be longer than recovery.idle_probe and recovery.audit",
            );
        }
        config
    }

    fn on_unrecoverable(&mut self, text: Option<&str>) -> OnUnrecoverable {
        match text {
            None | Some("none") => OnUnrecoverable::None,
            Some("resync") => OnUnrecoverable::Resync,
            Some("flush") => OnUnrecoverable::Flush,
            Some(other) => {
                let message = format!("expected none, resync or flush, got {other:?}");
                self.note("recovery.on_unrecoverable", message);
                OnUnrecoverable::None
            }
        }
    }

    fn limits(&mut self, file: &LimitsFile) -> Limits {
        let base = Limits::default();
        let at = |field| format!("limits.{field}");
        let config = Limits {
            frame_bytes_max: self.size(&at("frame_max"), file.frame_max, base.frame_bytes_max),
            orphan_count_max: self.count(
                &at("orphans_max"),
                file.orphans_max,
                base.orphan_count_max,
            ),
            source_queue_batches: self.count(
                &at("source_queue"),
                file.source_queue,
                base.source_queue_batches,
            ),
            reconnect_min: self.span(&at("reconnect_min"), file.reconnect_min, base.reconnect_min),
            reconnect_max: self.span(&at("reconnect_max"), file.reconnect_max, base.reconnect_max),
            body_bytes_max: self.size(&at("body_max"), file.body_max, base.body_bytes_max),
            match_token_count_max: self.count(
                &at("match_tokens_max"),
                file.match_tokens_max,
                base.match_token_count_max,
            ),
            events_queue: self.count(&at("events_queue"), file.events_queue, base.events_queue),
            events_reader_count_max: self.count(
                &at("events_readers_max"),
                file.events_readers_max,
                base.events_reader_count_max,
            ),
        };
        if config.reconnect_max < config.reconnect_min {
            self.note("limits.reconnect_max", "must not be shorter than limits.reconnect_min");
        }
        config
    }

    fn state(&mut self, file: &StateFile) -> StateConfig {
        if file.dir.as_deref() == Some("") {
            self.note("state.dir", "must not be empty");
        }
        StateConfig {
            dir: file.dir.as_ref().map(PathBuf::from),
            interval: self.span("state.interval", file.interval, limits::CHECKPOINT_INTERVAL),
        }
    }

    fn ready(&mut self, file: &ReadyFile) -> ReadyConfig {
        ReadyConfig {
            policy: file.policy.unwrap_or_default(),
            max_wait: self.span("ready.max_wait", file.max_wait, limits::READY_MAX_WAIT),
            revocable: file.revocable.unwrap_or_default(),
        }
    }

    fn backfill(&mut self, file: &BackfillFile) -> BackfillConfig {
        let BackfillConfig { ttl, .. } = BackfillConfig::default();
        BackfillConfig {
            mode: self.backfill_mode(file.mode.as_deref()),
            ttl: self.span("backfill.ttl", file.ttl, ttl),
        }
    }

    fn backfill_mode(&mut self, mode: Option<&str>) -> BackfillMode {
        match mode {
            Some("off") => BackfillMode::Off,
            None | Some("auto") => BackfillMode::Auto,
            Some("always") => BackfillMode::Always,
            Some(other) => {
                let message = format!("expected off, auto or always, got {other:?}");
                self.note("backfill.mode", message);
                BackfillMode::Auto
            }
        }
    }

    fn shutdown(&mut self, file: &ShutdownFile) -> ShutdownConfig {
        let config = ShutdownConfig {
            timeout: self.span("shutdown.timeout", file.timeout, limits::SHUTDOWN_TIMEOUT),
            drain: file.drain.map_or(Duration::ZERO, |span| span.0),
        };
        if config.drain >= config.timeout {
            self.note("shutdown.drain", "must be shorter than shutdown.timeout");
        }
        config
    }

    pub(super) fn span(&mut self, path: &str, value: Option<Span>, default: Duration) -> Duration {
        let span = value.map_or(default, |span| span.0);
        if span < Duration::from_millis(1) {
            self.note(path, "must be at least 1ms");
        }
        span
    }

    pub(super) fn size(&mut self, path: &str, value: Option<Size>, default: u64) -> u64 {
        let size = value.map_or(default, |size| size.0);
        if size < 1024 {
            self.note(path, "must be at least 1KiB");
        }
        size
    }

    pub(super) fn count(&mut self, path: &str, value: Option<u32>, default: u32) -> u32 {
        let count = value.unwrap_or(default);
        if count == 0 {
            self.note(path, "must be at least 1");
        }
        count
    }
}
