//! The only place that names engines: which are built in, how their frames decode, and how one of
//! their sources is opened.

use std::sync::Arc;
#[cfg(feature = "trtllm")]
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

#[cfg(feature = "sglang")]
use bytes::Bytes;
use kvbridge_adapters_api::{
    Capabilities, EngineMetrics, EventSources, Knobs, Removal, Source, SourcesFault,
};
use kvbridge_adapters_msgpack::Limits as DecodeLimits;
use kvbridge_adapters_zmq::{Counters, SubscribeSettings};
#[cfg(feature = "sglang")]
use kvbridge_adapters_zmq::{ReadSnapshot, SnapshotPart};
#[cfg(any(feature = "sglang", feature = "trtllm"))]
use kvbridge_schemas::HashScheme;
use kvbridge_schemas::{EngineKind, Projection};

use super::{
    HashWatch, adapted,
    published::{self, DecodeMessage, Engine},
};
pub use super::{
    open_error::OpenError,
    published::{Decoding, decode, decode_message},
};
#[cfg(feature = "trtllm")]
use crate::{config::limits, web_client};
use crate::{
    config::{self, Config, Limits, SourceConfig},
    view::ViewSettings,
};

const ENGINES: &[&str] = &[
    #[cfg(feature = "vllm")]
    "vllm",
    #[cfg(feature = "sglang")]
    "sglang",
    #[cfg(feature = "trtllm")]
    "trtllm",
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
            snapshots: None,
            leaves_out: false,
            flush: Some("/reset_prefix_cache"),
            read_metrics: kvbridge_adapters_vllm::read_metrics,
            knobs: &kvbridge_adapters_vllm::KNOBS,
        }),
        #[cfg(feature = "sglang")]
        EngineKind::Sglang => Some(Engine {
            capabilities: kvbridge_adapters_sglang::capabilities,
            projection: Projection::First8,
            decode: sglang,
            snapshots: Some(published::Snapshots {
                support: kvbridge_adapters_sglang::snapshot_support,
                reader: || Box::new(SglangSnapshot::default()),
            }),
            leaves_out: false,
            flush: Some("/flush_cache"),
            read_metrics: kvbridge_adapters_sglang::read_metrics,
            knobs: &kvbridge_adapters_sglang::KNOBS,
        }),
        #[cfg(feature = "trtllm")]
        EngineKind::Trtllm => Some(Engine {
            capabilities: kvbridge_adapters_trtllm::stream::capabilities,
            projection: Projection::First8,
            decode: trtllm,
            snapshots: None,
            leaves_out: true,
            flush: None,
            read_metrics: |_, _| EngineMetrics::default(),
            knobs: &kvbridge_adapters_trtllm::stream::KNOBS,
        }),
        _ => None,
    }
}

#[cfg(feature = "trtllm")]
fn trtllm(limits: DecodeLimits, ignore_tags: Vec<String>) -> DecodeMessage {
    let decoder = kvbridge_adapters_trtllm::stream::Decoder::new(limits, ignore_tags);
    Box::new(move |message| decoder.decode(message.seq_frame, message.payload))
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

/// One answer to a request for all that the engine holds.
#[cfg(feature = "sglang")]
#[derive(Default)]
struct SglangSnapshot(kvbridge_adapters_sglang::SnapshotReader);

#[cfg(feature = "sglang")]
impl ReadSnapshot for SglangSnapshot {
    fn request(&self) -> Bytes {
        Bytes::from_static(kvbridge_adapters_sglang::SNAPSHOT_REQUEST)
    }

    fn ends(&self) -> fn(&[Bytes]) -> bool {
        |frames| frames.first().is_none_or(|kind| kvbridge_adapters_sglang::ends_snapshot(kind))
    }

    fn read(&mut self, frames: &[Bytes]) -> SnapshotPart {
        use kvbridge_adapters_sglang::SnapshotMessage;
        let (kind, payload) = match frames {
            [kind, payload] => (kind.as_ref(), payload.as_ref()),
            // An end may come without a payload.
            [kind] => (kind.as_ref(), [].as_slice()),
            _ => return SnapshotPart::Failed,
        };
        match self.0.read(kind, payload) {
            Ok(SnapshotMessage::Header) => SnapshotPart::Nothing,
            Ok(SnapshotMessage::Records(records)) => SnapshotPart::Records(records),
            Ok(SnapshotMessage::Whole(intro)) => SnapshotPart::Whole(intro),
            Err(fault) => {
                tracing::debug!(%fault, "no snapshot");
                fault.refusal().map_or(SnapshotPart::Failed, SnapshotPart::Refused)
            }
        }
    }
}

/// Whether an engine is asked for its events, unless it is said where it publishes them.
pub fn is_polled(engine: &EngineKind) -> bool {
    polled(engine).is_some()
}

/// What an engine that is asked differs in.
struct Polled {
    capabilities: fn() -> Capabilities,
    projection: Projection,
    knobs: &'static Knobs,
}

fn polled(engine: &EngineKind) -> Option<Polled> {
    match engine {
        #[cfg(feature = "trtllm")]
        EngineKind::Trtllm => Some(Polled {
            capabilities: kvbridge_adapters_trtllm::capabilities,
            projection: Projection::First8,
            knobs: &kvbridge_adapters_trtllm::KNOBS,
        }),
        _ => None,
    }
}

/// How an engine is asked where its events are.
#[derive(Clone, Copy)]
pub struct Question {
    /// Which engine.
    pub engine: &'static str,
    /// What is asked for: the first of these that the server has.
    pub paths: &'static [&'static str],
    /// Reads the answer.
    pub read: fn(&[u8]) -> Result<EventSources, SourcesFault>,
}

