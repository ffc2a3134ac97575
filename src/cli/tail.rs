//! `kvbridge tail`: what a running kvbridge applies, what is on a bus, or what an engine itself
//! sends.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::PathBuf,
    sync::Arc,
};

use futures::StreamExt;
use kvbridge_adapters_zmq::{Counters, LiveFrame, Subscriber, WireEvent};
use kvbridge_schemas::{Engine, Envelope, Epoch, Trust};
use serde_json::Value;

use super::{
    AccessArgs, CliError, Console, Environment, Exit, SourceArgs,
    bridge::{self, BridgeError},
    examples, pretty, signal,
    sse::{ServerEvent, SseReader},
    tail_bus::TailBusArgs,
};
use crate::{
    capture,
    clock::Clock,
    config::{self, Flags, Problems, SourceConfig},
    pipeline::{
        Message,
        registry::{self, OpenError},
    },
};

/// Show what a running kvbridge applies, what is on a bus, or what an engine sends
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = examples::TAIL)]
pub struct TailArgs {
    /// A running kvbridge
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8090")]
    url: String,
    #[command(flatten)]
    access: AccessArgs,
    /// Show token ids; a kvbridge wants a token with the scope tokens for it
    #[arg(long)]
    tokens: bool,
    /// Record an engine's frames into a file that decode and play read
    #[arg(long, value_name = "FILE")]
    raw: Option<PathBuf>,
    /// End after so many envelopes
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    #[command(flatten)]
    sources: SourceArgs,
    #[command(flatten)]
    bus: TailBusArgs,
}

