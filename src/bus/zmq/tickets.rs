//! What peers have read: nobody is answered again before.
//!
//! An answer waits at its peer's socket without a limit in bytes, so a peer that asks and does not
//! read could fill our memory. Each answer carries a number that cannot be guessed, and the next
//! request must show it.

use std::{
    collections::{BTreeMap, hash_map::RandomState},
    hash::{BuildHasher, Hasher},
};

use bytes::Bytes;

use super::wire::Ticket;

/// The last answer to each peer.
pub(super) struct Tickets {
    last: BTreeMap<Bytes, (Ticket, u64)>,
    /// By when it was used, oldest first.
    used: BTreeMap<u64, Bytes>,
    count: u64,
    max: usize,
    numbers: RandomState,
}

impl Tickets {
    /// Nobody was answered yet.
    pub(super) fn new(max: usize) -> Tickets {
        Tickets {
            last: BTreeMap::new(),
            used: BTreeMap::new(),
            count: 0,
            max: max.max(1),
            numbers: RandomState::new(),
        }
    }

    /// The ticket of the next answer to a peer; `None` if it has not read the one before.
    pub(super) fn next(&mut self, peer: &Bytes, shown: Ticket) -> Option<Ticket> {
        if let Some((ticket, used)) = self.last.get(peer) {
            if *ticket != shown {
                return None;
            }
            self.used.remove(used);
        } else if self.last.len() >= self.max
            && let Some((_, silent)) = self.used.pop_first()
        {
            self.last.remove(&silent);
        }
        self.count += 1;
        let mut hasher = self.numbers.build_hasher();
        hasher.write_u64(self.count);
        // Zero is what a first request shows.
        let ticket = hasher.finish().max(1);
        // A slice of the receive buffer would keep that buffer alive.
        let peer = Bytes::copy_from_slice(peer);
        self.last.insert(peer.clone(), (ticket, self.count));
        self.used.insert(self.count, peer);
        Some(ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(name: &str) -> Bytes {
        Bytes::copy_from_slice(name.as_bytes())
    }

    #[test]
    fn an_answer_must_be_read_before_the_next() {
        let mut tickets = Tickets::new(8);
        let first = tickets.next(&peer("a"), 0).unwrap();
        assert_eq!(tickets.next(&peer("a"), 0), None);
        assert_eq!(tickets.next(&peer("a"), first ^ 1), None);
        let second = tickets.next(&peer("a"), first).unwrap();
        assert_eq!(tickets.next(&peer("a"), first), None);
        assert!(tickets.next(&peer("b"), 0).is_some());
        assert!(tickets.next(&peer("a"), second).is_some());
    }

    #[test]
    fn the_one_that_was_silent_longest_is_forgotten() {
        let mut tickets = Tickets::new(2);
        let a = tickets.next(&peer("a"), 0).unwrap();
        let b = tickets.next(&peer("b"), 0).unwrap();
        let a = tickets.next(&peer("a"), a).unwrap();
        assert!(tickets.next(&peer("c"), 0).is_some());
        assert_eq!(tickets.next(&peer("a"), 0), None);
        assert!(tickets.next(&peer("a"), a).is_some());
        // Forgotten: whatever it shows, it begins anew.
        assert!(tickets.next(&peer("b"), b).is_some());
        assert_eq!((tickets.last.len(), tickets.used.len()), (2, 2));
    }
}
