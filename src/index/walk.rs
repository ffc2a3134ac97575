//! How far each column holds a sequence.

use super::{
    page::{Before, Page, Place, TierNumber, Window, to_usize},
    tree::{Next, Tree},
};

/// In place of a tier: no more tiers.
const NO_TIER: TierNumber = TierNumber::MAX;

/// Which tiers count for each column, nearest first, all columns in one list.
#[derive(Default)]
pub(super) struct Wanted {
    width: usize,
    tiers: Vec<TierNumber>,
}

impl Wanted {
    /// What counts for a column from now on. A tier in which nobody holds anything is left out.
    pub(super) fn set(&mut self, column: u32, tiers: &[TierNumber]) {
        if tiers.len() > self.width {
            self.widen(tiers.len());
        }
        let from = to_usize(column) * self.width;
        let range = from..from + self.width;
        if self.tiers.len() < range.end {
            self.tiers.resize(range.end, NO_TIER);
        }
        if let Some(row) = self.tiers.get_mut(range) {
            row.fill(NO_TIER);
            row.iter_mut().zip(tiers).for_each(|(wanted, tier)| *wanted = *tier);
        }
    }

    fn widen(&mut self, width: usize) {
        let mut wider = Vec::with_capacity(self.tiers.len() / self.width.max(1) * width);
        for row in self.tiers.chunks(self.width.max(1)) {
            wider.extend_from_slice(row);
            wider.resize(wider.len() + width - self.width, NO_TIER);
        }
        (self.width, self.tiers) = (width, wider);
    }
}

/// For each column, and in it for each of the tiers that count: how many blocks it holds in that
/// tier or one before it, from the first block on.
#[derive(Clone)]
pub(super) struct Depths {
    width: usize,
    /// None, as long as nobody was found to have anything.
    blocks: Vec<u32>,
}

impl Depths {
    /// Whether no column has the first block.
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// In all tiers that count.
    pub(super) fn all_of(&self, column: u32) -> u64 {
        let from = to_usize(column) * self.width;
        let blocks = self.blocks.get(from..from + self.width).unwrap_or_default();
        blocks.iter().copied().max().map_or(0, u64::from)
    }

    /// The same where one tier counts for each column, as nearly always.
    pub(super) fn alone(&self) -> Option<Alone<'_>> {
        (self.width == 1).then_some(Alone(&self.blocks))
    }

    pub(super) fn of(&self, column: u32, number: usize) -> u64 {
        let at = to_usize(column) * self.width + number;
        self.blocks.get(at).copied().map_or(0, u64::from)
    }

    fn keep_best(&mut self, other: &Depths) {
        for (best, other) in self.blocks.iter_mut().zip(&other.blocks) {
            *best = (*best).max(*other);
        }
    }
}

/// How many blocks each column holds.
#[derive(Clone, Copy)]
pub(super) struct Alone<'a>(&'a [u32]);

impl Alone<'_> {
    pub(super) fn of(self, column: u32) -> u64 {
        self.0.get(to_usize(column)).copied().map_or(0, u64::from)
    }
}

/// A way that is still to be gone: from that place, which is block number `depth` of the sequence.
struct Way {
    place: Place,
    depth: usize,
    depths: Depths,
}

impl Tree {
    /// How many blocks of `contents`, from the first on, each column holds.
    ///
    /// Where twins part, each way is gone by itself, because a column that goes on along one of
    /// them may end on the other; a column's best way counts.
    pub(super) fn walk(
        &self,
        root: u64,
        contents: &[u64],
        window: Window,
        wanted: &Wanted,
    ) -> Depths {
        let none = Depths { width: wanted.width, blocks: Vec::new() };
        let mut best: Option<Depths> = None;
        let mut ways: Vec<Way> = Vec::new();
        let mut way = (Before::Root(root), 0, none);
        loop {
            let (before, depth, depths) = way;
            let next = match contents.get(depth) {
                Some(content) => self.only_next(before, *content, window),
                None => Next::Nothing,
            };
            let first = match next {
                Next::Nothing => None,
                Next::One(place) => Some(place),
                Next::Perhaps => {
                    let mut places = self.next(before, contents[depth], window);
                    let first = places.next();
                    ways.extend(places.map(|place| Way { place, depth, depths: depths.clone() }));
                    first
                }
            };
            let (place, depth, mut depths) = match first {
                Some(place) => (place, depth, depths),
                None => {
                    match &mut best {
                        Some(best) => best.keep_best(&depths),
                        None => best = Some(depths),
                    }
                    match ways.pop() {
                        Some(way) => (way.place, way.depth, way.depths),
                        None => break,
                    }
                }
            };
            let count = self.alike(place, &contents[depth..]);
            let alive = self.pass(place, (depth, count), wanted, &mut depths);
            // Without anybody who holds all of it there is nothing to look for.
            let depth = if alive { depth + count } else { contents.len() };
            let at = place.at + u32::try_from(count).unwrap_or(0).saturating_sub(1);
            way = (Before::Block(Place { page: place.page, at }), depth, depths);
        }
        best.unwrap_or(Depths { width: wanted.width, blocks: Vec::new() })
    }

