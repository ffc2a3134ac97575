//! How many engines are asked for history at once. A fleet that starts together would else have
//! every journal read at the same moment: on our cores, and on each engine's publisher thread.
//!
//! Who finds no place is told `Busy`, and recovery asks again after a wait of its own, which grows
//! and has jitter. So there is no queue, and a place is held by an open request alone.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use kvbridge_adapters_api::{
    AnswerPart, Attempt, Capabilities, Delivery, RequestRefused, Source, SourceEvent, SourceRequest,
};
use kvbridge_schemas::{Replica, Seq, SnapshotRecord};

use crate::config::limits::RECOVERY_PARALLEL;

/// An engine: all ranks of an instance share its cores.
type Engine = (String, String);

/// The places of all engines of a process.
#[derive(Debug)]
pub struct Budget {
    most: usize,
    taken: Mutex<BTreeSet<Engine>>,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget::new(RECOVERY_PARALLEL)
    }
}

impl Budget {
    /// So many places in all, and one for each engine.
    pub fn new(most: u32) -> Budget {
        Budget { most: usize::try_from(most).unwrap_or(usize::MAX), taken: Mutex::default() }
    }

    fn take(self: &Arc<Self>, engine: &Engine) -> Option<Place> {
        let mut taken = self.taken();
        if taken.len() >= self.most || !taken.insert(engine.clone()) {
            return None;
        }
        Some(Place { budget: Arc::clone(self), engine: engine.clone() })
    }

    // Sets change in single steps: nothing in them can panic half-way.
    fn taken(&self) -> MutexGuard<'_, BTreeSet<Engine>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Given back when dropped.
#[derive(Debug)]
struct Place {
    budget: Arc<Budget>,
    engine: Engine,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.budget.taken().remove(&self.engine);
    }
}

/// An engine's source whose requests want a place.
pub(super) struct Budgeted {
    source: Box<dyn Source>,
    engine: Engine,
    budget: Arc<Budget>,
    open: Option<(Attempt, Place)>,
    /// To be told that there was none.
    busy: Option<Attempt>,
}

impl Budgeted {
    pub(super) fn new(source: Box<dyn Source>, replica: &Replica, budget: &Arc<Budget>) -> Self {
        let engine = (replica.model.clone(), replica.instance.clone());
        Budgeted { source, engine, budget: Arc::clone(budget), open: None, busy: None }
    }

    /// An answer that is over needs its place no longer.
    fn note(&mut self, delivery: &Delivery) {
        if let Delivery::Event(SourceEvent::Answer { attempt, part }) = delivery
            && ends(part)
        {
            self.open.take_if(|(open, _)| open == attempt);
        }
    }
}

fn ends(part: &AnswerPart) -> bool {
    match part {
        AnswerPart::End
        | AnswerPart::Truncated
        | AnswerPart::Failed
        | AnswerPart::Busy
        | AnswerPart::SnapshotEnd
        | AnswerPart::SnapshotRefused(_) => true,
        AnswerPart::Batch(_)
        | AnswerPart::Continues(_)
        | AnswerPart::FromTwin(_)
        | AnswerPart::SnapshotIntro(_)
        | AnswerPart::SnapshotRecords(_) => false,
    }
}

#[async_trait]
impl Source for Budgeted {
    fn capabilities(&self) -> Capabilities {
        self.source.capabilities()
    }

    fn begin(&mut self, kept: Option<(Seq, Vec<SnapshotRecord>)>) {
        self.source.begin(kept);
    }

    async fn next(&mut self) -> Option<Delivery> {
        if let Some(attempt) = self.busy.take() {
            return Some(SourceEvent::Answer { attempt, part: AnswerPart::Busy }.into());
        }
        let delivery = self.source.next().await;
        delivery.iter().for_each(|delivery| self.note(delivery));
        delivery
    }

    fn request(&mut self, request: SourceRequest) -> Result<(), RequestRefused> {
        (self.open, self.busy) = (None, None);
        let attempt = match &request {
            SourceRequest::Replay { attempt, .. } | SourceRequest::Snapshot { attempt, .. } => {
                *attempt
            }
            SourceRequest::Cancel => return self.source.request(request),
        };
        let Some(place) = self.budget.take(&self.engine) else {
            self.busy = Some(attempt);
            // The one before is replaced all the same.
            return self.source.request(SourceRequest::Cancel);
        };
        self.source.request(request)?;
        self.open = Some((attempt, place));
        Ok(())
    }

    fn wind_up(&mut self) -> bool {
        self.source.wind_up()
    }
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
