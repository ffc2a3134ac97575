//! What a publisher has not been told is stored, oldest first; after a failure all of it again.
//!
//! A log keeps the order of its writer only if nothing overtakes what failed. So an error of one
//! message makes every later acknowledgement doubtful: all are sent again, the first one alone, and
//! the window opens when that one is stored. The log knows the ids that it has.

use std::collections::VecDeque;

/// A bounded window with go-back-N.
#[derive(Debug)]
pub struct Window<M> {
    messages: VecDeque<M>,
    /// How many of the first are sent and not acknowledged.
    under_way: usize,
    /// How many may be.
    width: usize,
    width_max: usize,
}

impl<M> Window<M> {
    /// An empty one.
    pub fn new(width_max: usize) -> Window<M> {
        Window { messages: VecDeque::new(), under_way: 0, width: 1, width_max }
    }

    /// Whether it takes no more.
    pub fn is_full(&self) -> bool {
        self.messages.len() >= self.width_max
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Whether it has been seen to work since the last failure.
    pub fn is_open(&self) -> bool {
        self.width > 1
    }

    /// How many wait, sent or not.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// A message behind all others.
    pub fn push(&mut self, message: M) {
        self.messages.push_back(message);
    }

    /// All that wait, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &M> {
        self.messages.iter()
    }

    /// The next one to send, if one may be sent now.
    pub fn to_send(&mut self) -> Option<&mut M> {
        let may = self.under_way < self.width;
        self.messages.get_mut(self.under_way).filter(|_| may)
    }

    /// It is on its way.
    pub fn sent(&mut self) {
        self.under_way = self.messages.len().min(self.under_way + 1);
    }

    /// The oldest is stored.
    pub fn acked(&mut self) -> Option<M> {
        self.width = self.width_max;
        self.under_way = self.under_way.saturating_sub(1);
        self.messages.pop_front()
    }

    /// The oldest failed, or the connection did: nothing is under way any more.
    pub fn failed(&mut self) {
        self.under_way = 0;
        self.width = 1;
    }

    /// Of what waits, the log has some already: that is taken out. Nothing may be under way.
    pub fn take_stored(&mut self, is_stored: impl Fn(&M) -> bool) -> usize {
        let before = self.messages.len();
        self.messages.retain(|message| !is_stored(message));
        before - self.messages.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(window: &mut Window<u32>) -> Vec<u32> {
        let mut sent = Vec::new();
        while let Some(message) = window.to_send() {
            sent.push(*message);
            window.sent();
        }
        sent
    }

    #[test]
    fn opens_when_the_first_is_stored_and_goes_back_when_one_fails() {
        let mut window = Window::new(4);
        (0..4).for_each(|number| window.push(number));
        assert!(window.is_full());
        assert_eq!(sent(&mut window), [0]);
        assert_eq!((window.acked(), window.is_open()), (Some(0), true));
        assert_eq!(sent(&mut window), [1, 2, 3]);
        assert_eq!(window.acked(), Some(1));
        window.failed();
        assert_eq!(sent(&mut window), [2], "alone, and before what was sent behind it");
        assert_eq!(window.acked(), Some(2));
        window.push(4);
        assert_eq!(sent(&mut window), [3, 4]);
    }

    #[test]
    fn what_the_log_has_is_not_sent_again() {
        let mut window = Window::new(4);
        (0..4).for_each(|number| window.push(number));
        window.failed();
        assert_eq!(window.take_stored(|number| *number != 2), 3);
        assert_eq!((sent(&mut window), window.len()), (vec![2], 1));
    }
}
