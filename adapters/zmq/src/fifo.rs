//! A bounded queue between one socket-reading task and one consumer.
//!
//! Bounded by count and bytes, with a separate way in for what must never be refused. What is done
//! when it is full is the caller's policy: the live queue marks the place, the replay spool gives
//! up.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

/// What a queue may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// So many messages.
    pub count_max: usize,
    /// So many bytes. One message is taken even if it is larger, when no other waits.
    pub bytes_max: usize,
}

/// Items in order, with what they count for.
#[derive(Debug)]
pub(crate) struct Items<T> {
    queue: VecDeque<(T, Option<usize>)>,
    count: usize,
    bytes: usize,
    closed: bool,
}

impl<T> Items<T> {
    /// The newest item, to be changed in place.
    pub(crate) fn newest_mut(&mut self) -> Option<&mut T> {
        self.queue.back_mut().map(|(item, _)| item)
    }

    /// The `n`th newest item, 0 = newest.
    pub(crate) fn newest(&self, n: usize) -> Option<&T> {
        let index = self.queue.len().checked_sub(n + 1)?;
        self.queue.get(index).map(|(item, _)| item)
    }

    /// Takes the newest item back.
    pub(crate) fn pop_newest(&mut self) -> Option<T> {
        let (item, weight) = self.queue.pop_back()?;
        self.forget(weight);
        Some(item)
    }

    /// Puts an item that the limits do not count.
    pub(crate) fn push_reserved(&mut self, item: T) {
        self.queue.push_back((item, None));
    }

    /// Puts an item of that many bytes, or gives it back when there is no room.
    pub(crate) fn try_push(&mut self, item: T, bytes: usize, limits: QueueLimits) -> Option<T> {
        let room =
            self.count < limits.count_max && self.bytes.saturating_add(bytes) <= limits.bytes_max;
        // An oversized item must pass once, or it would be dropped for ever.
        if !room && self.count > 0 {
            return Some(item);
        }
        self.count += 1;
        self.bytes += bytes;
        self.queue.push_back((item, Some(bytes)));
        None
    }

    fn pop_oldest(&mut self) -> Option<T> {
        let (item, weight) = self.queue.pop_front()?;
        self.forget(weight);
        Some(item)
    }

    fn forget(&mut self, weight: Option<usize>) {
        if let Some(bytes) = weight {
            self.count -= 1;
            self.bytes -= bytes;
        }
    }
}

/// The queue. One producer, one consumer.
#[derive(Debug)]
pub(crate) struct Fifo<T> {
    items: Mutex<Items<T>>,
    changed: Notify,
    taken: Notify,
}

impl<T> Fifo<T> {
    pub(crate) fn new() -> Fifo<T> {
        let items = Items { queue: VecDeque::new(), count: 0, bytes: 0, closed: false };
        Fifo { items: Mutex::new(items), changed: Notify::new(), taken: Notify::new() }
    }

    /// Changes the queue as one step and wakes the consumer.
    pub(crate) fn edit<R>(&self, change: impl FnOnce(&mut Items<T>) -> R) -> R {
        let result = change(&mut self.lock());
        self.changed.notify_one();
        result
    }

    /// No more items will come. What is inside can still be taken.
    pub(crate) fn close(&self) {
        self.edit(|items| items.closed = true);
    }

    /// Whether the producer has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// The oldest item, or `None` after the last one of a closed queue. Cancel-safe: an item is
    /// taken in the same poll that returns it.
    pub(crate) async fn pop(&self) -> Option<T> {
        loop {
            {
                let mut items = self.lock();
                if let Some(item) = items.pop_oldest() {
                    self.taken.notify_one();
                    return Some(item);
                }
                if items.closed {
                    return None;
                }
            }
            // `notify_one` leaves a permit, so a change between the look and this wait is not lost.
            self.changed.notified().await;
        }
    }

    /// Waits until everything was taken. Cancel-safe.
    pub(crate) async fn emptied(&self) {
        while !self.lock().queue.is_empty() {
            self.taken.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Items<T>> {
        // A panic of the other side leaves whole items; they are still good.
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes the queue when the producing task ends, in whatever way.
pub(crate) struct CloseOnDrop<T>(pub(crate) std::sync::Arc<Fifo<T>>);

impl<T> Drop for CloseOnDrop<T> {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: QueueLimits = QueueLimits { count_max: 2, bytes_max: 10 };

    #[tokio::test]
    async fn full_by_count_and_by_bytes() {
        let fifo = Fifo::new();
        assert_eq!(fifo.edit(|items| items.try_push('a', 4, LIMITS)), None);
        assert_eq!(fifo.edit(|items| items.try_push('b', 7, LIMITS)), Some('b'));
        assert_eq!(fifo.edit(|items| items.try_push('b', 6, LIMITS)), None);
        assert_eq!(fifo.edit(|items| items.try_push('c', 0, LIMITS)), Some('c'));
        fifo.edit(|items| items.push_reserved('!'));
        fifo.close();
        let mut out = String::new();
        while let Some(item) = fifo.pop().await {
            out.push(item);
        }
        assert_eq!(out, "ab!");
    }

    #[tokio::test]
    async fn oversized_item_passes_alone() {
        let fifo = Fifo::new();
        assert_eq!(fifo.edit(|items| items.try_push('a', 99, LIMITS)), None);
        assert_eq!(fifo.edit(|items| items.try_push('b', 0, LIMITS)), Some('b'));
        assert_eq!(fifo.pop().await, Some('a'));
        assert_eq!(fifo.edit(|items| items.try_push('b', 0, LIMITS)), None);
    }

    #[tokio::test]
    async fn emptied_waits_for_the_last_item() {
        let fifo = std::sync::Arc::new(Fifo::new());
        fifo.edit(|items| items.push_reserved(1));
        let waiting = tokio::time::timeout(std::time::Duration::from_millis(5), fifo.emptied());
        assert!(waiting.await.is_err());
        let (popped, ()) = tokio::join!(fifo.pop(), fifo.emptied());
        assert_eq!(popped, Some(1));
    }

    #[tokio::test]
    async fn cancelled_pop_loses_nothing() {
        let fifo = std::sync::Arc::new(Fifo::new());
        let waiting = tokio::time::timeout(std::time::Duration::from_millis(5), fifo.pop());
        assert!(waiting.await.is_err());
        fifo.edit(|items| items.push_reserved(1));
        assert_eq!(fifo.pop().await, Some(1));
        drop(CloseOnDrop(std::sync::Arc::clone(&fifo)));
        assert!(fifo.is_closed());
        assert_eq!(fifo.pop().await, None);
    }
}
