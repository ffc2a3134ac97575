//! What one reader of a stream is to be told: what it lacked when it came, then what happens.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use crate::sink_line::{Numbered, Past};

/// Why a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Its reader was too slow.
    Slow,
    /// The replica is read no more.
    Over,
}

/// What happens while a reader is connected, until it has read it.
#[derive(Debug)]
pub(super) struct Queue {
    items: Mutex<Items>,
    wake: Notify,
    batches_max: usize,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Items {
    batches: VecDeque<Numbered>,
    bytes: usize,
    ended: Option<Ended>,
}

/// The reader's end.
pub(super) struct Reading {
    past: Past,
    queue: Arc<Queue>,
}

impl Queue {
    pub(super) fn new(batches_max: usize, bytes_max: usize) -> Arc<Queue> {
        let (items, wake) = (Mutex::default(), Notify::new());
        Arc::new(Queue { items, wake, batches_max, bytes_max })
    }

    /// Adds a batch. One that has no room ends the stream: what waits is dropped, and the reader is
    /// told that it lost something. Whether it had room.
    pub(super) fn push(&self, batch: &Numbered) -> bool {
        let mut items = self.items();
        if items.ended.is_some() {
            return true;
        }
        let bytes = items.bytes + batch.payload.len();
        let fits = items.batches.len() < self.batches_max && bytes <= self.bytes_max;
        if fits {
            items.bytes = bytes;
            items.batches.push_back(batch.clone());
        } else {
            *items = Items { ended: Some(Ended::Slow), ..Items::default() };
        }
        drop(items);
        self.wake.notify_one();
        fits
    }

    /// Nothing follows.
    pub(super) fn end(&self) {
        self.items().ended.get_or_insert(Ended::Over);
        self.wake.notify_one();
    }

    /// How many batches wait.
    pub(super) fn waiting(&self) -> usize {
        self.items().batches.len()
    }

    fn take(&self) -> Option<Result<Numbered, Ended>> {
        let mut items = self.items();
        if let Some(batch) = items.batches.pop_front() {
            items.bytes -= batch.payload.len();
            return Some(Ok(batch));
        }
        items.ended.map(Err)
    }

    fn items(&self) -> MutexGuard<'_, Items> {
        // Single pushes and pops: nothing in them can panic half-way.
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reading {
    pub(super) fn new(past: Past, queue: Arc<Queue>) -> Reading {
        Reading { past, queue }
    }

    /// What comes next, in order. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Numbered, Ended> {
        // Of one that is cut off already the rest of the past is of no use.
        if self.queue.items().ended != Some(Ended::Slow)
            && let Some(batch) = self.past.next()
        {
            return Ok(batch);
        }
        loop {
            if let Some(next) = self.queue.take() {
                return next;
            }
            self.queue.wake.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(seq: u64) -> Numbered {
        Numbered { seq, payload: Arc::from([0; 10]) }
    }

    async fn read(reading: &mut Reading) -> Result<u64, Ended> {
        reading.next().await.map(|batch| batch.seq)
    }

    #[tokio::test]
    async fn what_was_before_comes_first_and_the_last_word_is_read() {
        let queue = Queue::new(8, 100);
        let past = Box::new([batch(1), batch(2)].into_iter());
        let mut reading = Reading::new(past, Arc::clone(&queue));
        assert!(queue.push(&batch(3)));
        queue.end();
        for wanted in [Ok(1), Ok(2), Ok(3), Err(Ended::Over), Err(Ended::Over)] {
            assert_eq!(read(&mut reading).await, wanted);
        }
    }

    #[tokio::test]
    async fn a_reader_without_room_is_told_and_holds_nothing() {
        for queue in [Queue::new(2, 1000), Queue::new(1000, 20)] {
            let mut reading = Reading::new(Box::new([batch(0)].into_iter()), Arc::clone(&queue));
            assert!(queue.push(&batch(1)) && queue.push(&batch(2)));
            assert!(!queue.push(&batch(3)));
            assert!(queue.push(&batch(4)), "it is counted once");
            assert_eq!(queue.waiting(), 0);
            assert_eq!(read(&mut reading).await, Err(Ended::Slow));
        }
    }

    #[tokio::test]
    async fn room_is_free_again_when_it_was_read() {
        let queue = Queue::new(2, 20);
        let mut reading = Reading::new(Box::new(std::iter::empty()), Arc::clone(&queue));
        for round in 0..5 {
            assert!(queue.push(&batch(round)) && queue.push(&batch(round)));
            assert_eq!(read(&mut reading).await, Ok(round));
            assert_eq!(read(&mut reading).await, Ok(round));
        }
    }
}
