//! SHELL. Engines that publish msgpack batches over ZeroMQ: what they have in common once
//! `registry` has said which one it is.

use std::sync::Arc;

use kvbridge_adapters_api::{
    Batch, Capabilities, EngineMetrics, Knobs, SnapshotSupport, SourceEvent,
};
use kvbridge_adapters_msgpack::{Decoded, EventFault, FrameError, Limits as DecodeLimits};
use kvbridge_adapters_zmq::{
    Counters, Decode, ExchangeSettings, Link, ReadSnapshot, RetrySettings, SubscribeSettings,
    ZmqSettings, ZmqSource, source,
};
use kvbridge_schemas::{EngineKind, Projection};

use super::registry::{self, Opened};
use crate::{
    config::{Config, Endpoint, Limits, SourceConfig},
    view::ViewSettings,
};

/// One message as it came, live or replayed.
#[derive(Clone, Copy)]
pub struct Message<'a> {
    /// Empty where a replay does not carry it.
    pub topic: &'a [u8],
    /// The seq.
    pub seq_frame: &'a [u8],
    /// The engine's bytes.
    pub payload: &'a [u8],
}

/// Reads messages of one publisher.
pub(super) type DecodeMessage = Box<dyn FnMut(&Message<'_>) -> Result<Decoded, FrameError> + Send>;

/// What one engine differs in.
pub(super) struct Engine {
    /// By whether it has a journal, and whether it connects to us.
    pub(super) capabilities: fn(bool, bool) -> Capabilities,
    pub(super) projection: Projection,
    /// By limits and the tags to ignore.
    pub(super) decode: fn(DecodeLimits, Vec<String>) -> DecodeMessage,
    /// What it answers when it is asked for all it holds.
    pub(super) snapshots: Option<Snapshots>,
    /// Stores are left out without a word: no view is exact, and what hangs below an unknown block
    /// shows that one was.
    pub(super) leaves_out: bool,
    /// Path of its server at which it is asked to empty its cache, if it has one.
    pub(super) flush: Option<&'static str>,
    /// The figures of a rank in the text of its metrics.
    pub(super) read_metrics: fn(&[u8], u32) -> EngineMetrics,
    /// What an operator sets at it.
    pub(super) knobs: &'static Knobs,
}

/// Snapshots of one engine.
#[derive(Clone, Copy)]
pub(super) struct Snapshots {
    pub(super) support: fn() -> SnapshotSupport,
    pub(super) reader: fn() -> Box<dyn ReadSnapshot>,
}

pub(super) fn subscription(config: &SourceConfig, limits: &Limits) -> SubscribeSettings {
    let endpoint = config.endpoint.to_string();
    let link = if config.bind { Link::Bind(endpoint) } else { Link::Connect(endpoint) };
    let mut subscribe = SubscribeSettings::new(link);
    subscribe.topic.clone_from(&config.topic);
    subscribe.transport = config.transport;
    subscribe.retry = RetrySettings { first: limits.reconnect_min, max: limits.reconnect_max };
    subscribe.frame_bytes_max = usize::try_from(limits.frame_bytes_max).unwrap_or(usize::MAX);
    subscribe.queue.count_max = usize::try_from(limits.source_queue_batches).unwrap_or(usize::MAX);
    subscribe
}

pub(super) fn open(engine: &Engine, of: &SourceConfig, config: &Config) -> Opened {
    let subscribe = subscription(of, &config.limits);
    let frame_bytes_max = subscribe.frame_bytes_max;
    let asked = |endpoint: &Endpoint| {
        let mut asked = ExchangeSettings::new(endpoint.to_string());
        asked.transport = of.transport;
        asked.frame_bytes_max = frame_bytes_max;
        // The state machine waits as long; a shorter wait here would cut its answer.
        asked.progress_timeout = config.recovery.replay_deadline;
        asked
    };
    let replay = of.replay.as_ref().map(asked);
    let snapshots = engine.snapshots.filter(|_| of.snapshot.is_some());
    let snapshot = of.snapshot.as_ref().filter(|_| snapshots.is_some()).map(asked);
    let mut capabilities = (engine.capabilities)(replay.is_some(), of.bind);
    capabilities.snapshot = snapshots.map(|snapshots| (snapshots.support)());
    let mut view =
        ViewSettings::of(engine.projection, capabilities.removal, config.limits.orphans_max());
    view.leaves_out = engine.leaves_out;
    let limits = DecodeLimits { payload_bytes: frame_bytes_max, ..DecodeLimits::default() };
    let decode = (engine.decode)(limits, of.ignore_tags.clone());
    let decoder = Frames { decode, snapshots, leaves_out: engine.leaves_out };
    let settings = ZmqSettings { subscribe, replay, snapshot };
    let counters = Arc::new(Counters::default());
    let source = ZmqSource::spawn(settings, capabilities, decoder, Arc::clone(&counters));
    Opened { source: Box::new(source), view, counters }
}

/// Joins an engine's decoder to the sockets, which know no engine.
struct Frames {
    decode: DecodeMessage,
    snapshots: Option<Snapshots>,
    leaves_out: bool,
}

impl Decode for Frames {
    fn attached(&self) -> Option<SourceEvent> {
        self.leaves_out.then_some(SourceEvent::Unannounced)
    }

    fn decode(&mut self, topic: &[u8], seq_frame: &[u8], payload: &[u8]) -> source::Decoded {
        match (self.decode)(&Message { topic, seq_frame, payload }) {
            Ok(Decoded::Batch(decoded)) => {
                for fault in &decoded.faults {
                    // Counted by its loss; recovery tells at a level that an operator reads.
                    tracing::debug!(seq = decoded.batch.seq.0, fault = %describe(fault), "event lost");
                }
                if let Some(error) = decoded.body {
                    tracing::debug!(seq = decoded.batch.seq.0, %error, "body lost");
                }
                source::Decoded::Batch(decoded.batch)
            }
            // The sockets pass on only the two lengths that have a meaning.
            Ok(Decoded::EndMarker) | Err(_) => source::Decoded::EndMarker,
        }
    }

    fn snapshot(&mut self) -> Option<Box<dyn ReadSnapshot>> {
        self.snapshots.map(|snapshots| (snapshots.reader)())
    }
}

/// One live message, as far as it could be read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decoding {
    /// What could be read; absent when the body as a whole could not.
    pub batch: Option<Batch>,
    /// What could not, one text each. They show no value of the wire.
    pub faults: Vec<String>,
}

