//! `kvbridge sink test`: what a router's reader would see of a sink, message by message, and the
//! rules of that reader which each keeps or breaks.

use std::{path::PathBuf, time::Duration};

use bytes::Bytes;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use kvbridge_adapters_zmq::{LiveFrame, ReplayFailure, subscribe::Link};
use serde_json::Value;

#[cfg(feature = "sink-smg")]
use super::sink_stream;
use super::{
    AccessArgs, CliError, ConfigArgs, Console, Environment, Exit,
    bridge::{self, BridgeError},
    examples, signal,
    sink_read::{Address, Reading, Seen},
    sink_shown::Shown,
};
use crate::{
    clock::Clock,
    config::{Flags, for_rank},
    sink_check::{Checker, Judged, Kind, Message, specimen},
    sink_line::Preset,
};

/// Most messages of one test.
const COUNT_MAX: i64 = 1_000_000;

/// Try what routers are fed with
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = examples::SINK)]
pub struct SinkArgs {
    #[command(subcommand)]
    action: SinkAction,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum SinkAction {
    /// Show what a router's reader would see, message by message, and which of its rules each keeps
    Test(Box<TestArgs>),
}

/// Without --url, --config, --endpoint or --bind a view is made up.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = examples::SINK_TEST)]
struct TestArgs {
    /// Which router
    #[arg(long, value_name = "NAME", value_parser = presets())]
    preset: Preset,
    /// End after so many messages
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(i64).range(1..=COUNT_MAX))]
    count: i64,
    /// The key of the replica whose line is read [default: the first one]
    #[arg(long, value_name = "KEY", requires = "url")]
    replica: Option<String>,
    /// A running kvbridge, which says where its sink of that preset is
    #[arg(long, value_name = "URL", group = "from")]
    url: Option<String>,
    #[command(flatten)]
    access: AccessArgs,
    /// A configuration with a sink of that preset: its rank 0
    #[arg(long, value_name = "FILE", group = "from")]
    config: Option<PathBuf>,
    /// Whatever publishes in this form, tcp://host:port: also an engine itself
    #[arg(long, value_name = "ENDPOINT", group = "from")]
    endpoint: Option<String>,
    /// Where its past is asked for
    #[arg(long, value_name = "ENDPOINT", requires = "endpoint")]
    replay: Option<String>,
    /// Be a router that binds here and is connected to
    #[arg(long, value_name = "ENDPOINT", group = "from")]
    bind: Option<String>,
    /// ZeroMQ topic prefix
    #[arg(long, value_name = "PREFIX")]
    topic: Option<String>,
    /// How long to wait for all messages
    #[arg(long, value_name = "SPAN", default_value = "30s", value_parser = humantime::parse_duration)]
    timeout: Duration,
    /// Print JSON, an object a line
    #[arg(long)]
    json: bool,
}

fn presets() -> impl TypedValueParser<Value = Preset> {
    let names = PossibleValuesParser::new(Preset::ALL.map(Preset::as_str));
    names.try_map(|name| Preset::from_name(&name).ok_or("no preset has that name"))
}

/// Why there was nothing to look at.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// The kvbridge cannot be asked.
    #[error(transparent)]
    Bridge(#[from] BridgeError),
    /// It has no such sink, or none for that replica.
    #[error("{from} has no sink of preset {preset} that is bound{whose}")]
    NoSink {
        /// Whose.
        from: String,
        /// Which.
        preset: &'static str,
        /// For which replica, after a space.
        whose: String,
    },
    /// A stream cannot be read.
    #[cfg(feature = "sink-smg")]
    #[error("reading {endpoint} failed: {why}")]
    Stream {
        /// Where.
        endpoint: String,
        /// Why.
        why: String,
    },
    /// It listens nowhere.
    #[error(
        "the sink {sink:?} connects to its readers: be one with --bind, at an address of sinks.connect"
    )]
    Connects {
        /// Which.
        sink: String,
    },
    /// The reading task ended.
    #[error("reading {endpoint} ended")]
    Ended {
        /// Where.
        endpoint: String,
    },
    /// The past could not be read.
    #[error("{endpoint} does not answer")]
    Replay {
        /// Where.
        endpoint: String,
        /// Why.
        source: ReplayFailure,
    },
}

