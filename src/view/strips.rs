//! Blocks that follow one another, kept together: nearly all that an engine of one tier holds.
//!
//! A strip is a part of a sequence, up to 64 blocks of one kind. Each is found by its key through
//! one table of eight bytes a block; its parent, its kind and its copies are told by where it lies.
//! A block that goes keeps its number as long as others follow it, so that it finds its place
//! again. What a strip cannot say is said of its blocks one by one (`View::part`).

use kvbridge_schemas::Tier;

use super::{
    link::{Delta, NodeId, STRIP_BLOCKS_MAX, StripChange, StripParent},
    strip::{Before, Place, Strip, first_bits},
};
use crate::maps::{
    keyed::Keyed,
    push_slim,
    tags::{Tag, Tags},
};

/// How many strips a view can have: their blocks' numbers are told in 32 bits.
/// Policy beyond: blocks are kept one by one.
const STRIPS_MAX: u32 = Tags::NUMBER_MAX / 64;

fn key_at(strips: &[Option<Strip>], number: u32) -> Option<u64> {
    let place = Place::of(number);
    let strip = strips.get(usize::try_from(place.strip).ok()?)?.as_ref()?;
    Some(strip.get(place.at)?.0)
}

#[derive(Clone, Default)]
pub(super) struct Strips {
    places: Tags,
    strips: Vec<Option<Strip>>,
    free: Vec<u32>,
    /// Blocks that are there.
    count: u64,
    /// Copies of blocks beyond the first, by their keys.
    pub(super) again: Keyed<u32>,
    /// Blocks in no strip that strips follow, there or not, and how often. They stay in none as
    /// long: who reads deltas knows the block by itself, and cannot tell it from one in a strip.
    behind: Keyed<u32>,
}

impl Strips {
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Whether nothing is known here, not even a block that went.
    pub(super) fn is_empty(&self) -> bool {
        self.places.len() == 0
    }

    /// Whether some block may be in no strip, and whether this one.
    pub(super) fn may_refuse(&self) -> bool {
        !self.behind.is_empty()
    }

    pub(super) fn refuses(&self, key: u64) -> bool {
        self.behind.get(key).is_some()
    }

    fn follow(&mut self, key: u64) {
        match self.behind.get_mut(key) {
            Some(count) => *count += 1,
            None => drop(self.behind.insert(key, 1)),
        }
    }

