//! Blocks in a row: what one store does to blocks in strips.
//!
//! It does what `fold` does to blocks at full length, for those that come one after the other and
//! surprise in nothing. It stops before the first one that does.

use kvbridge_schemas::{BlockHash, StoredBlock, Tier};

use super::{
    View, ViewSettings,
    block::count_up_by,
    fold::Output,
    kinds::Kind,
    link::{Delta, LinkParent, StripChange},
    plain::Run,
    strip::{Before, Place},
};

/// Blocks of a store that are looked for together. Where the second of them is not as told, the
/// others were looked for in vain: a store of any length must not do so again and again.
const ROW_BLOCKS_MAX: usize = 256;

/// A store under way: how far it got, and what is not told yet.
struct Row {
    kind: u16,
    /// What the next block follows.
    before: Before,
    /// Its key, if it is a block's.
    key_before: Option<u64>,
    untold: Untold,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Untold {
    Nothing,
    Grown { strip: u32, from: u8 },
    Refilled { strip: u32, bits: u64 },
}

impl View {
    /// Stores blocks that are new, or back at their places, or one more copy of blocks that are
    /// told as before, each with the one before it as its parent. Returns how many it took, from
    /// the first on.
    pub(super) fn store_row(
        &mut self,
        blocks: &[StoredBlock],
        parent: LinkParent,
        run: &mut Run,
        out: &mut Output<'_>,
    ) -> usize {
        if !self.keeps_strips() {
            return 0;
        }
        let blocks = blocks.get(..ROW_BLOCKS_MAX).unwrap_or(blocks);
        let Some(mut row) = self.begin_row(parent, run) else { return 0 };
        let mut all = std::mem::take(&mut out.row);
        all.clear();
        self.strips.reserve(blocks.len());
        self.plain_ones(blocks, row.key_before, &mut all);
        let (mut rest, mut new, mut again) = (all.as_slice(), 0_usize, 0_usize);
        while let [(key, content), others @ ..] = rest {
            let Ok((_, place)) = self.strips.seek(*key) else {
                let count = self.grow(rest, &mut row, run, out);
                if count == 0 {
                    break;
                }
                new += count;
                rest = rest.get(count..).unwrap_or_default();
                continue;
            };
            if !self.is_at(place, *content, &row) {
                break;
            }
            if self.strips.is_live(place) {
                self.strips.store_again(*key);
                again += 1;
            } else {
                self.refill(place, &mut row, run, out);
                new += 1;
            }
            (row.before, row.key_before) = (Before::Strip(place), Some(*key));
            rest = others;
        }
        self.tell(&mut row, run, out);
        out.row = all;
        if new + again > 0 {
            run.ready = row.key_before;
            self.enter_row(run, (to_u64(new), to_u64(again)));
        }
        new + again
    }

    /// Keys and contents of blocks, up to the first one that says more of itself, that follows
    /// itself, or that is for the one who tells of blocks by themselves.
    fn plain_ones(&self, blocks: &[StoredBlock], before: Option<u64>, all: &mut Vec<(u64, u64)>) {
        let has_odd =
            !self.blocks.is_empty() || self.parking.count() > 0 || self.strips.may_refuse();
        let is_odd = |key| {
            self.blocks.get(key).is_some()
                || self.strips.refuses(key)
                || self.parking.count() > 0 && !self.parking.awaited(key).is_empty()
        };
        all.reserve(blocks.len());
        let (mut last, mut taken) = (before, 0);
        for block in blocks {
            let (Some(key), Some(content)) = (short_key(&block.hash), block.content) else { break };
            if Some(key) == last || has_odd && is_odd(key) {
                break;
            }
            taken += u32::from(self.strips.is_taken(key));
            all.push((key, content));
            last = Some(key);
        }
        std::hint::black_box(taken);
    }

    /// Whether blocks go into strips, which say no more of them than their keys.
    pub(super) fn keeps_strips(&self) -> bool {
        let ViewSettings { told_singly, describes, .. } = self.settings;
        !told_singly && !describes && self.bare.is_empty() && self.hashes.is_empty()
    }

    /// `None` = the parent is not there, or waits itself.
    fn begin_row(&mut self, parent: LinkParent, run: &mut Run) -> Option<Row> {
        let block_size = run.kind.link.as_ref()?.block_size;
        let (before, key_before) = match parent {
            LinkParent::Root(namespace) => (Before::Root(namespace), None),
            LinkParent::Block(node) => match self.strips.find(node.key) {
                Some(place) => {
                    let strip = self.strips.get(place.strip)?;
                    let kind = self.kinds.get(strip.kind)?.link.as_ref()?;
                    (kind.block_size == block_size).then_some(())?;
                    (Before::Strip(place), Some(node.key))
                }
                None => {
                    let is_ready = run.ready == Some(node.key) || self.is_ready(node);
                    is_ready.then_some((Before::Block(node.key), Some(node.key)))?
                }
            },
        };
        Some(Row { kind: self.number(run)?, before, key_before, untold: Untold::Nothing })
    }