impl SinkError {
    pub(super) fn exit(&self) -> Exit {
        match self {
            SinkError::Bridge(error) => error.exit(),
            SinkError::NoSink { .. } | SinkError::Connects { .. } => Exit::BadInput,
            #[cfg(feature = "sink-smg")]
            SinkError::Stream { .. } => Exit::Failed,
            SinkError::Ended { .. } | SinkError::Replay { .. } => Exit::Failed,
        }
    }
}

impl SinkArgs {
    pub(super) async fn execute(
        self,
        environment: &Environment,
        console: &mut Console<'_>,
    ) -> Result<Exit, CliError> {
        let SinkAction::Test(args) = self.action;
        let mut stop = signal::Stop::new()?;
        tokio::select! {
            exit = stop.wait() => Ok(exit),
            exit = Box::pin(args.test(environment, console)) => exit,
        }
    }
}

impl TestArgs {
    async fn test(
        &self,
        environment: &Environment,
        console: &mut Console<'_>,
    ) -> Result<Exit, CliError> {
        let mut shown = Shown::new(self.preset, self.json);
        match self.address(environment).await? {
            None => self.made_up(&mut shown, console)?,
            Some(address) => {
                shown.begin(&address.link_text(), console)?;
                #[cfg(feature = "sink-smg")]
                let read = async {
                    if self.preset.profile().encoding.is_streamed() {
                        let from = (&address, &self.access, self.preset);
                        return sink_stream::read(from, self.messages(), &mut shown, console).await;
                    }
                    self.read(address, &mut shown, console).await
                };
                #[cfg(not(feature = "sink-smg"))]
                let read = self.read(address, &mut shown, console);
                if let Ok(read) = tokio::time::timeout(self.timeout, read).await {
                    read?;
                } else {
                    let came = shown.message_count();
                    let waited = humantime::format_duration(self.timeout);
                    console.message(&format!("{came} of {} messages in {waited}", self.count));
                }
            }
        }
        shown.end(console)?;
        console.out.flush()?;
        let all = shown.message_count() >= self.messages();
        Ok(if all && shown.broken_count() == 0 { Exit::Ok } else { Exit::NotReached })
    }

    fn messages(&self) -> usize {
        usize::try_from(self.count).unwrap_or(usize::MAX)
    }

    /// A view that is made up, its line and its readers.
    fn made_up(&self, shown: &mut Shown, console: &mut Console<'_>) -> Result<(), CliError> {
        let specimen = specimen(self.preset, self.messages(), Clock::unix_ms());
        shown.begin(&format!("{}, made up", specimen.replica.key()), console)?;
        for judged in specimen.judged(self.preset.needs()) {
            match judged {
                Judged::Asks(start) => shown.asked(start, console)?,
                Judged::Message(message) => shown.message(&message, console)?,
            }
        }
        Ok(())
    }

    /// Reads as the router does: what is live, and from 0 whatever came before.
    async fn read(
        &self,
        address: Address,
        shown: &mut Shown,
        console: &mut Console<'_>,
    ) -> Result<(), CliError> {
        // Where a replica is named, its topic, whole: it may be another one's beginning.
        let mut topic = address.topic.clone().map(Bytes::from);
        let wanted = self.topic.clone().or_else(|| address.topic.clone()).unwrap_or_default();
        let mut reading = Reading::new(address, wanted);
        let mut checker = Checker::new(self.preset.needs());
        while shown.message_count() < self.messages() {
            let frame = match reading.live().await? {
                Seen::Frame(frame) => frame,
                Seen::Note(note) => {
                    console.message(&note);
                    continue;
                }
            };
            // One reader is of one topic: the first that comes.
            if *topic.get_or_insert_with(|| frame.topic.clone()) != frame.topic {
                continue;
            }
            let start = checker.asks_before(frame.seq_frame.seq());
            if let Some(start) = start.filter(|_| reading.can_ask()) {
                self.ask(&mut reading, (start, &frame.topic), &mut checker, (shown, console))
                    .await?;
            }
            let LiveFrame { topic, seq_frame, payload, .. } = &frame;
            let verdict = checker.live(&[topic, seq_frame.as_bytes(), payload]);
            if !verdict.is_old && shown.message_count() < self.messages() {
                let bytes = payload.len();
                let message = Message { kind: Kind::Live, topic, bytes, verdict };
                shown.message(&message, console)?;
            }
        }
        Ok(())
    }