/// Why `tail` did not start or ended.
#[derive(Debug, thiserror::Error)]
pub enum TailError {
    /// `--raw` without an engine.
    #[error("--raw needs an engine: a kvbridge sends no frames")]
    NeedsEngine,
    /// A bus and something else.
    #[error("tail reads a bus, an engine or a kvbridge: two of them were given")]
    BusAndOther,
    /// More than one engine.
    #[error("tail reads one engine, {count} were given")]
    OneEngine {
        /// How many.
        count: usize,
    },
    /// The source's options are wrong.
    #[error(transparent)]
    Options(#[from] Problems),
    /// The engine cannot be read this way.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The recording cannot be written.
    #[error("cannot write {}", path.display())]
    Raw {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The kvbridge cannot be asked.
    #[error(transparent)]
    Bridge(#[from] BridgeError),
    /// What came are not our events.
    #[error("{url} does not send events")]
    NotEvents {
        /// Which address.
        url: String,
    },
    /// An engine that is known by its server.
    #[error("an engine's frames are read at its endpoint, tcp://host:port")]
    NeedsEndpoint,
    /// The stream ended.
    #[error("the stream of {from} ended")]
    Ended {
        /// Whose.
        from: String,
    },
}

impl TailError {
    pub(super) fn exit(&self) -> Exit {
        match self {
            TailError::Bridge(error) => error.exit(),
            TailError::NeedsEngine
            | TailError::BusAndOther
            | TailError::OneEngine { .. }
            | TailError::NeedsEndpoint
            | TailError::Options(_)
            | TailError::Open(_) => Exit::BadInput,
            TailError::Raw { .. } | TailError::NotEvents { .. } | TailError::Ended { .. } => {
                Exit::Failed
            }
        }
    }
}

impl TailArgs {
    pub(super) async fn execute(
        mut self,
        environment: &Environment,
        console: &mut Console<'_>,
    ) -> Result<Exit, CliError> {
        let mut stop = signal::Stop::new()?;
        let sources = std::mem::take(&mut self.sources.sources);
        let tail = async {
            if self.bus.is_given() {
                if !sources.is_empty() || self.raw.is_some() {
                    return Err(TailError::BusAndOther.into());
                }
                let left = self.count.unwrap_or(u64::MAX);
                let browser = self.bus.nats.open(&self.access, environment).await?;
                return self.bus.tail(&browser, left, self.tokens, console).await;
            }
            match sources.len() {
                0 if self.raw.is_some() => Err(TailError::NeedsEngine.into()),
                0 => self.bridge(console).await,
                1 => {
                    let flags = Flags { sources, ..Flags::default() };
                    let config = config::load(None, &[], flags).map_err(TailError::from)?;
                    match config.sources.as_slice() {
                        [source] => self.engine(source, console).await,
                        [] => Err(TailError::NeedsEndpoint.into()),
                        many => Err(TailError::OneEngine { count: many.len() }.into()),
                    }
                }
                count => Err(TailError::OneEngine { count }.into()),
            }
        };
        tokio::select! {
            exit = stop.wait() => Ok(exit),
            exit = tail => exit,
        }
    }

    async fn bridge(&self, console: &mut Console<'_>) -> Result<Exit, CliError> {
        let query = if self.tokens { "?tokens=true" } else { "" };
        let url = format!("{}/v1/events{query}", self.url.trim_end_matches('/'));
        let failed = |source| TailError::from(self.access.tls.no_answer(&url, source));
        let client = bridge::client(&self.access.tls, &url).map_err(TailError::from)?;
        let mut request = client.get(&url);
        if let Some(path) = &self.access.token_file {
            request =
                request.bearer_auth(bridge::one_line(path).map_err(TailError::from)?.expose());
        }
        let response = request.send().await.map_err(failed)?;
        if !response.status().is_success() {
            return Err(TailError::from(bridge::refusal(response, url).await).into());
        }
        let (mut reader, mut left) = (SseReader::default(), self.count.unwrap_or(u64::MAX));
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            let mut events = Vec::new();
            let read = reader.read(&chunk.map_err(failed)?, &mut events);
            read.map_err(|_| TailError::NotEvents { url: url.clone() })?;
            for ServerEvent { name, data } in events {
                if left == 0 {
                    return Ok(Exit::Ok);
                }
                let value = serde_json::from_str::<Value>(&data)
                    .map_err(|_| TailError::NotEvents { url: url.clone() })?;
                let text = if console.out_is_terminal { pretty::line(&value) } else { data };
                console.line(&text)?;
                console.out.flush()?;
                left -= u64::from(name == "envelope");
            }
            if left == 0 {
                return Ok(Exit::Ok);
            }
        }
        Err(TailError::Ended { from: url }.into())
    }

    async fn engine(
        &self,
        source: &SourceConfig,
        console: &mut Console<'_>,
    ) -> Result<Exit, CliError> {
        let settings =
            registry::subscription(source, &config::Limits::default()).map_err(TailError::from)?;
        let mut raw = self.raw.clone().map(RawFile::create).transpose()?;
        let mut subscriber = Subscriber::spawn(settings, Arc::new(Counters::default()));
        let mut left = self.count.unwrap_or(u64::MAX);
        while left > 0 {
            match subscriber.next().await {
                Some(WireEvent::Attached) => {
                    console.message(&format!("attached to {}", source.endpoint));
                }
                Some(WireEvent::Detached { .. }) => console.message("detached"),
                Some(WireEvent::Overflowed { dropped }) => {
                    console
                        .message(&format!("{dropped} messages dropped: this reader is too slow"));
                }
                Some(WireEvent::Malformed { reason }) => {
                    console.message(&format!("malformed message: {reason}"));
                }
                Some(WireEvent::Frames(frame)) => {
                    if let Some(raw) = &mut raw {
                        raw.write(source, &frame)?;
                    }
                    self.show(source, &frame, console)?;
                    left -= 1;
                }
                None => return Err(TailError::Ended { from: source.endpoint.to_string() }.into()),
            }
        }
        Ok(Exit::Ok)
    }

    fn show(
        &self,
        source: &SourceConfig,
        frame: &LiveFrame,
        console: &mut Console<'_>,
    ) -> io::Result<()> {
        let seq_frame = frame.seq_frame.as_bytes();
        let message = Message { topic: &frame.topic, seq_frame, payload: &frame.payload };
        let decoding = registry::decode_message(&source.engine, &message);
        for fault in &decoding.faults {
            console.message(&format!("seq {}: {fault}", frame.seq_frame.seq()));
        }
        let Some(batch) = decoding.batch else { return Ok(()) };
        let mut replica = source.replica.clone();
        replica.rank = batch.rank.unwrap_or(replica.rank);
        let envelope = Envelope {
            replica,
            epoch: Epoch(0),
            incarnation: batch.incarnation,
            seq: batch.seq,
            span: batch.span,
            digest: batch.digest,
            trust: Trust::None,
            ts: batch.ts,
            engine: Engine { kind: source.engine.clone(), format: batch.format.to_owned() },
            hash: batch.hash,
            events: batch.events,
        };
        let text = pretty::envelope(&envelope, console.out_is_terminal, self.tokens);
        console.line(&text)?;
        console.out.flush()
    }
}

/// The recording that `--raw` writes.
struct RawFile {
    path: PathBuf,
    out: BufWriter<File>,
}

impl RawFile {
    fn create(path: PathBuf) -> Result<RawFile, TailError> {
        match File::create(&path) {
            Ok(file) => Ok(RawFile { out: BufWriter::new(file), path }),
            Err(source) => Err(TailError::Raw { path, source }),
        }
    }

    fn write(&mut self, source: &SourceConfig, frame: &LiveFrame) -> Result<(), TailError> {
        let frames = [frame.topic.as_ref(), frame.seq_frame.as_bytes(), frame.payload.as_ref()];
        let endpoint = source.endpoint.to_string();
        capture::write_live(&mut self.out, Clock::unix_ms(), &endpoint, &frames)
            // A recording that ends with Ctrl-C must hold everything that was shown.
            .and_then(|()| self.out.flush())
            .map_err(|source| TailError::Raw { path: self.path.clone(), source })
    }
}
