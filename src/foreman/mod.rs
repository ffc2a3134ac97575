//! SHELL. Runs jobs: sees the fleet, asks drivers and engines, notes what came of it.
//!
//! One task looks at all jobs; requests to engines run beside it, because an engine may take
//! seconds to answer. Orders of the API and of the configuration's policy go into one book.

mod engine;
mod orders;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::stream::{FuturesUnordered, StreamExt};
use kvbridge_schemas::{ReplicaKey, Trust};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::engine::Answer;
pub use self::orders::Selector;
use crate::{
    clock::Clock,
    jobs::{
        Ask, Book, Failure, Job, OnUnrecoverable, Order, Outcome, Policy, Seen, State, Target,
        TooManyJobs, Trigger, Verb,
    },
    pipeline::{AskError, Command, Fleet, ReplicaHandle, Tasks},
    telemetry::Deliberate,
};

/// Between two looks at jobs under way. Shorter: work for nothing. Longer: the next replica waits
/// although the one before is back.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How long a replica may take that the policy had asked.
const POLICY_TIMEOUT_MS: u64 = 120_000;

/// Orders jobs and shows them. Cheap to clone.
#[derive(Clone)]
pub struct Foreman {
    fleet: Arc<Fleet>,
    clock: Clock,
    book: Arc<Mutex<Book>>,
    asked: Deliberate,
}

impl Foreman {
    /// Nothing is ordered, and nobody works until [`Foreman::work`].
    pub fn new(fleet: Arc<Fleet>, clock: Clock) -> Foreman {
        let (book, asked) = (Arc::default(), Deliberate::register());
        Foreman { fleet, clock, book, asked }
    }

    /// Starts the task.
    pub fn work(&self, on_unrecoverable: OnUnrecoverable, tasks: &mut Tasks) {
        let shift = Shift {
            foreman: self.clone(),
            policy: Policy::default(),
            verb: on_unrecoverable.verb(),
            policy_job: None,
            requests: FuturesUnordered::new(),
        };
        tasks.spawn("jobs", shift.run(tasks.stop_token()));
    }

    /// Orders a job of the replicas that are chosen and may be seen. `None` = there is none.
    pub fn order(
        &self,
        order: Order,
        selector: &Selector,
        sees: impl Fn(&str) -> bool,
    ) -> Option<Result<u64, TooManyJobs>> {
        let chosen = self.fleet.replicas().filter(|(key, handle)| {
            sees(&handle.replica.model) && selector.chooses(key, &handle.replica)
        });
        let targets: Vec<Target> =
            chosen.map(|(key, handle)| target(order.verb, key, &handle)).collect();
        (!targets.is_empty()).then(|| self.enter(Job::new(order, targets)))
    }

    fn enter(&self, job: Job) -> Result<u64, TooManyJobs> {
        let (order, count) = (job.order(), job.members().len());
        let id = self.book().enter(job)?;
        let (verb, trigger) = (order.verb.as_str(), order.trigger.as_str());
        info!(id, verb, trigger, replicas = count, wait = order.wait.as_str(), "job ordered");
        Ok(id)
    }

    /// All jobs that are kept, oldest first.
    pub fn jobs(&self) -> Vec<(u64, Job)> {
        self.book().jobs().map(|(id, job)| (id, job.clone())).collect()
    }

    /// One of them.
    pub fn job(&self, id: u64) -> Option<Job> {
        self.book().job(id).cloned()
    }

    /// Ends a job. One that is over stays as it is.
    pub fn cancel(&self, id: u64) -> Option<Job> {
        let mut book = self.book();
        let job = book.job_mut(id)?;
        if job.outcome() == Outcome::Running {
            job.cancel();
            info!(id, "job cancelled");
        }
        Some(job.clone())
    }

    /// Asks one driver for a resync, and counts that.
    pub fn resync(&self, trigger: Trigger, handle: &ReplicaHandle) -> Result<(), AskError> {
        handle.ask(Command::Resync)?;
        self.asked.count(trigger, 1);
        Ok(())
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // A look or a change of one job: nothing in them can panic half-way.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seen(&self) -> BTreeMap<ReplicaKey, Seen> {
        let seen = |(key, handle): (ReplicaKey, ReplicaHandle)| (key, sight(&handle));
        self.fleet.replicas().map(seen).collect()
    }
}

fn sight(handle: &ReplicaHandle) -> Seen {
    // Before the standing: what is missing after it is at worst said a look later.
    let received_at = handle.signs.received_at();
    let status = handle.status.borrow();
    Seen {
        trust: status.trust.device,
        reason: status.reason,
        cursor: status.cursor,
        performed: status.performed,
        received_at,
    }
}