const QUESTIONS: &[Question] = &[
    #[cfg(feature = "vllm")]
    Question {
        engine: "vllm",
        paths: &["/kv_event_sources"],
        read: kvbridge_adapters_vllm::read_sources,
    },
    #[cfg(feature = "sglang")]
    Question {
        engine: "sglang",
        paths: &kvbridge_adapters_sglang::server_info::SERVER_INFO_PATHS,
        read: kvbridge_adapters_sglang::read_sources,
    },
    #[cfg(feature = "trtllm")]
    Question {
        engine: "trtllm",
        paths: &["/server_info"],
        read: kvbridge_adapters_trtllm::read_sources,
    },
];

/// What to ask an engine of that kind, or one whose kind is not known.
pub fn questions(engine: Option<&EngineKind>) -> impl Iterator<Item = &'static Question> {
    let of = engine.map(EngineKind::as_str);
    QUESTIONS.iter().filter(move |question| of.is_none_or(|engine| engine == question.engine))
}

/// The engines that are asked, by address: all ranks of one have one reader.
#[derive(Debug, Default)]
pub struct Drains {
    #[cfg(feature = "trtllm")]
    by_url: Mutex<BTreeMap<String, Arc<kvbridge_adapters_trtllm::Poller>>>,
}

/// Whether this process may ask an engine now, where others could.
pub type MayAsk = Arc<dyn Fn() -> bool + Send + Sync>;

/// A source that has begun to connect, and how its events fold.
pub struct Opened {
    /// The stream.
    pub source: Box<dyn Source>,
    /// What the fold depends on.
    pub view: ViewSettings,
    /// What the sockets count.
    pub counters: Arc<Counters>,
}

/// What a removal of that engine takes away: whoever folds its events elsewhere must know it too.
pub fn removal(engine: &EngineKind) -> Removal {
    if let Some(polled) = polled(engine) {
        return (polled.capabilities)().removal;
    }
    // An engine that this version cannot read can still be published by a newer one. Counting
    // copies errs towards blocks that are gone, which the view then finds out.
    built(engine).map_or(Removal::PerCopy, |built| (built.capabilities)(false, false).removal)
}

/// Whether an engine of that kind may leave stores out of what it publishes and still announce the
/// removals. On a log it does not show which of its streams a replica's bridge reads.
pub fn leaves_out(engine: &EngineKind) -> bool {
    built(engine).is_some_and(|built| built.leaves_out)
}

/// What computes a replica's hashes again; nothing where no function of its engine is known.
pub fn hash_watch(source: &SourceConfig) -> Option<HashWatch> {
    match &source.engine {
        #[cfg(feature = "vllm")]
        EngineKind::Vllm => {
            let told = (source.hash_scheme.as_deref(), source.hash_seed.as_deref());
            let functions = kvbridge_adapters_vllm::block_hash::hash_functions(told.0, told.1);
            // Nothing on its wire tells the function: one that is not named need not fit.
            let is_known = source.hash_scheme.is_some();
            Some(HashWatch::new(move |_| functions.clone(), is_known))
        }
        #[cfg(feature = "sglang")]
        EngineKind::Sglang => {
            let functions = |_: &HashScheme| vec![kvbridge_adapters_sglang::HASH_FUNCTION];
            Some(HashWatch::new(functions, true))
        }
        #[cfg(feature = "trtllm")]
        EngineKind::Trtllm => {
            use kvbridge_adapters_trtllm::block_key::hash_function;
            let named = |scheme: &HashScheme| hash_function(scheme.as_str()).into_iter().collect();
            Some(HashWatch::new(named, true))
        }
        _ => None,
    }
}

/// The hash functions that a source of that engine may name; none where its wire tells.
pub fn hash_schemes(engine: &EngineKind) -> &'static [&'static str] {
    match engine {
        #[cfg(feature = "vllm")]
        EngineKind::Vllm => &kvbridge_adapters_vllm::block_hash::HASH_SCHEMES,
        _ => &[],
    }
}

