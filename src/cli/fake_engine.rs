//! `kvbridge fake-engine`: a model of an engine, faithful on the wire.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use super::{CliError, Console, Exit, examples, signal};
use crate::{
    clock::Clock,
    config::limits,
    fake_engine::{
        self, FakeSettings, Model, Ports, Release, ReleaseError, drained::DrainedRelease,
        native::SinkKind, radix::release::RadixRelease, settings::ToldSettings,
        traffic::TrafficSettings,
    },
    pipeline::Tasks,
};

/// Model an engine: its cache, its event stream, its HTTP API, and faults on demand
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = examples::FAKE_ENGINE)]
pub struct FakeEngineArgs {
    /// Which engine
    #[arg(long, value_name = "NAME", value_parser = ["vllm", "sglang", "trtllm"])]
    engine: String,
    /// Publish as its native stream does, by that sink (trtllm) [default: events are drained]
    #[arg(long, value_name = "SINK", value_parser = ["python", "cpp"], conflicts_with = "encoding")]
    native: Option<String>,
    /// Stored blocks of a step above which the native stream leaves stores out without a word
    #[arg(long, value_name = "N", default_value_t = 50_000, requires = "native")]
    max_entries: usize,
    /// Release whose bytes are sent, from 0.9, 0.4.9 or 1.0 on [default: the newest known]
    #[arg(long, value_name = "RELEASE")]
    encoding: Option<String>,
    /// Form of block hashes: the last 8 bytes as a number, or all bytes (from 0.10.2 on)
    #[arg(long, value_name = "FORM", value_parser = ["int", "bytes"], default_value = "int")]
    hashes: String,
    /// Text that hash chains start from [default: the release's own]
    #[arg(long, value_name = "TEXT")]
    hash_seed: Option<String>,
    /// Blocks of a rank's cache, the null block counted
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(2..))]
    blocks: u32,
    /// Tokens per block
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    block_size: u32,
    /// Window in tokens of a second, sliding attention group [default: one full group]
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    sliding_window: Option<u32>,
    /// Blocks of a rank's host tier; 0 = none
    #[arg(long, value_name = "N", default_value_t = 0)]
    host_blocks: u32,
    /// Data-parallel ranks, at port + r
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    dp: u32,
    /// Tensor-parallel members of each rank
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    tp: u32,
    /// Address that publishers and replay sockets bind; nobody is asked who they are
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: IpAddr,
    /// Port of rank 0's publisher; 0 = any free one
    #[arg(long = "pub", value_name = "PORT", default_value_t = 5557)]
    publish: u16,
    /// Port of rank 0's replay socket; keep it further from --pub than there are ranks
    #[arg(long, value_name = "PORT", default_value_t = 5657)]
    replay: u16,
    /// Port of rank 0's snapshot socket (sglang, a draft): topics then name the publisher's life
    #[arg(long, value_name = "PORT")]
    snapshot: Option<u16>,
    /// Address of the HTTP API; it has no authentication
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8000")]
    http: SocketAddr,
    /// Topic of every message
    #[arg(long, value_name = "TEXT", default_value = "")]
    topic: String,
    /// Served model; a completion for another one uses an adapter of that name
    #[arg(long, value_name = "NAME", default_value = "fake")]
    model: String,
    /// Batches kept for replay, or events that wait to be taken
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    buffer_steps: usize,
    /// Milliseconds without an event after which an answer with events ends
    #[arg(long, value_name = "MS", default_value_t = 2_000)]
    drain_wait_ms: u64,
    /// Requests a second that each rank makes up
    #[arg(long, value_name = "N", default_value_t = 0.0, value_parser = rate)]
    rps: f64,
    /// Adapters that made-up requests use
    #[arg(long = "lora", value_name = "NAME")]
    loras: Vec<String>,
    /// Milliseconds of a step
    #[arg(long, value_name = "MS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    step_ms: u64,
    /// Seed of the made-up requests
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Publish no events, and say so
    #[arg(long)]
    no_events: bool,
    /// Tell nobody of the replay sockets
    #[arg(long)]
    no_replay: bool,
    /// Tell this number of tokens per block instead of the real one
    #[arg(long, value_name = "N")]
    told_block_size: Option<u32>,
    /// Tell this hash algorithm instead of the real one (trtllm)
    #[arg(long, value_name = "NAME")]
    told_algorithm: Option<String>,
    /// Print where everything is as one JSON line
    #[arg(long)]
    ports_json: bool,
}

