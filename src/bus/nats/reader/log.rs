//! How far a stream was read, and what its replicas are told of breaks.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use kvbridge_schemas::BusSeq;

use super::inbox::{Arrived, Inbox};
use crate::{
    config::limits::BUS_UNREAD_SUBJECTS,
    recovery::Tick,
    shared_log::{Joined, LogEnds},
};

/// One stream, as far as it was read.
pub(in crate::bus::nats) struct Log {
    pub(super) name: String,
    /// The last message handed over: every replica's inbox has what the stream holds up to here.
    through: AtomicU64,
    /// When the stream was made, unix ns: bus seqs of another one mean nothing.
    created: AtomicU64,
    /// Times that another stream was in the place of the one that was read, or an earlier state of
    /// it.
    resets: AtomicU64,
    /// Times that messages went before they were read.
    passed: AtomicU64,
    replicas: Mutex<Replicas>,
}

/// What happened to a stream, counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Breaks {
    pub(super) resets: u64,
    pub(super) passed: u64,
}

/// The replicas of a stream that are read, by subject, and what their inboxes are told.
#[derive(Default)]
struct Replicas {
    attached: bool,
    inboxes: BTreeMap<String, Arc<Inbox>>,
    /// Those of which the stream held nothing when it was last looked at, and since when.
    missing: BTreeMap<String, Tick>,
    /// Subjects with messages that nobody here reads.
    unread: BTreeSet<String>,
}

/// Where the live path will begin. Only a consumer that stands makes it true: an attempt that fails
/// must not hide from the next one what was missed before both.
#[derive(Clone, Copy, Debug)]
pub(super) struct Join {
    pub(super) joined: Joined,
    created: u64,
}

impl Log {
    pub(super) fn new(name: &str) -> Log {
        Log {
            name: name.to_owned(),
            through: AtomicU64::new(0),
            created: AtomicU64::new(0),
            resets: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            replicas: Mutex::default(),
        }
    }

    pub(super) fn breaks(&self) -> Breaks {
        Breaks {
            resets: self.resets.load(Ordering::Acquire),
            passed: self.passed.load(Ordering::Acquire),
        }
    }

    pub(super) fn through(&self) -> BusSeq {
        BusSeq(self.through.load(Ordering::Acquire))
    }

    pub(super) fn set_through(&self, at: BusSeq) {
        self.through.store(at.0, Ordering::Release);
    }

    pub(super) fn created(&self) -> u64 {
        self.created.load(Ordering::Acquire)
    }

    /// For a log that is only looked back at: no consumer ever stands on it.
    pub(super) fn set_created(&self, created: u64) {
        self.created.store(created, Ordering::Release);
    }

    fn replicas(&self) -> MutexGuard<'_, Replicas> {
        // Single inserts and removals: nothing in them can panic half-way.
        self.replicas.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the live path begins in a stream that says this of itself, and whether that joins what
    /// was read before.
    pub(super) fn join_at(&self, ends: LogEnds) -> Join {
        Join { joined: Joined::after(self.created(), self.through(), ends), created: ends.created }
    }

    /// The consumer stands.
    pub(super) fn attach(&self, join: Join) {
        let Join { joined: Joined { from, continuous, same_log }, created } = join;
        // Of a stream that is read for the first time nothing can be missed.
        if self.created() > 0 && !(same_log && continuous) {
            let broke = if same_log { &self.passed } else { &self.resets };
            broke.fetch_add(1, Ordering::AcqRel);
        }
        self.created.store(created, Ordering::Release);
        self.set_through(BusSeq(from.0.saturating_sub(1)));
        let mut replicas = self.replicas();
        replicas.attached = true;
        for inbox in replicas.inboxes.values() {
            inbox.control(Arrived::Attached { continuous, same_log });
        }
    }

    pub(super) fn detach(&self) {
        let mut replicas = self.replicas();
        replicas.attached = false;
        for inbox in replicas.inboxes.values() {
            inbox.control(Arrived::Detached);
        }
    }

    /// A message is about to be handed over. The consumer has no filter: places that it leaps over
    /// were purged, or aged out while this process stood still, and may have been anybody's.
    pub(super) fn comes(&self, at: BusSeq) {
        if at.0 > self.through().0.saturating_add(1) {
            self.passed.fetch_add(1, Ordering::AcqRel);
            for inbox in self.replicas().inboxes.values() {
                inbox.lost();
            }
        }
    }

    pub(super) fn inbox(&self, subject: &str) -> Option<Arc<Inbox>> {
        self.replicas().inboxes.get(subject).cloned()
    }

