//! Replicas of an engine that bridges take turns at: read from the log, or from the engine.

use std::sync::Arc;

use kvbridge_schemas::{Cursor, Epoch};

use super::{super::lease, Pipeline, StartError, Tasks, Terms};
use crate::{
    checkpoint::Kept,
    config::{Config, SourceConfig},
    pipeline::{Shift, Signs, ViewCut, registry},
    recovery::Checkpoint,
};

impl Pipeline {
    /// Begins to follow a replica whose engine others may ask too; `false` = nobody else may.
    pub(super) fn takes_turns(
        &self,
        source: &SourceConfig,
        config: &Config,
        tasks: &mut Tasks,
    ) -> bool {
        let Some(at) = &source.polled else { return false };
        let is_of =
            |other: &&SourceConfig| other.polled.as_ref().is_some_and(|it| it.url == at.url);
        let sources: Vec<_> = config.sources.iter().filter(is_of).cloned().collect();
        let shared = (&self.bus, &self.fleet, self.clock);
        if let Some((renewal, turns)) = self.leases.take_turns(&at.url, sources, shared) {
            let (stop, ended) =
                (tasks.stop_token().child_token(), tasks.stop_token().child_token());
            let renewed = renewal.run(ended.clone());
            tasks.spawn_until(format!("lease of {}", at.url), ended, renewed);
            tasks.spawn_until(format!("turns at {}", at.url), stop.clone(), turns.run(stop));
        }
        let Some(is_drained) = self.leases.is_drained(&at.url) else { return false };
        // Opened anew by a reload, while the others are read from the engine. A lease that has come
        // already moves all ranks at once, with their views.
        !is_drained && self.follow_log(source, config, tasks)
    }

    /// Reads a replica from the log that another bridge writes.
    fn follow_log(&self, source: &SourceConfig, config: &Config, tasks: &mut Tasks) -> bool {
        let (replica, engine) = (&source.replica, &source.engine);
        let Some(view) = registry::polled_view(engine, config) else { return false };
        let signs = Arc::<Signs>::default();
        let followed = self.bus.follower(replica, view.removal, &signs, (self.clock, tasks));
        let Some(followed) = followed else { return false };
        self.begin_reader(replica, (engine.clone(), followed, view, signs), config, tasks);
        true
    }

    /// Whether its engine may be asked now, if others could ask it.
    pub(super) fn may_ask(&self, source: &SourceConfig) -> Option<registry::MayAsk> {
        let (until, clock) = (self.leases.until(&source.polled.as_ref()?.url)?, self.clock);
        Some(Arc::new(move || lease::is_before(clock, &until)))
    }

    /// A lease came or went. Replicas that the configuration no longer has are left alone.
    pub async fn shift(
        &self,
        shift: Shift,
        config: &Config,
        tasks: &mut Tasks,
    ) -> Result<(), StartError> {
        let done = match shift {
            Shift::Hold(views, done) => {
                self.set_drained(views.iter().map(|(source, _)| source), true);
                // All of them before any is opened: the engine is asked as soon as all its ranks
                // are read, and what it hands over must not come to one that is about to end.
                let mut left = Vec::new();
                for (source, cut) in views {
                    let source = self.leave_reader(&source, config).await;
                    left.extend(source.map(|source| (source, cut)));
                }
                for (source, cut) in left {
                    let terms = Terms { config, state: None, floor: Epoch(0) };
                    let view = cut.map(|cut| kept(*cut));
                    self.open_engine(source, (terms, view), tasks).await?;
                }
                done
            }
            Shift::Follow(sources, done) => {
                self.set_drained(sources.iter(), false);
                for source in sources {
                    if let Some(source) = self.leave_reader(&source, config).await {
                        self.follow_log(source, config, tasks);
                    }
                }
                done
            }
        };
        // Whoever waits for it may have ended.
        done.send(()).unwrap_or_default();
        Ok(())
    }

    fn set_drained<'a>(&self, of: impl Iterator<Item = &'a SourceConfig>, is_drained: bool) {
        for at in of.filter_map(|source| source.polled.as_ref()) {
            self.leases.set_drained(&at.url, is_drained);
        }
    }

    /// Ends what reads it now, and says how it is configured by now; `None` = nothing reads it.
    async fn leave_reader<'a>(
        &self,
        source: &SourceConfig,
        config: &'a Config,
    ) -> Option<&'a SourceConfig> {
        let key = source.replica.key();
        if !self.fleet.has(&key) {
            return None;
        }
        self.close(&key).await;
        config.sources.iter().find(|other| other.replica == source.replica)
    }
}

/// A view that was read from the log, to be gone on with.
fn kept(cut: ViewCut) -> Kept {
    let ViewCut { header, view } = cut;
    let view = header.state.map(|state| {
        let cursor = Cursor { epoch: header.epoch, next_seq: header.resume_seq };
        (Checkpoint { cursor, trust: header.trust, state }, view)
    });
    Kept { view, ..Kept::default() }
}
