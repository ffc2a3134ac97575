//! How blocks leave their strips, to be told one by one.

use super::{
    View,
    block::{Block, Copies, Full},
    link::{Delta, Link, LinkParent, NodeId, StripChange},
    strip::{Before, Strip},
};

impl View {
    /// Makes sure that a block is told by itself, before something is done to it that its strip
    /// cannot say.
    pub(super) fn part_block(&mut self, key: u64, deltas: &mut Vec<Delta>) {
        if let Some(number) = self.strips.strip_of(key) {
            self.part(number, deltas);
        }
    }

    /// The same for the blocks that one follows which is told by itself.
    pub(super) fn part_parents(&mut self, key: u64, deltas: &mut Vec<Delta>) {
        if self.strips.is_empty() {
            return;
        }
        let links = self.blocks.get(key).map(|block| self.kinds.expand(block).links);
        let parents = links.iter().flat_map(|links| links.values()).map(|link| link.parent);
        let keys: Vec<u64> = parents
            .filter_map(|parent| match parent {
                LinkParent::Root(_) => None,
                LinkParent::Block(node) => Some(node.key),
            })
            .collect();
        keys.into_iter().for_each(|key| self.part_block(key, deltas));
    }

    /// Tells all blocks by themselves.
    pub(super) fn part_all(&mut self, deltas: &mut Vec<Delta>) {
        for number in self.strips.in_order() {
            self.part(number, deltas);
        }
    }

    /// Takes a strip apart: from now on its blocks are told one by one. So are those before it: who
    /// reads deltas finds the parent of such a block among its like.
    fn part(&mut self, number: u32, deltas: &mut Vec<Delta>) {
        let mut way = vec![number];
        while let Some(strip) = way.last().and_then(|number| self.strips.get(*number))
            && let Before::Strip(place) = strip.before
            && self.strips.get(place.strip).is_some_and(|parent| !parent.parted)
        {
            way.push(place.strip);
        }
        for number in way.into_iter().rev() {
            self.part_one(number, deltas);
        }
    }

    fn part_one(&mut self, number: u32, deltas: &mut Vec<Delta>) {
        let Some((was, is_left)) = self.strips.part(number) else { return };
        deltas.push(Delta::Strip { number, change: StripChange::Parted });
        for (at, (key, _)) in (0..was.len()).zip(&was.blocks) {
            if was.live & (1 << at) != 0
                && let Some(full) = self.expand_at(&was, at)
            {
                self.blocks.insert(*key, Block::Full(Box::new(full)));
                self.strips.again.remove(*key);
                self.repack(*key);
            }
        }
        let left = self.strips.get(number).map_or(0, Strip::len);
        if left < was.len() {
            let change = StripChange::Thinned { bits: 0, left };
            deltas.push(Delta::Strip { number, change });
        }
        if is_left {
            self.end_strip(number, deltas);
        }
    }

    /// A block of a strip at full length.
    pub(super) fn expand_at(&self, strip: &Strip, at: u8) -> Option<Full> {
        let (key, content) = strip.get(at)?;
        let kind = self.kinds.get(strip.kind)?;
        let link = kind.link.as_ref()?;
        let block = |key| LinkParent::Block(NodeId { key, block_size: link.block_size });
        let parent = match at.checked_sub(1) {
            Some(before) => block(strip.get(before)?.0),
            None => match strip.before {
                Before::Root(namespace) => LinkParent::Root(namespace),
                Before::Block(_) | Before::Strip(_) => block(self.key_of(strip.before)?),
            },
        };
        let mut full = Full::default();
        let (partial, hint) = (kind.partial, kind.hint);
        let copies = Copies { count: self.strips.copies(key), partial, hint };
        full.copies.insert(kind.spot.clone(), copies);
        let (lora, salt) = (link.lora.clone(), link.salt.clone());
        let (extra, parked, described) = (None, false, None);
        let bigram = link.bigram;
        let link_at = Link { parent, content, extra, bigram, lora, salt, parked, described };
        full.links.insert(link.block_size, link_at);
        Some(full)
    }
}