    /// How many contents are as in the page from that place on, up to where twins part.
    fn alike(&self, place: Place, contents: &[u64]) -> usize {
        let Some(page) = self.page(place.page) else { return 1 };
        let own = page.contents.get(to_usize(place.at)..).unwrap_or_default();
        let alike = common(own, contents);
        let until_twins = (page.twins >> place.at).trailing_zeros();
        alike.min(to_usize(until_twins).saturating_add(1)).max(1)
    }

    /// Counts the blocks for all columns that held all before them; whether one holds these too.
    fn pass(
        &self,
        place: Place,
        (depth, count): (usize, usize),
        wanted: &Wanted,
        depths: &mut Depths,
    ) -> bool {
        let Some(page) = self.page(place.page) else { return false };
        depths.blocks.resize(wanted.tiers.len(), 0);
        let (depth, count) = (clip(depth), clip(count));
        if wanted.width == 1 {
            return pass_one(page, place.at, (depth, count), &wanted.tiers, &mut depths.blocks);
        }
        let mut alive = false;
        for (column, own) in page.columns() {
            let from = to_usize(column) * wanted.width;
            let range = from..from + wanted.width;
            let (Some(tiers), Some(blocks)) =
                (wanted.tiers.get(range.clone()), depths.blocks.get_mut(range))
            else {
                continue;
            };
            let mut bits = 0;
            for (tier, blocks) in tiers.iter().zip(blocks) {
                if *tier == NO_TIER {
                    break;
                }
                bits |= own.bits(*tier);
                if *blocks == depth {
                    let held = (bits >> place.at).trailing_ones().min(count);
                    *blocks += held;
                    alive |= held == count;
                }
            }
        }
        alive
    }
}

/// [`Tree::pass`] where one tier counts for each column, as nearly always.
fn pass_one(
    page: &Page,
    at: u32,
    (depth, count): (u32, u32),
    tiers: &[TierNumber],
    blocks: &mut [u32],
) -> bool {
    let mut alive = false;
    for row in page.rows() {
        let column = to_usize(row.column);
        let (Some(tier), Some(blocks)) = (tiers.get(column), blocks.get_mut(column)) else {
            continue;
        };
        if *blocks == depth && row.tier == *tier && row.tier != NO_TIER {
            let held = (row.bits >> at).trailing_ones().min(count);
            *blocks += held;
            alive |= held == count;
        }
    }
    alive
}

/// How many of two lists are equal, from the first on. In eights, which are compared at once.
fn common(a: &[u64], b: &[u64]) -> usize {
    let (eights, others) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
    let equal = eights.iter().zip(others).take_while(|(a, b)| are_equal(a, b)).count() * 8;
    let (a, b) = (a.get(equal..).unwrap_or_default(), b.get(equal..).unwrap_or_default());
    equal + a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

// Without a branch for each, and without a call, as which `==` is compiled.
fn are_equal(a: &[u64; 8], b: &[u64; 8]) -> bool {
    a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

fn clip(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_beginnings_are_counted_across_the_eights() {
        let a: Vec<u64> = (0..40).collect();
        for (length, differs) in [(0, 0), (1, 0), (7, 7), (8, 8), (9, 3), (16, 15), (40, 33)] {
            let mut b = a[..length].to_vec();
            if let Some(other) = b.get_mut(differs) {
                *other += 1;
            }
            assert_eq!(common(&a, &b), differs.min(length), "{length} {differs}");
            assert_eq!(common(&b, &a), differs.min(length), "{length} {differs}");
        }
    }

    #[test]
    fn a_wider_row_keeps_what_the_others_had() {
        let mut wanted = Wanted::default();
        wanted.set(0, &[3]);
        wanted.set(2, &[4]);
        wanted.set(1, &[5, 6]);
        assert_eq!(wanted.tiers, [3, NO_TIER, 5, 6, 4, NO_TIER]);
        wanted.set(1, &[]);
        wanted.set(3, &[7]);
        assert_eq!(wanted.tiers, [3, NO_TIER, NO_TIER, NO_TIER, 4, NO_TIER, 7, NO_TIER]);
    }
}
