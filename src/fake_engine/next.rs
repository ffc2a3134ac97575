//! PURE. What happens to the next batches: faults that wait for them.

use super::encode::Stray;

#[derive(Default)]
pub(super) struct Next {
    pub(super) dropped: u64,
    pub(super) holes: u64,
    pub(super) burnt: u64,
    pub(super) poisoned: u64,
    pub(super) left_out: u64,
    pub(super) strays: Vec<Stray>,
}

/// Takes one of so many that wait; whether there was one.
pub(super) fn take_one(count: &mut u64) -> bool {
    let any = *count > 0;
    *count = count.saturating_sub(1);
    any
}