    fn unfollow(&mut self, key: u64) {
        match self.behind.get_mut(key) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) | None => drop(self.behind.remove(key)),
        }
    }

    pub(super) fn get(&self, number: u32) -> Option<&Strip> {
        self.strips.get(usize::try_from(number).ok()?)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Strip> {
        self.strips.get_mut(usize::try_from(number).ok()?)?.as_mut()
    }

    /// The strips with their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Strip)> {
        let numbered = (0..).zip(&self.strips);
        numbered.filter_map(|(number, strip)| Some((number, strip.as_ref()?)))
    }

    /// The slot of the key's place and the place; without one, the slot where it belongs.
    pub(super) fn seek(&self, key: u64) -> Result<(usize, Place), usize> {
        let is = |number| key_at(&self.strips, number) == Some(key);
        let slot = self.places.seek(Tag::of(key), is)?;
        Ok((slot, Place::of(self.places.at(slot).unwrap_or(0))))
    }

    /// The place of a block that is there.
    pub(super) fn find(&self, key: u64) -> Option<Place> {
        let (_, place) = self.seek(key).ok()?;
        self.is_live(place).then_some(place)
    }

    /// The strip that knows the block, be it there or not.
    pub(super) fn strip_of(&self, key: u64) -> Option<u32> {
        Some(self.seek(key).ok()?.1.strip)
    }

    pub(super) fn is_live(&self, place: Place) -> bool {
        self.get(place.strip).is_some_and(|strip| strip.live & place.bit() != 0)
    }

    pub(super) fn key(&self, place: Place) -> Option<u64> {
        Some(self.get(place.strip)?.get(place.at)?.0)
    }

    /// Copies of a block that is there.
    pub(super) fn copies(&self, key: u64) -> u32 {
        self.again.get(key).map_or(1, |again| again + 1)
    }

    /// One copy more of a block that is there.
    pub(super) fn store_again(&mut self, key: u64) {
        match self.again.get_mut(key) {
            Some(again) => *again += 1,
            None => drop(self.again.insert(key, 1)),
        }
    }

    /// The keys of all blocks that are there, in no order.
    pub(super) fn keys(&self) -> impl Iterator<Item = u64> + '_ {
        self.iter().flat_map(|(_, strip)| {
            let live = (0_u8..).zip(&strip.blocks);
            live.filter(|(at, _)| strip.live & (1 << at) != 0).map(|(_, (key, _))| *key)
        })
    }

    /// Whether some number stands where the key's would. Asked for many keys in a row it brings
    /// their places close to the processor, all at once.
    pub(super) fn is_taken(&self, key: u64) -> bool {
        self.places.is_taken(Tag::of(key))
    }

    pub(super) fn warm(&self, keys: impl Iterator<Item = u64>) {
        self.places.warm(keys);
    }

    pub(super) fn reserve(&mut self, more: usize) {
        self.places.reserve(more);
    }

    /// A new strip without blocks; `None` if there are too many.
    pub(super) fn begin(&mut self, before: Before, kind: u16) -> Option<u32> {
        let (blocks, live, followed, followers, parted) = (Vec::new(), 0, 0, 0, false);
        let strip = Some(Strip { before, blocks, live, followed, followers, kind, parted });
        let number = match self.free.pop() {
            Some(number) => {
                *self.strips.get_mut(usize::try_from(number).ok()?)? = strip;
                number
            }
            None => {
                let next = u32::try_from(self.strips.len()).ok();
                let number = next.filter(|number| *number < STRIPS_MAX)?;
                push_slim(&mut self.strips, strip);
                number
            }
        };
        match before {
            Before::Root(_) => (),
            Before::Block(key) => self.follow(key),
            Before::Strip(place) => {
                let parent = self.get_mut(place.strip)?;
                parent.followers += 1;
                parent.followed |= place.bit();
            }
        }
        Some(number)
    }

    /// Whether a block of that kind may be put behind a place.
    pub(super) fn ends_at(&self, place: Place, kind: u16) -> bool {
        let len = usize::from(place.at) + 1;
        let strip = self.get(place.strip);
        strip.is_some_and(|strip| {
            strip.kind == kind && strip.blocks.len() == len && len < STRIP_BLOCKS_MAX
        })
    }

    /// Puts blocks at a strip's end, in room that is reserved, up to the first one that is known
    /// here or finds no room in the strip. Returns how many; the first has to be new.
    pub(super) fn extend(&mut self, number: u32, blocks: &[(u64, u64)]) -> usize {
        let Strips { places, strips, .. } = self;
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        let Some(strip) = strips.get_mut(at).and_then(Option::as_mut) else { return 0 };
        let held = strip.blocks.len();
        let room = STRIP_BLOCKS_MAX.saturating_sub(held);
        let blocks = blocks.get(..room).unwrap_or(blocks);
        if held + blocks.len() > strip.blocks.capacity() {
            strip.blocks.reserve_exact(blocks.len().max(held / 4).min(room));
        }
        // They are looked for where they lie, also among one another.
        strip.blocks.extend_from_slice(blocks);
        let first = Place { strip: number, at: u8::try_from(held).unwrap_or(u8::MAX) }.number();
        let mut count = 0;
        for (number, (key, _)) in (first..).zip(blocks) {
            let tag = Tag::of(*key);
            let Err(slot) = places.seek(tag, |number| key_at(strips, number) == Some(*key)) else {
                break;
            };
            places.fill(slot, tag, number);
            count += 1;
        }
        if let Some(strip) = strips.get_mut(at).and_then(Option::as_mut) {
            strip.blocks.truncate(held + count);
            let (all, before) = (first_bits(held + count), first_bits(held));
            strip.live |= all & !before;
        }
        self.count += u64::try_from(count).unwrap_or(0);
        count
    }

    /// The block is there again.
    pub(super) fn refill(&mut self, place: Place) {
        if let Some(strip) = self.get_mut(place.strip) {
            strip.live |= place.bit();
            self.count += 1;
        }
    }

    /// Which blocks of a strip the keys name, from the first on, as long as each lies beside the
    /// one before it and is there; and the last one's place. The first one's is given.
    pub(super) fn in_a_row(&self, first: Place, keys: &[u64]) -> (u64, Place) {
        let Some(strip) = self.get(first.strip) else { return (0, first) };
        let is = |at: u8, key: u64| {
            strip.live >> at & 1 == 1 && strip.get(at).is_some_and(|(held, _)| held == key)
        };
        let (mut bits, mut last) = (first.bit(), first);
        // Engines name the last block first; the other way round is as good.
        let is_down = keys.get(1).zip(first.before()).is_some_and(|(key, to)| is(to.at, *key));
        for key in keys.iter().skip(1) {
            let next = if is_down { last.at.checked_sub(1) } else { Some(last.at + 1) };
            let Some(at) = next.filter(|at| *at < strip.len() && is(*at, *key)) else { break };
            last.at = at;
            bits |= last.bit();
        }
        (bits, last)
    }

    /// Some blocks of a strip went. `true` = it has none left, and [`Strips::end`] is to be called.
    pub(super) fn empty(&mut self, number: u32, bits: u64) -> bool {
        let Some(strip) = self.get_mut(number) else { return false };
        strip.live &= !bits;
        let last = strip.blocks.len().checked_sub(1);
        let is_end = last.is_some_and(|last| bits >> last & 1 == 1);
        self.count -= u64::from(bits.count_ones());
        is_end && self.trim(number)
    }

    /// Forgets the blocks at a strip's end that are not there and that nothing follows. `true` = it
    /// has none left.
    pub(super) fn trim(&mut self, number: u32) -> bool {
        let Strips { places, strips, .. } = self;
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        let Some(strip) = strips.get_mut(at).and_then(Option::as_mut) else { return false };
        let stays = u64::BITS - (strip.live | strip.followed).leading_zeros();
        let stays = usize::try_from(stays).unwrap_or(STRIP_BLOCKS_MAX);
        while strip.blocks.len() > stays
            && let Some((key, _)) = strip.blocks.pop()
        {
            let own = Place { strip: number, at: strip.len() }.number();
            if !strip.parted
                && let Ok(slot) = places.seek(Tag::of(key), |number| number == own)
            {
                places.take(slot);
            }
        }
        strip.blocks.is_empty()
    }

    /// Ends a strip that has no blocks left, and those before it that were kept for its sake. Says
    /// so of the others; `released` are the kinds that each of them held.
    pub(super) fn end(&mut self, number: u32, released: &mut Vec<u16>, deltas: &mut Vec<Delta>) {
        let mut next = Some(number);
        while let Some(ended) = next.take() {
            let slot = usize::try_from(ended).ok().and_then(|at| self.strips.get_mut(at));
            let Some(strip) = slot.and_then(Option::take) else { return };
            self.free.push(ended);
            released.push(strip.kind);
            let place = match strip.before {
                Before::Root(_) => return,
                Before::Block(key) => return self.unfollow(key),
                Before::Strip(place) => place,
            };
            let Some(parent) = self.get_mut(place.strip) else { return };
            parent.followers -= 1;
            if parent.followers > 0 {
                return;
            }
            let followed = std::mem::take(&mut parent.followed);
            if parent.parted {
                let keys = parent.keys_of(followed);
                keys.into_iter().for_each(|key| self.unfollow(key));
            }
            let Some(parent) = self.get(place.strip) else { return };
            let before = parent.blocks.len();
            self.trim(place.strip);
            let Some(parent) = self.get(place.strip).filter(|it| it.blocks.len() < before) else {
                return;
            };
            let change = StripChange::Thinned { bits: 0, left: parent.len() };
            deltas.push(Delta::Strip { number: place.strip, change });
            next = parent.blocks.is_empty().then_some(place.strip);
        }
    }

    /// From now on a strip's blocks are found here no more. What it was; it stays as long as others
    /// follow it, and `true` says that none do.
    pub(super) fn part(&mut self, number: u32) -> Option<(Strip, bool)> {
        let was = self.get(number).filter(|strip| !strip.parted)?.clone();
        for (key, _) in &was.blocks {
            if let Ok((slot, _)) = self.seek(*key) {
                self.places.take(slot);
            }
        }
        self.count -= u64::from(was.live.count_ones());
        let strip = self.get_mut(number)?;
        (strip.live, strip.parted) = (0, true);
        let is_left = self.trim(number);
        let followed = self.get(number).map(|strip| strip.keys_of(strip.followed));
        followed.into_iter().flatten().for_each(|key| self.follow(key));
        Some((was, is_left))
    }

    /// What comes before a strip, as deltas tell it: who is told of all strips anew never hears of
    /// one that is parted.
    pub(super) fn parent_of(&self, strip: &Strip, block_size: u32, anew: bool) -> StripParent {
        match strip.before {
            Before::Root(namespace) => StripParent::Root(namespace),
            Before::Block(key) => StripParent::Block(NodeId { key, block_size }),
            Before::Strip(place) => {
                let parted = self.get(place.strip).is_some_and(|parent| parent.parted);
                match self.key(place).filter(|_| parted && anew) {
                    Some(key) => StripParent::Block(NodeId { key, block_size }),
                    None => StripParent::Strip { number: place.strip, at: place.at },
                }
            }
        }
    }

    /// The delta that tells of a strip's blocks from one on.
    pub(super) fn grown(
        &self,
        (number, from): (u32, u8),
        (block_size, bigram, tier): (u32, bool, &Tier),
        anew: bool,
    ) -> Option<Delta> {
        let strip = self.get(number)?;
        let blocks = strip.blocks.get(usize::from(from)..)?.to_vec();
        let parent = self.parent_of(strip, block_size, anew);
        let tier = tier.clone();
        let change = StripChange::Grown { from, parent, blocks, block_size, bigram, tier };
        Some(Delta::Strip { number, change })
    }

    /// All strips that are not parted, each after the one that it follows.
    pub(super) fn in_order(&self) -> Vec<u32> {
        let mut order = Vec::with_capacity(self.strips.len());
        let mut seen = vec![false; self.strips.len()];
        let mut way = Vec::new();
        for (number, _) in self.iter() {
            let mut next = Some(number);
            while let Some(number) = next
                && let Some(seen) = usize::try_from(number).ok().and_then(|at| seen.get_mut(at))
                && !std::mem::replace(seen, true)
            {
                way.push(number);
                next = match self.get(number).map(|strip| strip.before) {
                    Some(Before::Strip(place)) => Some(place.strip),
                    Some(Before::Root(_) | Before::Block(_)) | None => None,
                };
            }
            order.extend(way.drain(..).rev());
        }
        order.retain(|number| self.get(*number).is_some_and(|strip| !strip.parted));
        order
    }
}