    async fn ask(
        &self,
        reading: &mut Reading,
        (start, live_topic): (u64, &[u8]),
        checker: &mut Checker,
        (shown, console): (&mut Shown, &mut Console<'_>),
    ) -> Result<(), CliError> {
        checker.asks(start);
        shown.asked(start, console)?;
        reading.ask(start);
        let with_marker = loop {
            let part = match reading.answer().await {
                Ok(Some(part)) => part,
                Ok(None) => break true,
                Err(SinkError::Replay {
                    source: ReplayFailure::Silent { .. } | ReplayFailure::Closed,
                    ..
                }) => break false,
                Err(error) => return Err(error.into()),
            };
            let (topic, payload) = (&part.topic, &part.payload);
            // Of another replica at the same sockets. Older forms of an answer have no topic.
            if !topic.is_empty() && topic != live_topic {
                continue;
            }
            let verdict = checker.replayed(topic, part.seq_frame.as_bytes(), payload);
            if shown.message_count() < self.messages() {
                let bytes = payload.len();
                let message = Message { kind: Kind::Answer, topic, bytes, verdict };
                shown.message(&message, console)?;
            }
        };
        let verdict = checker.ended(with_marker);
        if shown.message_count() < self.messages() {
            let message = Message { kind: Kind::Answer, topic: b"", bytes: 0, verdict };
            shown.message(&message, console)?;
        }
        Ok(())
    }

    /// Where to read; `None` = nowhere, a view is made up.
    async fn address(&self, environment: &Environment) -> Result<Option<Address>, CliError> {
        if let Some(url) = &self.url {
            return Ok(Some(self.running(url).await?));
        }
        if let Some(path) = &self.config {
            let args = ConfigArgs { config: Some(path.clone()) };
            let config = args.load(environment, Flags::default())?;
            let sink = config.sinks.iter().find(|sink| sink.preset == self.preset);
            let sink = sink.ok_or_else(|| self.no_sink(path.display().to_string()))?;
            if !sink.connect.is_empty() {
                return Err(SinkError::Connects { sink: sink.name.clone() }.into());
            }
            let (live, replay) = (for_rank(sink.listen, 0), for_rank(sink.replay, 0));
            let link = Link::Connect(live);
            return Ok(Some(Address { link, replay: Some(replay), topic: None }));
        }
        let connected = self.endpoint.clone().map(Link::Connect);
        let link = connected.or_else(|| self.bind.clone().map(Link::Bind));
        Ok(link.map(|link| Address { link, replay: self.replay.clone(), topic: None }))
    }

    fn no_sink(&self, from: String) -> SinkError {
        let whose = self.replica.as_ref().map(|key| format!(" for {key}")).unwrap_or_default();
        SinkError::NoSink { from, preset: self.preset.as_str(), whose }
    }

    /// Where a running kvbridge publishes.
    async fn running(&self, url: &str) -> Result<Address, CliError> {
        let asked = format!("{}/v1/sinks", url.trim_end_matches('/'));
        let answer = bridge::json(&self.access, &asked).await.map_err(SinkError::from)?;
        let text = |line: &Value, field: &str| line[field].as_str().map(str::to_owned);
        let lines = answer["sinks"].as_array().into_iter().flatten();
        let mut lines = lines.filter(|line| {
            let key = line["replica"].as_str();
            line["preset"] == self.preset.as_str()
                && self.replica.as_deref().is_none_or(|wanted| key == Some(wanted))
        });
        let live = lines.find_map(|line| {
            Some((text(line, "listen")?, text(line, "replay"), text(line, "topic")))
        });
        let (live, replay, topic) = live.ok_or_else(|| self.no_sink(url.to_owned()))?;
        let host = reqwest::Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
        let reachable = |endpoint: String| match &host {
            // It is bound to all addresses of its machine.
            Some(host) => endpoint.replace("//0.0.0.0:", &format!("//{host}:")),
            None => endpoint,
        };
        let link = Link::Connect(reachable(live));
        let topic = topic.filter(|_| self.replica.is_some());
        Ok(Address { link, replay: replay.map(reachable), topic })
    }
}