    /// Whether this subject, which nobody here reads, is seen for the first time. They are as many
    /// as whoever may publish likes; when there is no room, all are forgotten and seen once more.
    pub(super) fn is_first_of(&self, subject: &str) -> bool {
        let unread = &mut self.replicas().unread;
        if unread.contains(subject) {
            return false;
        }
        if unread.len() >= BUS_UNREAD_SUBJECTS {
            unread.clear();
        }
        unread.insert(subject.to_owned())
    }

    /// The replicas that are read and of which the stream holds nothing, with the time since when.
    pub(super) fn missing(&self, present: &BTreeSet<String>, now: Tick) -> Vec<(String, Tick)> {
        let mut replicas = self.replicas();
        let Replicas { inboxes, missing, .. } = &mut *replicas;
        missing.retain(|subject, _| !present.contains(subject) && inboxes.contains_key(subject));
        for subject in inboxes.keys().filter(|subject| !present.contains(*subject)) {
            missing.entry(subject.clone()).or_insert(now);
        }
        missing.iter().map(|(subject, since)| (subject.clone(), *since)).collect()
    }

    /// A replica begins to be read.
    pub(super) fn join(&self, subject: &str) -> Arc<Inbox> {
        let inbox = Arc::new(Inbox::default());
        let mut replicas = self.replicas();
        if replicas.attached {
            inbox.control(Arrived::Attached { continuous: false, same_log: true });
        }
        replicas.inboxes.insert(subject.to_owned(), Arc::clone(&inbox));
        inbox
    }

    /// A replica is read no more; another reader of the same subject may have taken its place.
    pub(super) fn leave(&self, subject: &str, inbox: &Arc<Inbox>) {
        let mut replicas = self.replicas();
        if replicas.inboxes.get(subject).is_some_and(|known| Arc::ptr_eq(known, inbox)) {
            replicas.inboxes.remove(subject);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(created: u64, first: u64, last: u64) -> LogEnds {
        LogEnds { created, first: BusSeq(first), last: BusSeq(last) }
    }

    /// A stream made at 7 and read up to 10.
    fn read_before() -> Log {
        let log = Log::new("s");
        log.attach(log.join_at(ends(7, 1, 10)));
        log.detach();
        log
    }

    async fn attached(log: &Log, join: Join) -> Arrived {
        let inbox = log.join("a");
        log.attach(join);
        inbox.pop().await
    }

    #[tokio::test]
    async fn an_attempt_that_fails_hides_no_loss_from_the_next_one() {
        let broken = Arrived::Attached { continuous: false, same_log: true };
        let log = read_before();
        let failed = log.join_at(ends(7, 20, 30));
        assert_eq!(failed.joined.from, BusSeq(31), "11 to 19 aged out");
        assert_eq!(attached(&log, log.join_at(ends(7, 20, 32))).await, broken);
        assert_eq!(log.breaks(), Breaks { resets: 0, passed: 1 });

        let other = Arrived::Attached { continuous: false, same_log: false };
        let log = read_before();
        log.join_at(ends(8, 1, 30));
        assert_eq!(attached(&log, log.join_at(ends(8, 1, 30))).await, other);
        assert_eq!(log.created(), 8);
        assert_eq!(log.breaks(), Breaks { resets: 1, passed: 0 });
    }

    #[tokio::test]
    async fn what_is_whole_goes_on_where_it_was() {
        let log = read_before();
        let join = log.join_at(ends(7, 11, 30));
        assert_eq!(join.joined.from, BusSeq(11));
        let whole = Arrived::Attached { continuous: true, same_log: true };
        assert_eq!(attached(&log, join).await, whole);
        assert_eq!(log.breaks(), Breaks { resets: 0, passed: 0 });
    }

    #[tokio::test]
    async fn places_that_are_leapt_over_are_a_loss_to_every_replica() {
        let log = read_before();
        let inboxes = ["a", "b"].map(|subject| log.join(subject));
        for at in [11, 12].map(BusSeq) {
            log.comes(at);
            log.set_through(at);
        }
        assert!(inboxes.iter().all(|inbox| inbox.is_empty()), "nothing was leapt over");
        log.comes(BusSeq(14));
        assert_eq!(log.breaks(), Breaks { resets: 0, passed: 1 });
        for inbox in inboxes {
            assert_eq!(inbox.pop().await, Arrived::Overflowed);
            assert!(inbox.is_empty());
        }
    }
    #[test]
    fn subjects_that_nobody_reads_fill_nothing_for_ever() {
        let log = Log::new("s");
        assert!(log.is_first_of("a"));
        assert!(!log.is_first_of("a"));
        for other in 0..BUS_UNREAD_SUBJECTS {
            assert!(log.is_first_of(&other.to_string()));
        }
        assert!(log.replicas().unread.len() <= BUS_UNREAD_SUBJECTS);
        assert!(log.is_first_of("a"), "there was no room for all");
    }
}
