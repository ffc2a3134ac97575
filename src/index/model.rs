//! All replicas of one model: the tree they share, and what is said of each one's version.
//!
//! One lock holds both, so that a reader sees all of a batch with its version, or nothing of it,
//! and of all replicas the same moment. Batches are short; whatever is long (a whole view, a
//! replica that goes) is done in a column that no reader looks at, some thousand blocks at a time.

use std::{
    collections::BTreeSet,
    hint,
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use super::{
    Generation, Published, ReplicaSlot,
    members::{Member, Members},
    page::{TierNumber, Window},
    replica::Entry,
    tree::Tree,
    walk::Wanted,
    weighing::{CLAIMS, Weights},
};
use crate::view::{Delta, StripChange};

/// Blocks that are added to a column, or pages that are cleared, before readers have their turn.
/// More: they wait longer. Fewer: the lock costs more than the work. A strip is never divided.
const BLOCKS_PER_TURN: usize = 64;
const PAGES_PER_TURN: usize = 64;

/// How long readers then have their turn, if one came in the last: rounds of a waiting processor,
/// some microseconds, some times a writer's turn. Without it they find the lock taken again and are
/// put to sleep, which costs them ten times as much. More: a view of a million blocks takes longer.
const ROUNDS_PER_PAUSE: usize = 512;

/// Deltas whose blocks are looked for together before they are applied. Fewer than the one are
/// looked for as they are applied; more than the other would not fit a processor's caches.
const DELTAS_WARMED_MIN: usize = 8;
const DELTAS_WARMED_MAX: usize = 2_048;

/// How long a reader waits for the lock before it lets itself be put to sleep and woken: somewhat
/// longer than most batches take. Longer: where the writer lost its core, it waits for nothing.
const ROUNDS_AWAKE: usize = 512;

#[derive(Default)]
pub(super) struct Model {
    shared: RwLock<Shared>,
    /// A reader came since a writer looked last.
    asked: AtomicBool,
}

/// What a list of depths needs of a member.
pub(super) struct Listed {
    pub(super) slot: ReplicaSlot,
    pub(super) column: u32,
    /// Of the published version.
    generation: Generation,
    entry: Arc<Entry>,
}

impl Listed {
    /// Whether the version's trust was not withdrawn after it was decided.
    pub(super) fn stands(&self) -> bool {
        self.entry.generation() == self.generation
    }
}

#[derive(Default)]
pub(super) struct Shared {
    pub(super) tree: Tree,
    pub(super) members: Members,
    /// All members in their order, in as few bytes as lists of depths need.
    pub(super) order: Vec<Listed>,
    /// What counts of their columns, by claim.
    pub(super) wanted: [Wanted; CLAIMS.len()],
    /// Of all their blocks, smallest block size first.
    pub(super) windows: Vec<Window>,
    /// How often the tree was begun anew after a writer died in it.
    restarts: u64,
}

impl Shared {
    fn add(&mut self, slot: ReplicaSlot, member: Member) {
        let (column, generation) = (member.column, member.published.generation);
        let listed = Listed { slot, column, generation, entry: Arc::clone(&member.entry) };
        let number = self.members.add(slot, member);
        self.order.insert(number, listed);
        self.weigh(slot);
    }

    fn remove(&mut self, slot: ReplicaSlot) -> Option<Member> {
        self.order.retain(|listed| listed.slot != slot);
        let member = self.members.remove(slot)?;
        self.want_nothing(member.column);
        self.note_windows();
        Some(member)
    }

    /// Puts another column in the place of a member's; returns the old one.
    fn put(&mut self, slot: ReplicaSlot, column: u32) -> Option<u32> {
        let member = self.members.get_mut(slot)?;
        let old = std::mem::replace(&mut member.column, column);
        member.weights = Weights::default();
        if let Some(listed) = self.order.iter_mut().find(|listed| listed.slot == slot) {
            listed.column = column;
        }
        self.want_nothing(old);
        self.note_windows();
        Some(old)
    }

    fn want_nothing(&mut self, column: u32) {
        self.wanted.iter_mut().for_each(|wanted| wanted.set(column, &[]));
    }

    /// Finds out what counts of a member in the version that is published, if that is another than
    /// before.
    fn weigh(&mut self, slot: ReplicaSlot) {
        let Shared { tree, members, wanted, order, .. } = self;
        let Some(number) = members.number(slot) else { return };
        let Some(member) = members.at_mut(number) else { return };
        if let Some(listed) = order.get_mut(number) {
            listed.generation = member.published.generation;
        }
        let Some(column) = tree.column(member.column) else { return };
        if member.faulted || member.weights.stand(&member.published, column) {
            return;
        }
        let weights = Weights::new(&member.published, column, tree);
        for (claim, wanted) in wanted.iter_mut().enumerate() {
            let weight = weights.of(claim);
            let usable = weight.tiers.iter().filter(|_| weight.refused.is_none());
            let numbers: Vec<TierNumber> =
                usable.filter_map(|tier| tree.tier_number(tier)).collect();
            wanted.set(member.column, &numbers);
        }
        let same_windows = member.weights.windows == weights.windows;
        member.weights = weights;
        if !same_windows {
            self.note_windows();
        }
    }

    fn note_windows(&mut self) {
        let all = self.members.iter().flat_map(|member| member.weights.windows.iter().copied());
        self.windows = all.collect::<BTreeSet<_>>().into_iter().collect();
    }
}

/// Deltas of as many blocks as are added in one turn.
fn next_turn(deltas: &mut impl Iterator<Item = Delta>) -> Vec<Delta> {
    let mut blocks = 0;
    let mut turn = Vec::new();
    while blocks < BLOCKS_PER_TURN
        && let Some(delta) = deltas.next()
    {
        blocks += match &delta {
            Delta::Strip { change: StripChange::Grown { blocks, .. }, .. } => blocks.len(),
            Delta::Strip { .. }
            | Delta::Linked { .. }
            | Delta::Unlinked { .. }
            | Delta::Cleared => 1,
        };
        turn.push(delta);
    }
    turn
}

impl Model {
    /// What readers see; the error is what a writer that died left behind.
    pub(super) fn read(&self) -> Result<RwLockReadGuard<'_, Shared>, RwLockReadGuard<'_, Shared>> {
        if !self.asked.load(Ordering::Relaxed) {
            self.asked.store(true, Ordering::Relaxed);
        }
        for _ in 0..ROUNDS_AWAKE {
            match self.shared.try_read() {
                Ok(shared) => return Ok(shared),
                Err(TryLockError::Poisoned(died)) => return Err(died.into_inner()),
                Err(TryLockError::WouldBlock) => hint::spin_loop(),
            }
        }
        self.shared.read().map_err(PoisonError::into_inner)
    }

    /// Lets readers have their turn, if there are any.
    fn pause(&self) {
        if self.asked.swap(false, Ordering::Relaxed) {
            thread::yield_now();
            (0..ROUNDS_PER_PAUSE).for_each(|_| hint::spin_loop());
        }
    }

    pub(super) fn add(&self, slot: ReplicaSlot, entry: Arc<Entry>) {
        let mut shared = self.write_anew();
        let (column, published) = (shared.tree.add_column(), Published::nothing());
        let weights = Weights::default();
        let member = Member { entry, column, published, weights, faulted: false };
        shared.add(slot, member);
    }

    /// Applies deltas in one step. What a dead writer left half-changed stays as it is, and
    /// unusable, until it is replaced.
    pub(super) fn apply(&self, slot: ReplicaSlot, deltas: &[Delta], published: Published) {
        if let Some(at) = deltas.iter().rposition(|delta| *delta == Delta::Cleared) {
            let left = deltas.get(at + 1..).unwrap_or_default();
            return self.replace(slot, left.iter().cloned(), published);
        }
        self.warm(slot, deltas);
        let Ok(mut shared) = self.shared.write() else { return };
        let Shared { tree, members, .. } = &mut *shared;
        let Some(member) = members.get_mut(slot).filter(|member| !member.faulted) else { return };
        let mut speculation = member.entry.speculation();
        match &mut *speculation {
            None => tree.apply_all(member.column, deltas),
            Some(speculation) => {
                for delta in deltas {
                    speculation.follow(delta, (tree, member.column), published.trust);
                    tree.apply(member.column, delta);
                }
            }
        }
        member.published = published;
        drop(speculation);
        shared.weigh(slot);
    }

    /// Looks for the blocks of a batch while readers still have their turn: what memory is waited
    /// for now is not waited for under the lock.
    fn warm(&self, slot: ReplicaSlot, deltas: &[Delta]) {
        if deltas.len() < DELTAS_WARMED_MIN {
            return;
        }
        let Ok(shared) = self.shared.read() else { return };
        if let Some(member) = shared.members.get(slot) {
            let deltas = deltas.get(..DELTAS_WARMED_MAX).unwrap_or(deltas);
            shared.tree.warm(member.column, deltas);
        }
    }

    /// Puts another column in the place of a replica's, filled aside.
    pub(super) fn replace(
        &self,
        slot: ReplicaSlot,
        deltas: impl IntoIterator<Item = Delta>,
        published: Published,
    ) {
        let (column, restarts) = {
            let mut shared = self.write_anew();
            (shared.tree.add_column(), shared.restarts)
        };
        let mut deltas = deltas.into_iter().peekable();
        while deltas.peek().is_some() {
            let turn = next_turn(&mut deltas);
            let mut shared = self.write_anew();
            if shared.restarts != restarts {
                return; // the column went with the tree
            }
            shared.tree.warm(column, &turn);
            shared.tree.apply_all(column, &turn);
            drop(shared);
            self.pause();
        }
        let mut shared = self.write_anew();
        if shared.restarts != restarts {
            return;
        }
        if let Some(member) = shared.members.get_mut(slot) {
            (member.published, member.faulted) = (published, false);
            *member.entry.speculation() = None;
        }
        // It may have been dropped meanwhile.
        let old = shared.put(slot, column).unwrap_or(column);
        shared.weigh(slot);
        drop(shared);
        self.clear(old, restarts);
    }

    /// Forgets a replica; its blocks are freed while queries go on.
    pub(super) fn remove(&self, slot: ReplicaSlot) {
        let mut shared = self.write_anew();
        let (member, restarts) = (shared.remove(slot), shared.restarts);
        drop(shared);
        if let Some(member) = member {
            self.clear(member.column, restarts);
        }
    }

    /// Clears and gives back a column that no reader looks at any more.
    fn clear(&self, column: u32, restarts: u64) {
        let pages = {
            let shared = self.shared.read().unwrap_or_else(PoisonError::into_inner);
            shared.tree.column(column).map(super::column::Column::pages).unwrap_or_default()
        };
        for turn in pages.chunks(PAGES_PER_TURN) {
            let mut shared = self.write_anew();
            if shared.restarts != restarts {
                return;
            }
            shared.tree.clear_pages(column, turn);
            drop(shared);
            self.pause();
        }
        let mut shared = self.write_anew();
        if shared.restarts == restarts {
            let freed = shared.tree.free_column(column);
            drop(shared);
            drop(freed); // a large table, and nobody waits for it
        }
    }

    /// To write. After a writer died the tree begins anew, and all replicas are unusable until
    /// they are replaced: what is half-changed is shared.
    fn write_anew(&self) -> RwLockWriteGuard<'_, Shared> {
        self.shared.write().unwrap_or_else(|poisoned| {
            let mut shared = poisoned.into_inner();
            let slots = shared.members.slots();
            shared.tree = Tree::default();
            shared.wanted = Default::default();
            shared.windows.clear();
            shared.restarts += 1;
            for slot in slots {
                let column = shared.tree.add_column();
                shared.put(slot, column);
                if let Some(member) = shared.members.get_mut(slot) {
                    member.faulted = true;
                }
            }
            self.shared.clear_poison();
            shared
        })
    }
}
