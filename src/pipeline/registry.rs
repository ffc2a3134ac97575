//! The only place that names engines: which are built in, how their frames decode, and how one of
//! their sources is opened.

use std::sync::Arc;

use kvbridge_adapters_api::{Batch, EngineMetrics, Source};
use kvbridge_adapters_zmq::{Counters, SubscribeSettings};
use kvbridge_schemas::EngineKind;

use crate::{
    config::{Config, Limits, SourceConfig},
    view::ViewSettings,
};

const ENGINES: &[&str] = &[
    #[cfg(feature = "vllm")]
    "vllm",
];

/// The engines of this build, by the name that configuration, flags and envelopes use.
pub fn engine_names() -> impl Iterator<Item = &'static str> {
    ENGINES.iter().copied()
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
    let [_topic, seq, payload, ..] = frames else {
        let fault = format!("expected 3 frames (topic, seq, payload), {} came", frames.len());
        return Decoding { batch: None, faults: vec![fault] };
    };
    decode_payload(engine, seq, payload)
}

/// Decodes one payload without any memory of others.
#[cfg_attr(not(feature = "vllm"), expect(unused_variables, reason = "no engine is built in"))]
pub fn decode_payload(engine: &EngineKind, seq: &[u8], payload: &[u8]) -> Decoding {
    match engine {
        #[cfg(feature = "vllm")]
        EngineKind::Vllm => vllm::decode(seq, payload),
        other => {
            let fault = format!("engine {} is not part of this build", other.as_str());
            Decoding { batch: None, faults: vec![fault] }
        }
    }
}

/// A source that has begun to connect, and how its events fold.
pub struct Opened {
    /// The stream.
    pub source: Box<dyn Source>,
    /// What the fold depends on.
    pub view: ViewSettings,
    /// What the sockets count.
    pub counters: Arc<Counters>,
}

/// Why a source was not opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The engine is not part of this build.
    #[error("engine {engine} is not part of this build")]
    NotBuilt {
        /// Its name.
        engine: String,
    },
}

/// Opens a replica's source: it begins to connect. Must be called inside a tokio runtime.
#[cfg_attr(not(feature = "vllm"), expect(unused_variables, reason = "no engine is built in"))]
pub fn open(source: &SourceConfig, config: &Config) -> Result<Opened, OpenError> {
    match &source.engine {
        #[cfg(feature = "vllm")]
        EngineKind::Vllm => Ok(vllm::open(source, config)),
        other => Err(OpenError::NotBuilt { engine: other.as_str().to_owned() }),
    }
}

/// The live subscription alone, for looking at an engine's frames.
#[cfg_attr(not(feature = "vllm"), expect(unused_variables, reason = "no engine is built in"))]
pub fn subscription(
    config: &SourceConfig,
    limits: &Limits,
) -> Result<SubscribeSettings, OpenError> {
    match &config.engine {
        #[cfg(feature = "vllm")]
        EngineKind::Vllm => Ok(vllm::subscription(config, limits)),
        other => Err(OpenError::NotBuilt { engine: other.as_str().to_owned() }),
    }
}

/// What the text of an engine's metrics says of one rank.
#[cfg_attr(not(feature = "vllm"), expect(unused_variables, reason = "no engine is built in"))]
pub fn read_metrics(engine: &EngineKind, text: &[u8], rank: u32) -> EngineMetrics {
    match engine {
        #[cfg(feature = "vllm")]
        EngineKind::Vllm => kvbridge_adapters_vllm::read_metrics(text, rank),
        _ => EngineMetrics::default(),
    }
}

#[cfg(feature = "vllm")]
mod vllm {
    use std::sync::Arc;

    use kvbridge_adapters_vllm::{Decoded, Decoder, EventFault, capabilities};
    use kvbridge_adapters_zmq::{
        Counters, Decode, Link, ReplaySettings, RetrySettings, SubscribeSettings, ZmqSettings,
        ZmqSource, source,
    };
    use kvbridge_schemas::Projection;

    use super::{Decoding, Opened};
    use crate::{
        config::{Config, Limits, SourceConfig},
        view::ViewSettings,
    };

    pub(super) fn subscription(config: &SourceConfig, limits: &Limits) -> SubscribeSettings {
        let endpoint = config.endpoint.to_string();
        let link = if config.bind { Link::Bind(endpoint) } else { Link::Connect(endpoint) };
        let mut subscribe = SubscribeSettings::new(link);
        subscribe.topic.clone_from(&config.topic);
        subscribe.transport = config.transport;
        subscribe.retry = RetrySettings { first: limits.reconnect_min, max: limits.reconnect_max };
        subscribe.frame_bytes_max = usize::try_from(limits.frame_bytes_max).unwrap_or(usize::MAX);
        subscribe.queue.count_max =
            usize::try_from(limits.source_queue_batches).unwrap_or(usize::MAX);
        subscribe
    }

    pub(super) fn open(of: &SourceConfig, config: &Config) -> Opened {
        let subscribe = subscription(of, &config.limits);
        let frame_bytes_max = subscribe.frame_bytes_max;
        let replay = of.replay.as_ref().map(|endpoint| {
            let mut replay = ReplaySettings::new(endpoint.to_string());
            replay.transport = of.transport;
            replay.frame_bytes_max = frame_bytes_max;
            // The state machine waits as long; a shorter wait here would cut its answer.
            replay.progress_timeout = config.recovery.replay_deadline;
            replay
        });
        let capabilities = capabilities(replay.is_some(), of.bind);
        let view = ViewSettings {
            projection: Projection::Last8,
            removal: capabilities.removal,
            orphans_max: usize::try_from(config.limits.orphan_count_max).unwrap_or(usize::MAX),
        };
        let decoder_limits = kvbridge_adapters_vllm::Limits {
            payload_bytes: frame_bytes_max,
            ..kvbridge_adapters_vllm::Limits::default()
        };
        let decoder = Frames(Decoder::new(decoder_limits, of.ignore_tags.clone()));
        let settings = ZmqSettings { subscribe, replay };
        let counters = Arc::new(Counters::default());
        let source = ZmqSource::spawn(settings, capabilities, decoder, Arc::clone(&counters));
        Opened { source: Box::new(source), view, counters }
    }

    /// Joins the engine's decoder to the sockets, which know no engine.
    struct Frames(Decoder);

    impl Decode for Frames {
        fn decode(&mut self, seq_frame: &[u8], payload: &[u8]) -> source::Decoded {
            match self.0.decode(seq_frame, payload) {
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
    }

    pub(super) fn decode(seq: &[u8], payload: &[u8]) -> Decoding {
        match Decoder::default().decode(seq, payload) {
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

    fn describe(fault: &EventFault) -> String {
        let tag = fault.tag.as_deref().map(|tag| format!(" {tag:?}")).unwrap_or_default();
        let field = fault.field.map(|field| format!(", field {field}")).unwrap_or_default();
        format!("event {} not read: {}{tag}{field}", fault.index, fault.reason)
    }
}
