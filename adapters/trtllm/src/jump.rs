//! Whose fault it is that ids jump: the engine's, whose buffer was full, or another reader's.
//!
//! Both look alike on the wire. A buffer that was full hands over all that it holds, though, so an
//! answer with less than that behind a jump was emptied by somebody else. How much a buffer holds
//! no answer tells; what came in one before, without a jump, did fit.

/// Events that every buffer has room for. Engines keep thousands; one that is started with fewer
/// than these loses events at every long prompt, and is told apart from a second reader no more.
const BUFFER_EVENTS_MIN: u64 = 64;

/// What the answers of one process have shown.
#[derive(Debug, Default)]
pub(crate) struct Jumps {
    /// Events of the answer under way.
    count: u64,
    /// How many of them came before the first jump that nothing of ours explains.
    before: Option<u64>,
    /// Most events of an answer without a jump.
    whole_max: u64,
}

impl Jumps {
    /// An event has been read.
    pub(crate) fn event(&mut self) {
        self.count = self.count.saturating_add(1);
    }

    /// The id of the event that is read next jumped, although no answer was lost here.
    pub(crate) fn jump(&mut self) {
        self.before.get_or_insert(self.count);
    }

    /// The answer is over: whether it shows another reader.
    pub(crate) fn end(&mut self) -> bool {
        let count = std::mem::take(&mut self.count);
        match self.before.take() {
            Some(before) => count - before < self.whole_max.max(BUFFER_EVENTS_MIN),
            None => {
                self.whole_max = self.whole_max.max(count);
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer that jumps behind so many events, if at all.
    fn answer(jumps: &mut Jumps, count: u64, jump_behind: Option<u64>) -> bool {
        for at in 0..count {
            if jump_behind.is_some_and(|behind| at >= behind && at % 2 == behind % 2) {
                // Further ones, of other ranks, are the same loss.
                jumps.jump();
            }
            jumps.event();
        }
        jumps.end()
    }

    #[test]
    fn a_buffer_that_was_not_full_has_lost_nothing_by_itself() {
        let bound = BUFFER_EVENTS_MIN;
        for (whole, count, jump_behind, is_taken) in [
            (0, 1, None, false),
            (0, 1, Some(0), true),
            (0, bound - 1, Some(0), true),
            (0, bound, Some(0), false),
            (500, bound, Some(0), true),
            (500, 499, Some(0), true),
            (500, 500, Some(0), false),
            (500, 600, Some(101), true),
            (500, 600, Some(100), false),
            (500, 600, None, false),
        ] {
            let mut jumps = Jumps::default();
            assert!(!answer(&mut jumps, whole, None));
            let case = (whole, count, jump_behind);
            assert_eq!(answer(&mut jumps, count, jump_behind), is_taken, "{case:?}");
            // Each answer is judged by itself.
            assert!(!answer(&mut jumps, 1, None), "{case:?}");
        }
    }
}
