//! What drivers tell sinks: the changes of each step and what is believed after it. A queue for
//! each sink; drivers never wait for one.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak},
};

use kvbridge_schemas::{Replica, ReplicaKey, TierTrust};
use tokio::sync::Notify;

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

/// What a sink hears.
#[derive(Clone)]
pub enum Heard {
    /// What a driver told.
    Fed(Fed),
    /// Here so many were missed: what came before may be old, what follows is not.
    Missed(u64),
}

/// All sinks, as drivers see them.
#[derive(Default)]
pub struct Feeds {
    queues: RwLock<Vec<Weak<Queue>>>,
}

struct Queue {
    items: Mutex<Items>,
    messages_max: usize,
    wake: Notify,
}

/// Each marker but the last is followed by a message: there is at most one more than messages.
#[derive(Default)]
struct Items {
    heard: VecDeque<Heard>,
    messages: usize,
}

/// One sink's end.
pub struct Feed(Arc<Queue>);

impl Feeds {
    /// A new queue. What is told from now on waits in it.
    pub fn subscribe(&self, messages_max: usize) -> Feed {
        let queue = Arc::new(Queue {
            items: Mutex::default(),
            messages_max: messages_max.max(1),
            wake: Notify::new(),
        });
        let mut queues = self.queues.write().unwrap_or_else(PoisonError::into_inner);
        queues.retain(|queue| queue.strong_count() > 0);
        queues.push(Arc::downgrade(&queue));
        Feed(queue)
    }

    /// Whether anybody reads.
    pub(super) fn is_wanted(&self) -> bool {
        let queues = self.queues.read().unwrap_or_else(PoisonError::into_inner);
        queues.iter().any(|queue| queue.strong_count() > 0)
    }

    /// Tells all sinks. One whose queue is full misses it, and is told that it did.
    pub(super) fn tell(&self, fed: &Fed) {
        let queues = self.queues.read().unwrap_or_else(PoisonError::into_inner);
        queues.iter().filter_map(Weak::upgrade).for_each(|queue| queue.push(fed));
    }
}

impl Queue {
    /// Puts a message, or a marker where it would have been.
    fn push(&self, fed: &Fed) {
        let mut items = self.items();
        if items.messages < self.messages_max {
            items.messages += 1;
            items.heard.push_back(Heard::Fed(fed.clone()));
        } else if let Some(Heard::Missed(count)) = items.heard.back_mut() {
            *count += 1;
        } else {
            items.heard.push_back(Heard::Missed(1));
        }
        drop(items);
        self.wake.notify_one();
    }

    fn items(&self) -> MutexGuard<'_, Items> {
        // Single pushes and pops: nothing in them can panic half-way.
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Items {
    fn pop(&mut self) -> Option<Heard> {
        let heard = self.heard.pop_front()?;
        if matches!(heard, Heard::Fed(_)) {
            self.messages -= 1;
        }
        Some(heard)
    }
}

impl Feed {
    /// What comes next, in order. Cancel-safe.
    pub async fn next(&mut self) -> Heard {
        loop {
            if let Some(heard) = self.0.items().pop() {
                return heard;
            }
            self.0.wake.notified().await;
        }
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.0.items().messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(number: u32) -> Fed {
        let replica = Replica { model: "m".into(), instance: "h:1".into(), rank: number };
        Fed { key: replica.key(), replica: Arc::new(replica), news: News::Gone }
    }

    /// What is heard, as text, until nothing waits.
    async fn heard(feed: &mut Feed) -> String {
        let mut out = Vec::new();
        while !feed.0.items().heard.is_empty() {
            out.push(match feed.next().await {
                Heard::Fed(fed) => fed.replica.rank.to_string(),
                Heard::Missed(count) => format!("missed {count}"),
            });
        }
        out.join("; ")
    }

    #[tokio::test]
    async fn what_found_no_place_is_marked_where_it_would_have_been() {
        let feeds = Feeds::default();
        assert!(!feeds.is_wanted());
        let (mut slow, mut other) = (feeds.subscribe(2), feeds.subscribe(8));
        (0..5).for_each(|number| feeds.tell(&fed(number)));
        assert_eq!(slow.waiting(), 2);
        assert!(matches!(slow.next().await, Heard::Fed(fed) if fed.replica.rank == 0));
        // A place is free again: what was told before is not what is told now.
        (5..7).for_each(|number| feeds.tell(&fed(number)));
        assert_eq!(heard(&mut slow).await, "1; missed 3; 5; missed 1");
        assert_eq!(heard(&mut other).await, "0; 1; 2; 3; 4; 5; 6");
        drop((slow, other));
        assert!(!feeds.is_wanted());
    }

    #[tokio::test]
    async fn a_reader_that_waits_is_woken() {
        let feeds = Arc::new(Feeds::default());
        let mut feed = feeds.subscribe(1);
        let waits = tokio::spawn(async move { matches!(feed.next().await, Heard::Fed(_)) });
        tokio::task::yield_now().await;
        feeds.tell(&fed(0));
        assert!(waits.await.unwrap());
    }
}