/// How the events of an engine that is asked fold, wherever they are read.
pub fn polled_view(engine: &EngineKind, config: &Config) -> Option<ViewSettings> {
    polled(engine).map(|engine| {
        ViewSettings::of(
            engine.projection,
            (engine.capabilities)().removal,
            config.limits.orphans_max(),
        )
    })
}

/// Opens a replica's source: it begins to connect. Must be called inside a tokio runtime.
pub fn open(
    source: &SourceConfig,
    config: &Config,
    (drains, may_ask): (&Drains, Option<MayAsk>),
) -> Result<Opened, OpenError> {
    if let (Some(view), Some(at)) = (polled_view(&source.engine, config), &source.polled) {
        let counters = Arc::new(Counters::default());
        let rank = source.replica.rank;
        let shared = (Arc::clone(&counters), may_ask);
        let source = drains.open(at, rank, &config.limits, shared)?;
        return Ok(Opened { source, view, counters });
    }
    if let Some(opened) = adapted::open(source, config) {
        return opened;
    }
    let engine = published(&source.engine)?;
    Ok(published::open(&engine, source, config))
}

impl Drains {
    #[cfg(feature = "trtllm")]
    fn open(
        &self,
        at: &config::Polled,
        rank: u32,
        limits: &Limits,
        (counters, may_ask): (Arc<Counters>, Option<MayAsk>),
    ) -> Result<Box<dyn Source>, OpenError> {
        use kvbridge_adapters_trtllm::{Permit, PollSettings, Poller};
        let url = at.url.clone();
        let client = web_client::builder([url.as_str()])
            .read_timeout(limits::POLL_READ_DEADLINE)
            .connect_timeout(limits::POLL_CONNECT_DEADLINE)
            .build()
            .map_err(|source| OpenError::Client { url: url.clone(), source })?;
        let settings = PollSettings {
            url: url.clone(),
            client,
            pace: limits::POLL_EVERY,
            retry_first: limits.reconnect_min,
            retry_max: limits.reconnect_max,
            first_rank: at.first_rank,
            rank_count: at.rank_count,
            permit: may_ask.map_or_else(Permit::default, |may_ask| Permit::new(move || may_ask())),
        };
        let mut by_url = self.by_url.lock().unwrap_or_else(PoisonError::into_inner);
        let known = by_url.remove(&url);
        let poller = match known {
            Some(poller) if poller.reads(at.first_rank, at.rank_count) => poller,
            // It goes on until its last answer is read, and two at a time would rob each other.
            before => Poller::after(settings, before),
        };
        let queue = usize::try_from(limits.source_queue_batches).unwrap_or(usize::MAX);
        let source = poller.open(rank, queue, counters);
        by_url.insert(url, poller);
        Ok(Box::new(source))
    }

    #[cfg(not(feature = "trtllm"))]
    #[expect(clippy::unused_self, clippy::needless_pass_by_value, reason = "nobody to ask")]
    fn open(
        &self,
        at: &config::Polled,
        _: u32,
        _: &Limits,
        _: (Arc<Counters>, Option<MayAsk>),
    ) -> Result<Box<dyn Source>, OpenError> {
        Err(OpenError::NotBuilt { engine: at.url.clone() })
    }
}

/// The live subscription alone, for looking at an engine's frames.
pub fn subscription(
    config: &SourceConfig,
    limits: &Limits,
) -> Result<SubscribeSettings, OpenError> {
    if config.polled.is_some() {
        return Err(OpenError::NotPublished { engine: config.engine.as_str().to_owned() });
    }
    published(&config.engine)?;
    Ok(published::subscription(config, limits))
}

pub(super) fn published(engine: &EngineKind) -> Result<Engine, OpenError> {
    built(engine).ok_or_else(|| OpenError::NotBuilt { engine: engine.as_str().to_owned() })
}

/// Whether an engine can be asked for all it holds.
pub fn has_snapshots(engine: &EngineKind) -> bool {
    built(engine).is_some_and(|built| built.snapshots.is_some())
}

/// Where at its server an engine is asked to empty its cache; none has no such place.
pub fn flush_path(engine: &EngineKind) -> Option<&'static str> {
    built(engine).and_then(|built| built.flush)
}

/// What the text of an engine's metrics says of one rank.
pub fn read_metrics(engine: &EngineKind, text: &[u8], rank: u32) -> EngineMetrics {
    built(engine).map_or_else(EngineMetrics::default, |built| (built.read_metrics)(text, rank))
}

/// What an operator sets at that engine, by whether it is asked for its events.
pub fn knobs(engine: &EngineKind, is_asked: bool) -> Option<&'static Knobs> {
    let asked = polled(engine).filter(|_| is_asked).map(|polled| polled.knobs);
    asked.or_else(|| built(engine).map(|built| built.knobs))
}
