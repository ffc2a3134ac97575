//! The only place that names engines: which are built in, how their frames decode, and how one of
//! their sources is opened.

use std::sync::Arc;

use kvbridge_adapters_api::{Batch, EngineMetrics, Removal, Source};
use kvbridge_adapters_msgpack::{Decoded, Limits as DecodeLimits};
use kvbridge_adapters_zmq::{Counters, SubscribeSettings};
use kvbridge_schemas::{EngineKind, Projection};

use super::published::{self, DecodeMessage, Engine, Message};
use crate::{
    config::{Config, Limits, SourceConfig},
    view::ViewSettings,
};

const ENGINES: &[&str] = &[
    #[cfg(feature = "vllm")]
    "vllm",
    #[cfg(feature = "sglang")]
    "sglang",
];

/// The engines of this build, by the name that configuration, flags and envelopes use.
pub fn engine_names() -> impl Iterator<Item = &'static str> {
    ENGINES.iter().copied()
}

fn built(engine: &EngineKind) -> Option<Engine> {
    match engine {
        #[cfg(feature = "vllm")]
        EngineKind::Vllm => Some(Engine {
            capabilities: kvbridge_adapters_vllm::capabilities,
            projection: Projection::Last8,
            decode: vllm,
            read_metrics: kvbridge_adapters_vllm::read_metrics,
        }),
        #[cfg(feature = "sglang")]
        EngineKind::Sglang => Some(Engine {
            capabilities: kvbridge_adapters_sglang::capabilities,
            projection: Projection::First8,
            decode: sglang,
            // Its metrics tell neither a start nor a pool in blocks.
            read_metrics: |_, _| EngineMetrics::default(),
        }),
        _ => None,
    }
}

#[cfg(feature = "vllm")]
fn vllm(limits: DecodeLimits, ignore_tags: Vec<String>) -> DecodeMessage {
    let decoder = kvbridge_adapters_vllm::Decoder::new(limits, ignore_tags);
    Box::new(move |message| decoder.decode(message.seq_frame, message.payload))
}

#[cfg(feature = "sglang")]
fn sglang(limits: DecodeLimits, ignore_tags: Vec<String>) -> DecodeMessage {
    use kvbridge_adapters_sglang::{Decoder, decode};
    let decoder = Decoder::new(limits, ignore_tags);
    Box::new(move |message| decode(&decoder, message.topic, message.seq_frame, message.payload))
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
    let Some(built) = built(engine) else {
        let fault = format!("engine {} is not part of this build", engine.as_str());
        return Decoding { batch: None, faults: vec![fault] };
    };
    let mut decode = (built.decode)(DecodeLimits::default(), Vec::new());
    match decode(message) {
        Ok(Decoded::EndMarker) => Decoding::default(),
        Ok(Decoded::Batch(decoded)) => match decoded.body {
            Some(error) => Decoding { batch: None, faults: vec![error.to_string()] },
            None => Decoding {
                batch: Some(decoded.batch),
                faults: decoded.faults.iter().map(published::describe).collect(),
            },
        },
        Err(error) => Decoding { batch: None, faults: vec![error.to_string()] },
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

/// What a removal of that engine takes away: whoever folds its events elsewhere must know it too.
pub fn removal(engine: &EngineKind) -> Removal {
    // An engine that this version cannot read can still be published by a newer one. Counting
    // copies errs towards blocks that are gone, which the view then finds out.
    built(engine).map_or(Removal::PerCopy, |built| (built.capabilities)(false, false).removal)
}

/// Opens a replica's source: it begins to connect. Must be called inside a tokio runtime.
pub fn open(source: &SourceConfig, config: &Config) -> Result<Opened, OpenError> {
    let engine = built(&source.engine).ok_or_else(|| not_built(&source.engine))?;
    Ok(published::open(&engine, source, config))
}

/// The live subscription alone, for looking at an engine's frames.
pub fn subscription(
    config: &SourceConfig,
    limits: &Limits,
) -> Result<SubscribeSettings, OpenError> {
    built(&config.engine).ok_or_else(|| not_built(&config.engine))?;
    Ok(published::subscription(config, limits))
}

fn not_built(engine: &EngineKind) -> OpenError {
    OpenError::NotBuilt { engine: engine.as_str().to_owned() }
}

/// What the text of an engine's metrics says of one rank.
pub fn read_metrics(engine: &EngineKind, text: &[u8], rank: u32) -> EngineMetrics {
    built(engine).map_or_else(EngineMetrics::default, |built| (built.read_metrics)(text, rank))
}
