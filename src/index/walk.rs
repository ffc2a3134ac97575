//! How far each column holds a sequence.

use super::{
    page::{Before, Place, TierNumber, Window, to_usize},
    tree::Tree,
};

/// In place of a tier: no more tiers.
const NO_TIER: TierNumber = TierNumber::MAX;

/// Which tiers count for each column, nearest first, all columns in one list.
pub(super) struct Wanted {
    width: usize,
    tiers: Vec<TierNumber>,
}

impl Wanted {
    /// Nothing counts for any of so many columns; up to `width` tiers may.
    pub(super) fn nothing(columns: usize, width: usize) -> Wanted {
        Wanted { width, tiers: vec![NO_TIER; columns * width] }
    }

    /// `None` = a tier in which nobody holds anything.
    pub(super) fn set(&mut self, column: u32, number: usize, tier: Option<TierNumber>) {
        let at = to_usize(column) * self.width + number;
        if let (Some(wanted), Some(tier)) = (self.tiers.get_mut(at), tier) {
            *wanted = tier;
        }
    }
}

/// For each column, and in it for each of the tiers that count: how many blocks it holds in that
/// tier or one before it, from the first block on.
#[derive(Clone)]
pub(super) struct Depths {
    width: usize,
    blocks: Vec<u32>,
}

impl Depths {
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
        let none = Depths { width: wanted.width, blocks: vec![0; wanted.tiers.len()] };
        let mut best: Option<Depths> = None;
        let mut ways: Vec<Way> = Vec::new();
        let mut way = (Before::Root(root), 0, none);
        loop {
            let (before, depth, depths) = way;
            let content = contents.get(depth).copied();
            let mut places =
                content.into_iter().flat_map(|content| self.next(before, content, window));
            let first = places.next();
            ways.extend(places.map(|place| Way { place, depth, depths: depths.clone() }));
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
        let alike = own.iter().zip(contents).take_while(|(own, asked)| own == asked).count();
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
        let (depth, count) = (clip(depth), clip(count));
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

fn clip(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
