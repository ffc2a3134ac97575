//! What a stream's reader has for one replica: messages bounded and dropped by the run, with a mark
//! in their place; what the connection does always has room.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use kvbridge_schemas::{BusSeq, Epoch, Seq};
use tokio::sync::Notify;

use crate::config::limits::{BUS_INBOX_BYTES, BUS_INBOX_MESSAGES};

/// One thing that happened to a replica's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Arrived {
    /// The live path begins here.
    Attached {
        /// Nothing was stored between what was read last and what comes now that will not come.
        continuous: bool,
        /// It is the stream of before, not another one under its name.
        same_log: bool,
    },
    /// The live path broke.
    Detached,
    /// Messages were dropped here.
    Overflowed,
    /// One message.
    Message(Stored),
}

/// A message as the stream has it, not decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    /// Its number in the stream.
    pub(super) at: BusSeq,
    /// What its headers say of its place; absent when they are not ours.
    pub(super) place: Option<(Epoch, Seq)>,
    pub(super) payload: Bytes,
}

#[derive(Debug, Default)]
struct Items {
    queue: VecDeque<Arrived>,
    messages: usize,
    bytes: usize,
    /// What a life that collapsed knew, for the next one to say.
    broken: bool,
    other_log: bool,
}

impl Items {
    /// Takes back what a Detached says as well; what else was in it is kept for the next life.
    fn collapse(&mut self) {
        while let Some(newest) = self.queue.back() {
            match newest {
                Arrived::Attached { continuous, same_log } => {
                    self.broken |= !continuous;
                    self.other_log |= !same_log;
                }
                Arrived::Overflowed => self.broken = true,
                Arrived::Detached => (),
                Arrived::Message(_) => return,
            }
            self.queue.pop_back();
        }
    }
}

/// The queue of one replica. One reader fills it, one source takes from it.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    items: Mutex<Items>,
    changed: Notify,
}

impl Inbox {
    /// Puts a message, or the mark of a dropped run. `false` = dropped.
    pub(super) fn message(&self, message: Stored) -> bool {
        let mut items = self.lock();
        let bytes = message.payload.len();
        let room = items.messages < BUS_INBOX_MESSAGES && items.bytes + bytes <= BUS_INBOX_BYTES;
        // One message is always taken: a bound below a single payload must not starve a replica.
        let taken = room || items.messages == 0;
        if taken {
            items.messages += 1;
            items.bytes += bytes;
            items.queue.push_back(Arrived::Message(message));
        } else if items.queue.back() != Some(&Arrived::Overflowed) {
            items.queue.push_back(Arrived::Overflowed);
        }
        drop(items);
        self.changed.notify_one();
        taken
    }

    /// Puts what must not be dropped. A life of the connection that brought nothing collapses into
    /// its end, so that a flapping server fills nothing.
    pub(super) fn control(&self, mut event: Arrived) {
        let mut items = self.lock();
        match &mut event {
            Arrived::Detached => items.collapse(),
            Arrived::Attached { continuous, same_log } => {
                *continuous &= !std::mem::take(&mut items.broken);
                *same_log &= !std::mem::take(&mut items.other_log);
            }
            Arrived::Overflowed | Arrived::Message(_) => (),
        }
        items.queue.push_back(event);
        drop(items);
        self.changed.notify_one();
    }

    /// Messages will not come any more that may have been of this replica.
    pub(super) fn lost(&self) {
        let mut items = self.lock();
        if items.queue.back() != Some(&Arrived::Overflowed) {
            items.queue.push_back(Arrived::Overflowed);
        }
        drop(items);
        self.changed.notify_one();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().queue.is_empty()
    }

    /// The oldest item. Cancel-safe.
    pub(super) async fn pop(&self) -> Arrived {
        loop {
            {
                let mut items = self.lock();
                if let Some(item) = items.queue.pop_front() {
                    if let Arrived::Message(message) = &item {
                        items.messages -= 1;
                        items.bytes -= message.payload.len();
                    }
                    return item;
                }
            }
            // `notify_one` leaves a permit, so a change between the look and this wait is seen.
            self.changed.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Items> {
        // A panic of the other side leaves whole items; they are still good.
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(at: u64, bytes: usize) -> Stored {
        Stored { at: BusSeq(at), place: None, payload: vec![0; bytes].into() }
    }

    fn taken(inbox: &Inbox) -> Vec<Arrived> {
        inbox.lock().queue.iter().cloned().collect()
    }

    const ATTACHED: Arrived = Arrived::Attached { continuous: true, same_log: true };

    #[tokio::test]
    async fn a_dropped_run_leaves_one_mark_in_its_place() {
        let inbox = Inbox::default();
        assert!(inbox.message(message(1, BUS_INBOX_BYTES + 1)), "one message is always taken");
        assert!(!inbox.message(message(2, 1)));
        assert!(!inbox.message(message(3, 1)));
        assert!(matches!(inbox.pop().await, Arrived::Message(_)));
        assert!(inbox.message(message(4, 1)));
        assert_eq!(taken(&inbox), [Arrived::Overflowed, Arrived::Message(message(4, 1))]);
        for at in 5..5 + u64::try_from(BUS_INBOX_MESSAGES).unwrap() {
            inbox.message(message(at, 1));
        }
        assert_eq!(taken(&inbox).last(), Some(&Arrived::Overflowed));
    }

    #[test]
    fn a_flapping_connection_fills_nothing_and_hides_nothing() {
        let inbox = Inbox::default();
        inbox.control(ATTACHED);
        inbox.message(message(1, 1));
        for _ in 0..100 {
            inbox.control(Arrived::Detached);
            inbox.control(ATTACHED);
        }
        let expected = [ATTACHED, Arrived::Message(message(1, 1)), Arrived::Detached, ATTACHED];
        assert_eq!(taken(&inbox), expected);
        inbox.control(Arrived::Detached);
        inbox.control(Arrived::Attached { continuous: false, same_log: false });
        inbox.control(Arrived::Detached);
        inbox.control(ATTACHED);
        let broken = Arrived::Attached { continuous: false, same_log: false };
        assert_eq!(taken(&inbox).last(), Some(&broken), "what the lost life knew is not lost");
    }
}
