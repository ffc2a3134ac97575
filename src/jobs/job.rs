//! One job: an order, its replicas, and how each of them stands.

use std::collections::{BTreeMap, BTreeSet};

use kvbridge_schemas::{Cursor, ReplicaKey, Trust};

use super::Performed;
use crate::recovery::Tick;

/// Time without what was asked for, from which on it is said what is missing; of a short timeout
/// half. Shorter: a pause of the engine shows. Longer: an operator stares at nothing.
pub const PENDING_AFTER_MS: u64 = 60_000;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Of kvbridge: to prove the view anew.
    Resync,
    /// Of the engine: to empty its cache.
    Flush,
}

impl Verb {
    /// The word shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Resync => "resync",
            Verb::Flush => "flush",
        }
    }
}

/// Who ordered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// Somebody who may.
    Operator,
    /// The configuration, see [`super::Policy`].
    Policy,
}

impl Trigger {
    /// The word shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Trigger::Operator => "operator",
            Trigger::Policy => "policy",
        }
    }
}

/// What is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// What to ask.
    pub verb: Verb,
    /// Who ordered it.
    pub trigger: Trigger,
    /// The trust that a replica must come to.
    pub wait: Trust,
    /// How long each may take, from when it is asked.
    pub timeout_ms: u64,
    /// Engines at a time.
    pub parallel_max: usize,
}

/// A replica that an order is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Which.
    pub key: ReplicaKey,
    /// Its model, for whoever may see only some.
    pub model: String,
    /// Where it is asked; replicas of one place are asked together. Or why it cannot be.
    pub at: Result<String, Failure>,
}

/// What was seen of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Of the device.
    pub trust: Trust,
    /// Why it is no better.
    pub reason: &'static str,
    /// Where the view stands.
    pub cursor: Cursor,
    /// What was performed.
    pub performed: Performed,
    /// When the last live batch came.
    pub received_at: Tick,
}

/// What an asked replica waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    /// No batch came since. A clear leaves some engines with the next step only.
    NoTraffic,
    /// Batches came, and no clear in them: the engine keeps blocks that requests use.
    NotCleared,
}

impl Pending {
    /// The word shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Pending::NoTraffic => "no_traffic",
            Pending::NotCleared => "not_cleared",
        }
    }
}

/// Why a replica did not get there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It took longer than the order allows.
    #[error("{}", timed_out(*.0))]
    Timeout(Option<Pending>),
    /// The job was cancelled. What was asked cannot be taken back.
    #[error("the job was cancelled; what was asked already is not taken back")]
    Cancelled,
    /// The replica is read no more.
    #[error("the replica is read no more")]
    ReplicaGone,
    /// Too many requests wait for it.
    #[error("too many requests wait for this replica")]
    Busy,
    /// Engines of its kind have no way to be asked.
    #[error("engines of this kind cannot be asked to empty their cache")]
    FlushUnsupported,
    /// Nobody said where its engine is asked.
    #[error("where its engine is asked is not known: set sources.flush, or sources.url")]
    NoFlushUrl,
    /// The engine answered something else.
    #[error("the engine answered {0}")]
    FlushRefused(u16),
    /// The engine did not answer.
    #[error("the engine did not answer")]
    FlushUnanswered,
}

fn timed_out(pending: Option<Pending>) -> &'static str {
    match pending {
        None => "it did not come to the trust that is waited for in time",
        Some(Pending::NoTraffic) => {
            "no batch came since it was asked: some engines say it with their next step only"
        }
        Some(Pending::NotCleared) => {
            "batches came and no clear: the engine may be busy with requests"
        }
    }
}

impl Failure {
    /// The word shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Failure::Timeout(_) => "timeout",
            Failure::Cancelled => "cancelled",
            Failure::ReplicaGone => "replica_gone",
            Failure::Busy => "busy",
            Failure::FlushUnsupported => "flush_unsupported",
            Failure::NoFlushUrl => "no_flush_url",
            Failure::FlushRefused(_) => "flush_refused",
            Failure::FlushUnanswered => "flush_unanswered",
        }
    }
}

/// How a replica of a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its turn has not come.
    Waiting,
    /// It was asked.
    Asked {
        /// When.
        at: Tick,
        /// How it stood then.
        cursor: Cursor,
        /// See [`Performed::resyncs`].
        resyncs: u64,
        /// What is missing, once that is worth saying. Others take its turn meanwhile.
        pending: Option<Pending>,
    },
    /// It came to the trust that was waited for.
    Done,
    /// It did not.
    Failed(Failure),
}

impl State {
    /// The word shown.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::Asked { pending: None, .. } => "asked",
            State::Asked { pending: Some(_), .. } => "pending",
            State::Done => "done",
            State::Failed(_) => "failed",
        }
    }

    /// Why, in one word, where there is more to say.
    pub fn reason(self) -> Option<&'static str> {
        match self {
            State::Asked { pending, .. } => pending.map(Pending::as_str),
            State::Failed(failure) => Some(failure.as_str()),
            State::Waiting | State::Done => None,
        }
    }

    /// Whether nothing more follows.
    pub fn is_over(self) -> bool {
        matches!(self, State::Done | State::Failed(_))
    }
}