    /// Whether a known block has the content, the kind and the place that the row tells of it.
    fn is_at(&self, place: Place, content: u64, row: &Row) -> bool {
        let Some(strip) = self.strips.get(place.strip) else { return false };
        let is_behind = match place.at.checked_sub(1) {
            Some(at) => row.before == Before::Strip(Place { strip: place.strip, at }),
            None => match (strip.before, row.before) {
                (Before::Root(a), Before::Root(b)) => a == b,
                (Before::Root(_), _) | (_, Before::Root(_)) => false,
                (before, _) => self.key_of(before) == row.key_before,
            },
        };
        let held = strip.get(place.at).map(|(_, content)| content);
        is_behind && strip.kind == row.kind && held == Some(content) && self.can_hold_more(place)
    }

    fn can_hold_more(&self, place: Place) -> bool {
        self.strips.again.is_empty()
            || self.strips.key(place).is_none_or(|key| self.strips.copies(key) < u32::MAX)
    }

    pub(super) fn key_of(&self, before: Before) -> Option<u64> {
        match before {
            Before::Root(_) => None,
            Before::Block(key) => Some(key),
            Before::Strip(place) => self.strips.key(place),
        }
    }

    fn refill(&mut self, place: Place, row: &mut Row, run: &Run, out: &mut Output<'_>) {
        self.strips.refill(place);
        match &mut row.untold {
            Untold::Refilled { strip, bits } if *strip == place.strip => *bits |= place.bit(),
            Untold::Nothing | Untold::Grown { .. } | Untold::Refilled { .. } => {
                self.tell(row, run, out);
                row.untold = Untold::Refilled { strip: place.strip, bits: place.bit() };
            }
        }
    }

    /// Puts new blocks behind the row, of which the first is new. Returns how many; 0 = there are
    /// too many strips.
    fn grow(
        &mut self,
        blocks: &[(u64, u64)],
        row: &mut Row,
        run: &Run,
        out: &mut Output<'_>,
    ) -> usize {
        let last = match row.before {
            Before::Strip(place) if self.strips.ends_at(place, row.kind) => Some(place),
            Before::Root(_) | Before::Block(_) | Before::Strip(_) => None,
        };
        let (number, from) = match last {
            Some(place) => (place.strip, place.at + 1),
            None => {
                let Some(number) = self.strips.begin(row.before, row.kind) else { return 0 };
                self.kinds.hold_again(row.kind);
                (number, 0)
            }
        };
        let count = self.strips.extend(number, blocks);
        if !matches!(row.untold, Untold::Grown { strip, .. } if strip == number) {
            self.tell(row, run, out);
            row.untold = Untold::Grown { strip: number, from };
        }
        let at = u8::try_from(usize::from(from) + count).unwrap_or(u8::MAX).saturating_sub(1);
        row.before = Before::Strip(Place { strip: number, at });
        row.key_before = count.checked_sub(1).and_then(|last| Some(blocks.get(last)?.0));
        count
    }

    fn tell(&self, row: &mut Row, run: &Run, out: &mut Output<'_>) {
        match std::mem::replace(&mut row.untold, Untold::Nothing) {
            Untold::Nothing => (),
            Untold::Grown { strip, from } => {
                let Some(link) = &run.kind.link else { return };
                let alike = (link.block_size, link.bigram, &run.kind.spot.tier);
                out.deltas.extend(self.strips.grown((strip, from), alike, false));
            }
            Untold::Refilled { strip, bits } => {
                let change = StripChange::Refilled { bits };
                out.deltas.push(Delta::Strip { number: strip, change });
            }
        }
    }

    /// Accounts for blocks of a run's kind: new ones, and others that were there once at least.
    fn enter_row(&mut self, run: &Run, (new, again): (u64, u64)) {
        let Kind { spot, partial, hint, link } = &run.kind;
        if spot.tier == Tier::Device && !partial {
            self.totals.device_copies += new + again;
        }
        if new == 0 {
            return;
        }
        if spot.tier == Tier::Host && *hint {
            self.totals.host_hint_spots += new;
        }
        self.groups.hold_more(spot.group, new);
        count_up_by(&mut self.totals.blocks, &spot.tier, new);
        if let Some(link) = link {
            count_up_by(&mut self.totals.links, &link.block_size, new);
        }
    }
}

fn to_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// The key of a hash that says no more than the key does.
pub(super) fn short_key(hash: &BlockHash) -> Option<u64> {
    let bytes = <[u8; size_of::<u64>()]>::try_from(hash.as_bytes()).ok()?;
    Some(u64::from_be_bytes(bytes)) // of eight bytes, each projection is all
}
