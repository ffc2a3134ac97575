//! SHELL. An index in your own program, maintained from a bus: what `kvbridge run` does without a
//! source, without its HTTP API.
//!
//! ```no_run
//! use kvbridge::consumer::Consumer;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let consumer = Consumer::nats("nats://127.0.0.1:4222").model("llama").start().await?;
//! consumer.until_usable("llama").await;
//! for replica in consumer.match_tokens("llama", &[1, 2, 3])?.replicas {
//!     println!("{}: {} tokens ({})", replica.key, replica.matched_tokens, replica.reason);
//! }
//! consumer.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! Replicas appear and vanish by themselves. What may be believed of each travels with every
//! answer: a consumer whose server is away answers that nothing is usable, never with what was true
//! once. Memory is bounded by `view.blocks_max` for each replica; the process's own limit is its
//! owner's.

use std::{sync::Arc, time::Duration};

use kvbridge_schemas::Trust;
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::{
    bus::Found,
    clock::Clock,
    config::{self, BusFile, Config, Flags, Problems, Secret, limits},
    index::{Answer, Index, Prompt, Query, QueryError},
    pipeline::{self, Fleet, Pipeline, StartError, Tasks},
};

/// Between two looks at whether something is usable.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A maintained index. It ends with [`stop`](Consumer::stop), or when it is dropped.
pub struct Consumer {
    pipeline: Pipeline,
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

/// Why a consumer did not start. A server that is away is no reason: it is tried for ever.
#[derive(Debug, thiserror::Error)]
pub enum ConsumerError {
    /// What was asked for is wrong.
    #[error(transparent)]
    Config(#[from] Problems),
    /// A thread or a socket could not be made.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// Which bus, who we are there, and what of it is read.
#[derive(Clone, Debug, Default)]
pub struct ConsumerBuilder {
    bus: BusFile,
}

impl ConsumerBuilder {
    /// A user's name and password.
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.bus.user = Some(name.into());
        self.bus.password = Some(Secret::new(password));
        self
    }

    /// A token.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.bus.token = Some(Secret::new(token));
        self
    }

    /// The seed of an nkey.
    pub fn nkey(mut self, seed: impl Into<String>) -> Self {
        self.bus.nkey = Some(Secret::new(seed));
        self
    }

    /// A credentials file (JWT and seed).
    pub fn credentials(mut self, path: impl Into<String>) -> Self {
        self.bus.creds = Some(path.into());
        self
    }

    /// A file with the authority of the server's certificate, PEM.
    pub fn authority(mut self, path: impl Into<String>) -> Self {
        self.bus.tls_ca = Some(path.into());
        self
    }

    /// Files with our certificate and its key, PEM.
    pub fn certificate(mut self, path: impl Into<String>, key: impl Into<String>) -> Self {
        self.bus.tls_cert = Some(path.into());
        self.bus.tls_key = Some(key.into());
        self
    }

    /// Reads replicas of this model, and of others that are named so; without any, of all.
    pub fn model(mut self, name: impl Into<String>) -> Self {
        self.bus.models.get_or_insert_default().push(name.into());
        self
    }

    /// What the streams' names begin with, if not with `KVHINTS`.
    pub fn streams(mut self, prefix: impl Into<String>) -> Self {
        self.bus.stream = Some(prefix.into());
        self
    }

    /// How many streams replicas are spread over, if not one for each model.
    pub fn shards(mut self, count: u32) -> Self {
        self.bus.shards = Some(count.to_string());
        self
    }

    /// Starts to read, inside a tokio runtime.
    pub async fn start(self) -> Result<Consumer, ConsumerError> {
        let flags = Flags { server: self.bus, ..Flags::default() };
        Consumer::start(config::load(None, &[], flags)?).await
    }
}

impl Consumer {
    /// A consumer of a NATS bus: `nats://host:port` or `tls://host:port`, with commas between.
    pub fn nats(url: impl Into<String>) -> ConsumerBuilder {
        let bus = BusFile { url: Some(url.into()), ..BusFile::default() };
        ConsumerBuilder { bus }
    }

    /// A consumer of a whole configuration, for what the builder has no word for: another bus,
    /// sources beside it, other limits. Its HTTP API and its state on disk are not served.
    pub async fn start(config: Config) -> Result<Consumer, ConsumerError> {
        let mut tasks = Tasks::new();
        let (found_tx, found) = mpsc::channel(limits::BUS_FOUND_QUEUE);
        let started = pipeline::start(&config, None, &mut tasks, Clock::start(), found_tx).await;
        let pipeline = match started {
            Ok(pipeline) => pipeline,
            Err(error) => {
                tasks.stop(config.shutdown.timeout).await;
                return Err(error.into());
            }
        };
        let stop = CancellationToken::new();
        let followed = follow(pipeline.clone(), config, tasks, found, stop.clone());
        Ok(Consumer { pipeline, stop, task: Some(tokio::spawn(followed)) })
    }

    /// How much of a prompt each replica of the model holds, as far as that is proven.
    pub fn match_tokens(&self, model: &str, tokens: &[u32]) -> Result<Answer, QueryError> {
        self.index().query(&Query {
            model,
            prompt: Prompt::Tokens(tokens),
            lora: None,
            salt: None,
            accept: Trust::Exact,
            hints: false,
        })
    }

    /// The index, for every other question.
    pub fn index(&self) -> &Index {
        &self.pipeline.index
    }

    /// The replicas, how each stands, and what happens to them.
    pub fn fleet(&self) -> &Arc<Fleet> {
        &self.pipeline.fleet
    }

    /// Returns as soon as a replica of the model can be matched. Cancel-safe.
    pub async fn until_usable(&self, model: &str) {
        while !self.match_tokens(model, &[]).is_ok_and(|answer| answer.fallback.is_none()) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Ends in order: returns when nothing of it runs any more.
    pub async fn stop(mut self) {
        self.stop.cancel();
        if let Some(task) = self.task.take()
            && let Err(failed) = task.await
        {
            error!(%failed, "consumer did not end in order");
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn follow(
    pipeline: Pipeline,
    config: Config,
    mut tasks: Tasks,
    mut found: mpsc::Receiver<Found>,
    stop: CancellationToken,
) {
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(found) = found.recv() => pipeline.follow(found, &config, &mut tasks).await,
            name = tasks.ended() => {
                error!(task = name.unwrap_or_default(), "a task of the consumer ended");
                break;
            }
        }
    }
    tasks.stop(config.shutdown.timeout).await;
    // Without its tasks no view is kept true.
    for (_, replica) in pipeline.fleet.replicas() {
        pipeline.index.withdraw(pipeline.index.register((*replica.replica).clone()), "stopped");
    }
}
