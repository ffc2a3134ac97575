//! SHELL. kvbridge in your own program: what `kvbridge run` does without its HTTP API, and with
//! engines that you bring.
//!
//! ```no_run
//! use kvbridge::{Bridge, adapters::Opening, config::SourceFile};
//!
//! # fn open(_: Opening) -> Result<kvbridge::adapters::Adapted, kvbridge::adapters::AdapterFault> {
//! #     unimplemented!()
//! # }
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let source = SourceFile {
//!     engine: Some("mine".to_owned()),
//!     endpoint: Some("tcp://127.0.0.1:5557".to_owned()),
//!     model: Some("llama".to_owned()),
//!     ..SourceFile::default()
//! };
//! let bridge = Bridge::builder().adapter("mine", open).source(source).start().await?;
//! bridge.until_usable("llama").await;
//! for replica in bridge.match_tokens("llama", &[1, 2, 3])?.replicas {
//!     println!("{}: {} tokens ({})", replica.key, replica.matched_tokens, replica.reason);
//! }
//! bridge.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! What may be believed of each replica travels with every answer. Memory is bounded by
//! `view.blocks_max` for each replica; the process's own limit, its log and its metrics (of the
//! crates `tracing` and `metrics`) are their owner's.

mod builder;
mod running;

use std::{sync::Arc, time::Duration};

use kvbridge_schemas::Trust;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::{
    adapters::AdapterError,
    checkpoint::{StateDir, StateError},
    config::{Config, Problems},
    index::{Answer, Index, Prompt, Query, QueryError},
    pipeline::{Fleet, Pipeline, StartError},
};

pub use builder::BridgeBuilder;
pub(crate) use running::Running;

/// Between two looks at whether something is usable.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A running bridge. It ends with [`stop`](Bridge::stop), or when it is dropped.
pub struct Bridge {
    pipeline: Pipeline,
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

/// Why a bridge did not start. A bus or an engine that is away is no reason: it is tried for ever.
#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    /// An adapter cannot have that name.
    #[error(transparent)]
    Adapter(#[from] AdapterError),
    /// The configuration file cannot be read.
    #[error("cannot read configuration {}", path.display())]
    Unreadable {
        /// Which file.
        path: std::path::PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// What was asked for is wrong.
    #[error(transparent)]
    Config(#[from] Problems),
    /// The folder of checkpoints cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// A thread, a socket or a source could not be made.
    #[error(transparent)]
    Start(#[from] StartError),
}

impl Bridge {
    /// A bridge of what follows.
    pub fn builder() -> BridgeBuilder {
        BridgeBuilder::default()
    }

    /// A bridge of a whole configuration. Its HTTP API is not served.
    pub async fn start(config: Config) -> Result<Bridge, BridgeError> {
        let state = config.state.dir.as_deref().map(StateDir::open).transpose()?.map(Arc::new);
        let running = Box::pin(Running::start(config, state)).await?;
        let (pipeline, stop) = (running.pipeline.clone(), CancellationToken::new());
        let task = tokio::spawn(live(running, stop.clone()));
        Ok(Bridge { pipeline, stop, task: Some(task) })
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
            error!(%failed, "bridge did not end in order");
        }
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn live(mut running: Running, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(found) = running.found.recv() => running.follow(found).await,
            Some(shift) = running.shifts.recv() => running.shift(shift).await,
            Ok(()) = running.lookout.seen.changed() => running.follow_engines().await,
            name = running.tasks.ended() => {
                error!(task = name.unwrap_or_default(), "a task of the bridge ended");
                break;
            }
        }
    }
    let pipeline = running.pipeline.clone();
    running.end(Duration::ZERO).await;
    // Without its tasks no view is kept true.
    for (_, replica) in pipeline.fleet.replicas() {
        pipeline.index.withdraw(pipeline.index.register((*replica.replica).clone()), "stopped");
    }
}
