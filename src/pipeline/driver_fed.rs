//! What sinks are told of a replica: once after each step, so that data and what is believed of it
//! never part.

use std::sync::Arc;

use kvbridge_schemas::TierTrust;

use super::Driver;
use crate::{
    pipeline::{Fed, News},
    sink_line::Change,
    view::Delta,
};

/// What happened since sinks were told last.
#[derive(Default)]
pub(super) struct Step {
    /// The view is another one than they know.
    whole: bool,
    changes: Vec<Change>,
    /// What they were told to believe.
    trust: TierTrust,
}

impl Step {
    /// Nothing was told yet.
    pub(super) fn first() -> Step {
        Step { whole: true, ..Step::default() }
    }
}

impl Driver {
    pub(super) fn note_changes(&mut self, deltas: &[Delta]) {
        if !self.step.whole && self.outputs.feeds.is_wanted() {
            let changes = deltas.iter().filter_map(|delta| Change::of(delta, &self.view));
            self.step.changes.extend(changes);
        }
    }

    /// The view was replaced: the next step tells all of it.
    pub(super) fn note_replaced(&mut self) {
        self.step.whole = true;
        self.step.changes.clear();
    }

    /// Tells sinks what happened, if anything did.
    pub(super) fn feed(&mut self) {
        let trust = self.told.0;
        let is_new = self.step.whole || !self.step.changes.is_empty() || self.step.trust != trust;
        if !is_new || !self.outputs.feeds.is_wanted() {
            return;
        }
        let mut step = std::mem::take(&mut self.step);
        if step.whole {
            let links = self.view.links();
            step.changes = links.filter_map(|delta| Change::of(&delta, &self.view)).collect();
        }
        self.step.trust = trust;
        let (whole, changes) = (step.whole, Arc::from(step.changes));
        self.outputs.feeds.tell(&Fed {
            key: self.key.clone(),
            replica: Arc::clone(&self.replica),
            news: News::Step { whole, changes, trust },
        });
    }
}
