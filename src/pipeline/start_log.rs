//! A replica's end of a log that is kept beyond this process.

use std::sync::Arc;

use kvbridge_adapters_api::{Continuity, Replay, Source};
use kvbridge_schemas::{Cursor, Digest, Replica, Seq};

use super::{super::twin::TwinSource, Pipeline, Tasks};
use crate::{
    bus::LogWriter,
    clock::Clock,
    config::SourceConfig,
    shared_log::{Lane, LogTail},
    telemetry::BusLogMetrics,
};

/// Raised when decoders make another envelope of the same bytes: such versions share no log.
const CONTENT_VERSION: u32 = 1;

impl Pipeline {
    /// Its log, on a bus that is kept beyond this process.
    pub(super) fn log(
        &self,
        source: &SourceConfig,
        tail: Option<LogTail>,
        (at, digests): (Cursor, Vec<(Seq, Digest)>),
    ) -> Option<LogWriter> {
        let (bridge, full) = self.bus.keeps()?;
        let (replica, key) = (&source.replica, source.replica.key());
        // A kept view goes on under its old epoch, so ids of resets must differ from those that an
        // earlier log of this bridge gave.
        let ids: Arc<str> = Arc::from(format!("{bridge}-{:x}", Clock::unix_ms()));
        let mut lane = Lane::new(replica.clone(), source.engine.clone(), ids);
        if let Some(tail) = tail {
            lane.resume(tail);
        }
        let metrics = BusLogMetrics::register(&key);
        let life = self.bus.life(replica, content(source), at);
        let log = LogWriter::new(lane, self.bus.writer(&key)?, full, metrics, bridge);
        let Some(life) = life else { return Some(log) };
        life.restore(digests);
        Some(log.with_life(life))
    }

    /// With the log of other bridges as a second journal, where there is one. Not for a source that
    /// does not see its reconnects: what it lacks may be another life's, and on the log are its own
    /// batches too.
    pub(super) fn with_twin(
        &self,
        engine: Box<dyn Source>,
        replica: &Replica,
        log: Option<&LogWriter>,
        tasks: &mut Tasks,
    ) -> Box<dyn Source> {
        let can = engine.capabilities();
        let asked = can.replay == Replay::Journal && can.continuity == Continuity::Proven;
        let life = log.and_then(LogWriter::life).filter(|_| asked && !can.epoch_on_wire);
        match life.and_then(|life| Some((life, self.bus.past(replica, self.clock, tasks)?))) {
            Some((life, past)) => Box::new(TwinSource::new(engine, life, Arc::from(past))),
            None => engine,
        }
    }
}

/// Everything beside the engine's bytes that the content of its envelopes depends on.
fn content(source: &SourceConfig) -> String {
    format!(
        "content {CONTENT_VERSION}, engine {}, ignore_tags {:?}",
        source.engine.as_str(),
        source.ignore_tags
    )
}
