//! What one removal takes out of strips.

use kvbridge_adapters_api::Removal;
use kvbridge_schemas::Tier;

use super::{
    View,
    block::{Spot, count_down_by},
    fold::Output,
    link::{Delta, StripChange},
    strip::{Place, Strip},
};

/// Blocks of one kind that a removal took out of strips and that are not accounted for yet.
#[derive(Default)]
pub(super) struct Gone {
    kind: Option<GoneKind>,
    blocks: u64,
    copies: u64,
    /// Not told yet.
    thinned: Option<(u32, u64)>,
    last: Option<Place>,
}

struct GoneKind {
    number: u16,
    block_size: u32,
    hint: bool,
    /// They lie where the removal takes from.
    is_here: bool,
}

/// What a removal found in the strips.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    Copy,
    /// The block is there, and not where the removal takes from.
    Elsewhere,
    /// No strip has the block.
    Unknown,
}

impl View {
    /// Takes a copy of a block out of its strip, and of the next ones as long as they lie beside
    /// it. Says how many of the keys it is about. The caller ends with [`View::end_gone`], and
    /// calls it before it does anything else to the view.
    pub(super) fn take_copies(
        &mut self,
        keys: &[u64],
        spot: &Spot,
        gone: &mut Gone,
        out: &mut Output<'_>,
    ) -> (Taken, usize) {
        let Some(key) = keys.first().copied() else { return (Taken::Unknown, 0) };
        // Nearly always the one before the last one that went.
        let near = gone.last.and_then(Place::before).filter(|at| self.strips.key(*at) == Some(key));
        let place = near.or_else(|| self.strips.seek(key).ok().map(|(_, place)| place));
        let strip = place.and_then(|place| Some((place, self.strips.get(place.strip)?)));
        let Some((place, strip)) = strip.filter(|(at, strip)| strip.live & at.bit() != 0) else {
            return (Taken::Unknown, 1);
        };
        let number = strip.kind;
        if gone.kind.as_ref().is_none_or(|kind| kind.number != number) {
            self.end_gone(spot, gone, out);
            gone.kind = self.gone_kind(number, spot);
        }
        if !gone.kind.as_ref().is_some_and(|kind| kind.is_here) {
            return (Taken::Elsewhere, 1);
        }
        let (bits, last) = match self.strips.again.is_empty() {
            true => self.strips.in_a_row(place, keys),
            false => (place.bit(), place),
        };
        let count = u64::from(bits.count_ones());
        gone.copies += count;
        let taken = (Taken::Copy, usize::try_from(count).unwrap_or(1));
        if !self.strips.again.is_empty() && self.take_again(key, gone) {
            return taken;
        }
        gone.blocks += count;
        match &mut gone.thinned {
            Some((strip, thinned)) if *strip == place.strip => *thinned |= bits,
            Some(_) | None => {
                self.tell_thinned(gone, out);
                gone.thinned = Some((place.strip, bits));
            }
        }
        gone.last = Some(last);
        if self.strips.empty(place.strip, bits) {
            gone.last = None;
            self.tell_thinned(gone, out);
            self.end_strip(place.strip, out.deltas);
        }
        taken
    }

    /// Whether a copy beside the last one goes. Where a removal takes all, all others go with it.
    fn take_again(&mut self, key: u64, gone: &mut Gone) -> bool {
        let Some(again) = self.strips.again.get_mut(key) else { return false };
        if self.settings.removal == Removal::PerCopy && *again > 1 {
            *again -= 1;
            return true;
        }
        let (_, again) = self.strips.again.remove(key).unwrap_or_default();
        if self.settings.removal == Removal::LastCopy {
            gone.copies += u64::from(again);
        }
        self.settings.removal == Removal::PerCopy
    }

    fn gone_kind(&self, number: u16, spot: &Spot) -> Option<GoneKind> {
        let kind = self.kinds.get(number)?;
        let block_size = kind.link.as_ref()?.block_size;
        Some(GoneKind { number, block_size, hint: kind.hint, is_here: kind.spot == *spot })
    }

    fn tell_thinned(&self, gone: &mut Gone, out: &mut Output<'_>) {
        if let Some((number, bits)) = gone.thinned.take() {
            let left = self.strips.get(number).map_or(0, Strip::len);
            let change = StripChange::Thinned { bits, left };
            out.deltas.push(Delta::Strip { number, change });
        }
    }

    /// Tells of what is gone, and accounts for it.
    pub(super) fn end_gone(&mut self, spot: &Spot, gone: &mut Gone, out: &mut Output<'_>) {
        self.tell_thinned(gone, out);
        let Gone { kind, blocks, copies, .. } = std::mem::take(gone);
        let Some(kind) = kind.filter(|_| copies > 0) else { return };
        if spot.tier == Tier::Device {
            self.totals.device_copies -= copies; // no block of a strip is partial
        }
        if blocks == 0 {
            return;
        }
        if spot.tier == Tier::Host && kind.hint {
            self.totals.host_hint_spots -= blocks;
        }
        count_down_by(&mut self.totals.blocks, &spot.tier, blocks);
        count_down_by(&mut self.totals.links, &kind.block_size, blocks);
        self.groups.release_more(spot.group, blocks);
    }

    pub(super) fn end_strip(&mut self, number: u32, deltas: &mut Vec<Delta>) {
        let mut released = Vec::new();
        self.strips.end(number, &mut released, deltas);
        released.into_iter().for_each(|kind| self.kinds.release(kind));
    }
}
