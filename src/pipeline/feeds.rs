//! What drivers tell sinks: the changes of each step and what is believed after it. A queue for
//! each sink; drivers never wait for one.

use std::sync::{
    Arc, PoisonError, RwLock,
    atomic::{AtomicU64, Ordering},
};

use kvbridge_schemas::{Replica, ReplicaKey, TierTrust};
use tokio::sync::mpsc;

use crate::sink_line::{Change, Told};

/// What a sink is told of one replica.
#[derive(Clone)]
pub struct Fed {
    /// Which.
    pub key: ReplicaKey,
    /// Its name in parts.
    pub replica: Arc<Replica>,
    /// What happened to it.
    pub news: News,
}

/// What happened to a replica.
#[derive(Clone)]
pub enum News {
    /// A step of its driver.
    Step {
        /// The changes are all of the view.
        whole: bool,
        /// What changed, in order.
        changes: Arc<[Change]>,
        /// What is believed of the result.
        trust: TierTrust,
    },
    /// It is read no more.
    Gone,
}

impl News {
    /// The step as lines take it; `None` = the replica is gone.
    pub fn told(&self) -> Option<Told<'_>> {
        match self {
            News::Step { whole, changes, trust } => {
                Some(Told { whole: *whole, changes, trust: *trust })
            }
            News::Gone => None,
        }
    }
}

/// All sinks, as drivers see them.
#[derive(Default)]
pub struct Feeds {
    queues: RwLock<Vec<Queue>>,
}

struct Queue {
    sender: mpsc::Sender<Fed>,
    missed: Arc<AtomicU64>,
}

/// One sink's end.
pub struct Feed {
    receiver: mpsc::Receiver<Fed>,
    missed: Arc<AtomicU64>,
}

impl Feeds {
    /// A new queue. What is told from now on waits in it.
    pub fn subscribe(&self, messages_max: usize) -> Feed {
        let (sender, receiver) = mpsc::channel(messages_max.max(1));
        let missed = Arc::<AtomicU64>::default();
        let queue = Queue { sender, missed: Arc::clone(&missed) };
        self.queues.write().unwrap_or_else(PoisonError::into_inner).push(queue);
        Feed { receiver, missed }
    }

    /// Whether anybody reads.
    pub(super) fn is_wanted(&self) -> bool {
        let queues = self.queues.read().unwrap_or_else(PoisonError::into_inner);
        queues.iter().any(|queue| !queue.sender.is_closed())
    }

    /// Tells all sinks. One whose queue is full misses it, and is told that it did.
    pub(super) fn tell(&self, fed: &Fed) {
        for queue in &*self.queues.read().unwrap_or_else(PoisonError::into_inner) {
            if let Err(mpsc::error::TrySendError::Full(_)) = queue.sender.try_send(fed.clone()) {
                queue.missed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl Feed {
    /// The next message. Cancel-safe.
    pub async fn next(&mut self) -> Option<Fed> {
        self.receiver.recv().await
    }

    /// How many messages were missed since the last look. A queue that was full has messages, so
    /// whoever looks after each one looks in time.
    pub fn take_missed(&self) -> u64 {
        self.missed.swap(0, Ordering::Relaxed)
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.receiver.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_queue_says_how_many_were_missed_and_holds_up_nobody() {
        let feeds = Feeds::default();
        assert!(!feeds.is_wanted());
        let (mut slow, mut other) = (feeds.subscribe(2), feeds.subscribe(8));
        let replica = Replica { model: "m".into(), instance: "h:1".into(), rank: 0 };
        let fed = Fed { key: replica.key(), replica: Arc::new(replica), news: News::Gone };
        (0..5).for_each(|_| feeds.tell(&fed));
        assert_eq!((slow.waiting(), slow.take_missed(), slow.take_missed()), (2, 3, 0));
        assert_eq!((other.waiting(), other.take_missed()), (5, 0));
        assert!(slow.next().await.is_some() && other.next().await.is_some());
        drop((slow, other));
        assert!(!feeds.is_wanted());
    }
}