/// Decodes one live message (topic, seq, payload) without any memory of others.
pub fn decode(engine: &EngineKind, frames: &[Vec<u8>]) -> Decoding {
    let [topic, seq_frame, payload, ..] = frames else {
        let fault = format!("expected 3 frames (topic, seq, payload), {} came", frames.len());
        return Decoding { batch: None, faults: vec![fault] };
    };
    decode_message(engine, &Message { topic, seq_frame, payload })
}

/// Decodes one message without any memory of others.
pub fn decode_message(engine: &EngineKind, message: &Message<'_>) -> Decoding {
    let built = match registry::published(engine) {
        Ok(built) => built,
        Err(error) => return Decoding { batch: None, faults: vec![error.to_string()] },
    };
    let mut decode = (built.decode)(DecodeLimits::default(), Vec::new());
    match decode(message) {
        Ok(Decoded::EndMarker) => Decoding::default(),
        Ok(Decoded::Batch(decoded)) => match decoded.body {
            Some(error) => Decoding { batch: None, faults: vec![error.to_string()] },
            None => Decoding {
                batch: Some(decoded.batch),
                faults: decoded.faults.iter().map(describe).collect(),
            },
        },
        Err(error) => Decoding { batch: None, faults: vec![error.to_string()] },
    }
}

pub(super) fn describe(fault: &EventFault) -> String {
    let tag = fault.tag.as_deref().map(|tag| format!(" {tag:?}")).unwrap_or_default();
    let field = fault.field.map(|field| format!(", field {field}")).unwrap_or_default();
    format!("event {} not read: {}{tag}{field}", fault.index, fault.reason)
}