/// One replica of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Which.
    pub key: ReplicaKey,
    /// Its model.
    pub model: String,
    /// How it stands.
    pub state: State,
    /// Its trust and the reason, as last seen.
    pub standing: (Trust, &'static str),
    at: String,
}

/// Whom to ask now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// What.
    pub verb: Verb,
    /// Where.
    pub at: String,
    /// Whom it concerns.
    pub replicas: Vec<ReplicaKey>,
}

/// How a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Not over.
    Running,
    /// All replicas got there.
    Reached,
    /// Some did not.
    NotReached,
    /// Somebody ended it.
    Cancelled,
}

impl Outcome {
    /// The word shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Running => "running",
            Outcome::Reached => "reached",
            Outcome::NotReached => "not_reached",
            Outcome::Cancelled => "cancelled",
        }
    }
}

/// An order under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    order: Order,
    members: Vec<Member>,
    cancelled: bool,
}

impl Job {
    /// A job that has asked nobody yet.
    pub fn new(order: Order, targets: impl IntoIterator<Item = Target>) -> Job {
        let member = |target: Target| {
            let Target { key, model, at } = target;
            let (at, state) = match at {
                Ok(at) => (at, State::Waiting),
                Err(failure) => (String::new(), State::Failed(failure)),
            };
            Member { key, model, state, standing: (Trust::None, ""), at }
        };
        let members = targets.into_iter().map(member).collect();
        Job { order, members, cancelled: false }
    }

    /// What was ordered.
    pub fn order(&self) -> Order {
        self.order
    }

    /// Its replicas.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// How it stands.
    pub fn outcome(&self) -> Outcome {
        if self.members.iter().any(|member| !member.state.is_over()) {
            Outcome::Running
        } else if self.cancelled {
            Outcome::Cancelled
        } else if self.members.iter().all(|member| member.state == State::Done) {
            Outcome::Reached
        } else {
            Outcome::NotReached
        }
    }

    /// Takes one look at all replicas, and says whom to ask now.
    pub fn look(&mut self, now: Tick, seen: &BTreeMap<ReplicaKey, Seen>) -> Vec<Ask> {
        let order = self.order;
        for member in self.members.iter_mut().filter(|member| !member.state.is_over()) {
            match seen.get(&member.key) {
                Some(seen) => member.look(now, &order, seen),
                None => member.state = State::Failed(Failure::ReplicaGone),
            }
        }
        let is_open = |member: &&Member| matches!(member.state, State::Asked { pending: None, .. });
        let open = self.members.iter().filter(is_open).map(|member| member.at.clone());
        let mut open: BTreeSet<String> = open.collect();
        let mut asks: Vec<Ask> = Vec::new();
        for member in self.members.iter_mut().filter(|member| member.state == State::Waiting) {
            let Some(seen) = seen.get(&member.key) else { continue };
            let ask = asks.iter_mut().find(|ask| ask.at == member.at);
            if ask.is_none() && open.len() >= order.parallel_max {
                continue;
            }
            let (cursor, resyncs) = (seen.cursor, seen.performed.resyncs);
            member.state = State::Asked { at: now, cursor, resyncs, pending: None };
            if let Some(ask) = ask {
                ask.replicas.push(member.key.clone());
                continue;
            }
            open.insert(member.at.clone());
            let (at, replicas) = (member.at.clone(), vec![member.key.clone()]);
            asks.push(Ask { verb: order.verb, at, replicas });
        }
        asks
    }

    /// Nothing will come of what was asked of these.
    pub fn failed(&mut self, replicas: &[ReplicaKey], failure: Failure) {
        let asked = |member: &&mut Member| {
            replicas.contains(&member.key) && matches!(member.state, State::Asked { .. })
        };
        for member in self.members.iter_mut().filter(asked) {
            member.state = State::Failed(failure);
        }
    }

    /// Asks nobody any more, and waits for nobody.
    pub fn cancel(&mut self) {
        for member in self.members.iter_mut().filter(|member| !member.state.is_over()) {
            member.state = State::Failed(Failure::Cancelled);
            self.cancelled = true;
        }
    }
}

impl Member {
    fn look(&mut self, now: Tick, order: &Order, seen: &Seen) {
        self.standing = (seen.trust, seen.reason);
        let State::Asked { at, cursor, resyncs, pending } = &mut self.state else { return };
        let is_performed = match order.verb {
            // Another count than before: recovery began with it. One that starts anew with a source
            // that was opened anew has begun as well.
            Verb::Resync => seen.performed.resyncs != *resyncs,
            Verb::Flush => seen.performed.flushed.is_some_and(|flushed| flushed >= *cursor),
        };
        if is_performed && seen.trust >= order.wait {
            self.state = State::Done;
            return;
        }
        let missing = if seen.received_at <= *at {
            Some(Pending::NoTraffic)
        } else {
            (order.verb == Verb::Flush && !is_performed).then_some(Pending::NotCleared)
        };
        if now >= at.plus(order.timeout_ms) {
            self.state = State::Failed(Failure::Timeout(missing));
        } else if now >= at.plus(PENDING_AFTER_MS.min(order.timeout_ms / 2)) {
            *pending = missing;
        }
    }
}