fn target(verb: Verb, key: ReplicaKey, handle: &ReplicaHandle) -> Target {
    let at = match verb {
        Verb::Resync => Ok(key.to_string()),
        Verb::Flush => engine::place(handle),
    };
    Target { key, model: handle.replica.model.clone(), at }
}

/// The task's own.
struct Shift {
    foreman: Foreman,
    policy: Policy,
    /// What the policy wants, if it wants anything.
    verb: Option<Verb>,
    policy_job: Option<u64>,
    /// To engines. Each job asks as many at a time as it may.
    requests: FuturesUnordered<Answer>,
}

impl Shift {
    async fn run(mut self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some((id, ask, answer)) = self.requests.next(), if !self.requests.is_empty() => {
                    self.answered(id, &ask, answer);
                }
                () = tokio::time::sleep(LOOK_EVERY) => (),
            }
            self.look();
        }
    }

    fn look(&mut self) {
        if self.verb.is_none() && !self.foreman.book().is_running() {
            return;
        }
        let (now, seen) = (self.foreman.clock.now(), self.foreman.seen());
        if let Some(verb) = self.verb {
            self.follow_policy(verb, &seen);
        }
        let asks = {
            let mut book = self.foreman.book();
            let was = running(&book);
            let asks = book.look(now, &seen);
            was.into_iter().for_each(|id| tell(id, &book));
            asks
        };
        for (id, ask) in asks {
            self.ask(id, ask);
        }
    }

    /// Orders what the policy wants, one job at a time and one engine at a time: a fault that all
    /// replicas have would take away all trust, or all caches, at once.
    fn follow_policy(&mut self, verb: Verb, seen: &BTreeMap<ReplicaKey, Seen>) {
        let now = self.foreman.clock.now();
        let due = self.policy.look(now, seen);
        let outcome = self.policy_job.and_then(|id| self.foreman.job(id)).map(|it| it.outcome());
        if due.is_empty() || outcome == Some(Outcome::Running) {
            return;
        }
        let handles = due.into_iter().filter_map(|key| {
            let handle = self.foreman.fleet.get(&key)?;
            Some(target(verb, key, &handle))
        });
        // A replica of another bridge has no engine that is asked from here.
        let targets: Vec<Target> = handles.filter(|target| target.at.is_ok()).collect();
        let asked: Vec<ReplicaKey> = targets.iter().map(|target| target.key.clone()).collect();
        let order = Order {
            verb,
            trigger: Trigger::Policy,
            wait: Trust::Exact,
            timeout_ms: POLICY_TIMEOUT_MS,
            parallel_max: 1,
        };
        if asked.is_empty() {
            return;
        }
        // Where too many run already the next look tries again.
        if let Ok(id) = self.foreman.enter(Job::new(order, targets)) {
            self.policy_job = Some(id);
            self.policy.asked(now, &asked);
        }
    }

    fn ask(&mut self, id: u64, ask: Ask) {
        let Some(trigger) = self.foreman.job(id).map(|job| job.order().trigger) else { return };
        match ask.verb {
            Verb::Resync => {
                for key in &ask.replicas {
                    let handle = self.foreman.fleet.get(key);
                    let asked = handle.map(|handle| self.foreman.resync(trigger, &handle));
                    let failure = match asked {
                        Some(Ok(())) => continue,
                        Some(Err(AskError::Busy)) => Failure::Busy,
                        Some(Err(AskError::Stopped)) | None => Failure::ReplicaGone,
                    };
                    self.failed(id, std::slice::from_ref(key), failure);
                }
            }
            Verb::Flush => {
                self.foreman.asked.count(trigger, ask.replicas.len());
                self.requests.push(engine::flush(id, ask));
            }
        }
    }

    fn answered(&mut self, id: u64, ask: &Ask, answer: Result<(), Failure>) {
        if let Err(failure) = answer {
            self.failed(id, &ask.replicas, failure);
        }
    }

    fn failed(&self, id: u64, replicas: &[ReplicaKey], failure: Failure) {
        let mut book = self.foreman.book();
        if let Some(job) = book.job_mut(id) {
            job.failed(replicas, failure);
        }
        tell(id, &book);
    }
}

fn running(book: &Book) -> Vec<u64> {
    let running = book.jobs().filter(|(_, job)| job.outcome() == Outcome::Running);
    running.map(|(id, _)| id).collect()
}

/// One line for a job that ended, and one for each replica that did not get there.
fn tell(id: u64, book: &Book) {
    let Some(job) = book.job(id).filter(|job| job.outcome() != Outcome::Running) else { return };
    for member in job.members() {
        if let State::Failed(failure) = member.state {
            let reason = failure.as_str();
            warn!(id, replica = %member.key, reason, detail = %failure, "job did not reach it");
        }
    }
    info!(id, outcome = job.outcome().as_str(), "job ended");
}
