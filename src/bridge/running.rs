//! What runs of a configuration, whoever runs it: engines that are read and looked for, replicas of
//! a bus, views on disk. Nobody is answered here.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use tokio::sync::{mpsc, watch};
use tracing::{info, warn};

use crate::{
    bus::Found,
    checkpoint::{self, Keeper, StateDir},
    clock::Clock,
    config::{Config, limits},
    foreman::Foreman,
    lookout::{Lookout, Watched},
    pipeline::{self, Pipeline, ReloadError, Reloaded, Shift, StartError, Tasks},
};

/// Everything that runs.
pub(crate) struct Running {
    /// What runs: as configured, and what was found.
    pub(crate) config: Config,
    /// What is wanted, without what was found.
    pub(crate) configured: Config,
    /// Engines that are looked for.
    pub(crate) lookout: Watched,
    pub(crate) pipeline: Pipeline,
    pub(crate) tasks: Tasks,
    /// Replicas that come and go on the bus.
    pub(crate) found: mpsc::Receiver<Found>,
    /// Leases that come and go.
    pub(crate) shifts: mpsc::Receiver<Shift>,
    /// Runs jobs.
    pub(crate) foreman: Foreman,
    pub(crate) state: Option<Arc<StateDir>>,
    keeper: Option<Arc<Keeper>>,
    checkpoint_every: watch::Sender<Duration>,
}

impl Running {
    /// Starts all tasks.
    pub(crate) async fn start(
        config: Config,
        state: Option<Arc<StateDir>>,
    ) -> Result<Running, StartError> {
        let (mut tasks, clock) = (Tasks::new(), Clock::start());
        let (found_tx, found) = mpsc::channel(limits::BUS_FOUND_QUEUE);
        let started = pipeline::start(&config, state.as_ref(), &mut tasks, clock, found_tx).await;
        let pipeline = match started {
            Ok(pipeline) => pipeline,
            Err(error) => {
                tasks.stop(config.shutdown.timeout).await;
                return Err(error);
            }
        };
        let (task, lookout) = Lookout::new(&config.discovery, &config.engines, clock);
        tasks.spawn("lookout", task.run(tasks.stop_token()));
        let foreman = Foreman::new(Arc::clone(&pipeline.fleet), clock);
        foreman.work(config.recovery.on_unrecoverable, &mut tasks);
        let (checkpoint_every, every) = watch::channel(config.state.interval);
        let keeper = state.as_ref().map(|dir| {
            let fleet = Arc::clone(&pipeline.fleet);
            let keeper = Arc::new(Keeper::new(Arc::clone(dir), fleet, clock));
            let stop = tasks.stop_token();
            tasks.spawn("checkpoints", checkpoint::keep(Arc::clone(&keeper), every, stop));
            keeper
        });
        let shifts = pipeline.leases.shifts().unwrap_or_else(|| mpsc::channel(1).1);
        let configured = config.clone();
        Ok(Running {
            config,
            configured,
            lookout,
            pipeline,
            tasks,
            found,
            shifts,
            foreman,
            state,
            keeper,
            checkpoint_every,
        })
    }

    /// A replica came or went on the bus.
    pub(crate) async fn follow(&mut self, found: Found) {
        let Running { pipeline, tasks, config, .. } = self;
        pipeline.follow(found, config, tasks).await;
    }

    /// The lease on an engine came or went.
    pub(crate) async fn shift(&mut self, shift: Shift) {
        let Running { pipeline, tasks, config, .. } = self;
        if let Err(error) = pipeline.shift(shift, config, tasks).await {
            warn!(%error, "a replica could not be opened");
        }
    }

    /// Opens what engines told since, and closes what is gone.
    pub(crate) async fn follow_engines(&mut self) {
        // An engine that restarts tells the same again, and most news are of no source.
        let wanted = self.with_found();
        if wanted.sources != self.config.sources
            && let Err(error) = self.take_over(wanted).await
        {
            warn!(%error, "a source that was found is not opened");
        }
    }

    /// The configuration with the sources that were found.
    fn with_found(&mut self) -> Config {
        let seen = self.lookout.seen.borrow_and_update().clone();
        let found = seen.found(&self.configured);
        let (wanted, left_out) = self.configured.with_found(&self.config.sources, &found);
        for engine in left_out.into_iter().filter_map(|at| found.get(at)) {
            let (entry, address) = (&engine.entry, engine.address.authority());
            warn!(%entry, %address, "another source speaks of the same replica");
        }
        wanted
    }

    /// From now on this is what is wanted, with what is found for it.
    pub(crate) async fn configure(&mut self, configured: Config) -> Result<Reloaded, ReloadError> {
        self.configured = configured;
        self.lookout.wanted.send_replace(Arc::from(self.configured.engines.as_slice()));
        let wanted = self.with_found();
        let reloaded = self.take_over(wanted).await?;
        self.checkpoint_every.send_replace(self.config.state.interval);
        Ok(reloaded)
    }

    async fn take_over(&mut self, wanted: Config) -> Result<Reloaded, ReloadError> {
        let Running { config, pipeline, tasks, state, .. } = self;
        pipeline::reload(pipeline, state.as_ref(), config, wanted, tasks).await
    }

    /// Ends in order: after `drain` nothing more is read, views are kept, tasks are joined.
    pub(crate) async fn end(self, drain: Duration) {
        let timeout = self.config.shutdown.timeout;
        info!(?timeout, "stopping");
        let clock = self.pipeline.clock;
        let begun = clock.elapsed();
        let kept = tokio::time::timeout(timeout, async {
            tokio::time::sleep(drain).await;
            let halts = self.pipeline.fleet.replicas().map(|(_, replica)| async move {
                replica.halt().await;
            });
            // All at once: each may wait for an engine's last answer. Half of the time is for what
            // follows: an engine under load may answer later than anybody waits.
            if tokio::time::timeout(timeout / 2, join_all(halts)).await.is_err() {
                warn!("an engine's last answer did not come in time: what was in it is lost");
            }
            if let Some(keeper) = &self.keeper {
                keeper.save_all().await;
            }
        });
        if kept.await.is_err() {
            warn!("checkpoints did not end in time");
        }
        let left = timeout.saturating_sub(clock.elapsed().saturating_sub(begun));
        self.tasks.stop(left).await;
        info!("stopped");
    }
}
