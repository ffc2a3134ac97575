//! PURE. Which members started anew, from what they say of their starts.

/// Differences that are no new start. Some exporters add an uptime to a clock that is set while
/// they run; no engine is up again within a second.
const STEADY_MS: u64 = 1_000;

/// The starts of a replica's members.
#[derive(Clone, Debug)]
pub struct Members {
    known: Vec<Option<u64>>,
}

impl Members {
    /// So many members of whom nothing is known.
    pub fn new(count: usize) -> Members {
        Members { known: vec![None; count] }
    }

    /// Whether somebody started anew since the last [`Members::take`]. A member that says nothing
    /// counts as before.
    pub fn changed(&self, starts: &[Option<u64>]) -> bool {
        let mut pairs = self.known.iter().zip(starts);
        pairs.any(|pair| match pair {
            (Some(known), Some(start)) => known.abs_diff(*start) >= STEADY_MS,
            (None, _) | (_, None) => false,
        })
    }

    /// Remembers the starts. A small difference is not followed, or many of them would hide a
    /// large one.
    pub fn take(&mut self, starts: &[Option<u64>]) {
        for (known, start) in self.known.iter_mut().zip(starts) {
            match (&known, start) {
                (Some(before), Some(start)) if before.abs_diff(*start) < STEADY_MS => (),
                (_, Some(start)) => *known = Some(*start),
                (_, None) => (),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_look_silence_and_a_set_clock_are_no_change() {
        let mut members = Members::new(2);
        for starts in [
            [Some(100_000), None],
            [None, None],
            [Some(100_999), Some(50_000)],
            [Some(99_001), Some(50_000)],
            [None, Some(50_000)],
        ] {
            assert!(!members.changed(&starts), "{starts:?}");
            members.take(&starts);
        }
    }

    #[test]
    fn a_change_of_any_member_is_one_and_only_once() {
        let mut members = Members::new(2);
        members.take(&[Some(100_000), Some(100_000)]);
        for starts in [
            [Some(100_000), Some(101_000)],
            // It was away meanwhile.
            [None, Some(200_000)],
            [Some(300_000), None],
            // Another machine, whose clock is behind.
            [Some(7_000), Some(200_000)],
        ] {
            assert!(members.changed(&starts), "{starts:?}");
            members.take(&starts);
            assert!(!members.changed(&starts), "{starts:?}");
        }
    }

    #[test]
    fn small_steps_add_up_to_a_change() {
        let mut members = Members::new(1);
        members.take(&[Some(100_000)]);
        members.take(&[Some(100_600)]);
        assert!(!members.changed(&[Some(100_600)]));
        assert!(members.changed(&[Some(101_200)]));
    }
}