/// The newest release of an engine.
pub(super) fn newest(engine: &str) -> Model {
    match engine {
        "sglang" => Model::Radix(RadixRelease::NEWEST),
        "trtllm" => Model::Drained(DrainedRelease::Newer),
        _ => Model::Paged(Release::NEWEST),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (0.0..=1e6).contains(&rate) => Ok(rate),
        _ => Err("expected requests a second, 0 to 1000000".to_owned()),
    }
}

impl FakeEngineArgs {
    fn model(&self) -> Result<Model, ReleaseError> {
        let newest = newest(&self.engine);
        if let (Model::Drained(_), Some(sink)) = (newest, &self.native) {
            return sink.parse().map(Model::Native);
        }
        let Some(release) = &self.encoding else { return Ok(newest) };
        match newest {
            Model::Radix(_) => release.parse().map(Model::Radix),
            Model::Drained(_) => release.parse().map(Model::Drained),
            Model::Paged(_) => release.parse().map(Model::Paged),
            Model::Native(_) => release.parse::<SinkKind>().map(Model::Native),
        }
    }

    fn settings(&self, engine: Model) -> FakeSettings {
        FakeSettings {
            engine,
            bytes: self.hashes == "bytes",
            hash_seed: self.hash_seed.clone(),
            blocks: self.blocks,
            block_size: self.block_size,
            window: self.sliding_window,
            host_blocks: self.host_blocks,
            dp: self.dp,
            tp: self.tp,
            host: self.host,
            publish_port: self.publish,
            replay_port: self.replay,
            snapshot_port: self.snapshot,
            http: self.http,
            topic: self.topic.clone(),
            model: self.model.clone(),
            buffer_steps: self.buffer_steps,
            entries_max: self.max_entries,
            drain_wait: Duration::from_millis(self.drain_wait_ms),
            rps: self.rps,
            step: Duration::from_millis(self.step_ms),
            seed: self.seed,
            traffic: TrafficSettings { loras: self.loras.clone(), ..TrafficSettings::default() },
            told: ToldSettings {
                is_mute: self.no_events,
                hides_replay: self.no_replay,
                block_size: self.told_block_size,
                algorithm: self.told_algorithm.clone(),
            },
        }
    }

    pub(super) async fn execute(self, console: &mut Console<'_>) -> Result<Exit, CliError> {
        let model = self.model()?;
        let mut stop = signal::Stop::new()?;
        let mut tasks = Tasks::new();
        let ports = fake_engine::start(self.settings(model), &mut tasks, Clock::start()).await?;
        if self.ports_json {
            let line = serde_json::to_string(&ports).expect("texts and numbers serialise");
            console.line(&line)?;
        } else {
            describe(console, &self, model, &ports)?;
        }
        console.out.flush()?;
        let exit = stop.wait().await;
        tasks.stop(limits::STOP_DEADLINE).await;
        Ok(exit)
    }
}

fn describe(
    console: &mut Console<'_>,
    args: &FakeEngineArgs,
    model: Model,
    ports: &Ports,
) -> std::io::Result<()> {
    console.line(&format!("fake {} {} on {}", args.engine, model, ports.http))?;
    for rank in &ports.ranks {
        let (live, replay) = (&rank.live, &rank.replay);
        if replay.is_empty() {
            console.line(&format!("  rank {}: drained at {live}", rank.rank))?;
            continue;
        }
        let snapshot = rank.snapshot.as_deref();
        let snapshot = snapshot.map(|at| format!(", snapshot {at}")).unwrap_or_default();
        let rank = rank.rank;
        console.line(&format!("  rank {rank}: publishes at {live}, replay {replay}{snapshot}"))?;
    }
    Ok(())
}
