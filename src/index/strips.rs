//! Blocks that a view keeps in strips: their places follow from where each strip's parts lie.
//!
//! What is rare is done with nodes: a strip that its view has parted, or one with a block that the
//! column knows by itself already (because others follow it), is a strip of nodes. It keeps each of
//! them known, as a block that follows would, until its view cuts it.

use super::{
    column::Node,
    page::{Before, KNOWN, PAGE_BLOCKS, Place, TierNumber, Window, to_usize},
    strip::{Part, Strip, first_bits},
    tree::Tree,
};
use crate::view::{LinkParent, NodeId, StripChange, StripParent};

/// The parent of a block that comes after one in a tier that has no number: no walk comes there.
const NOWHERE: LinkParent = LinkParent::Root(0);

fn bits_of(bits: u64) -> impl Iterator<Item = u8> {
    (0_u8..64).filter(move |at| bits & (1 << at) != 0)
}

impl Tree {
    /// Changes a strip of a column as its view says.
    pub(super) fn apply_strip(&mut self, column: u32, number: u32, change: &StripChange) {
        match change {
            StripChange::Grown { from, parent, blocks, block_size, bigram, tier } => {
                let Some(tier) = self.number_tier(tier) else { return };
                let window = Window { block_size: *block_size, bigram: *bigram };
                if *from == 0 {
                    let strip = Strip::new(*parent, window, tier);
                    self.column_mut(column).put_strip(number, strip);
                }
                self.grow(column, number, blocks);
            }
            StripChange::Refilled { bits } => self.refill(column, number, *bits),
            StripChange::Thinned { bits, left } => self.thin(column, number, *bits, *left),
            StripChange::Parted => self.part(column, number),
        }
    }

    fn grow(&mut self, column: u32, number: u32, blocks: &[(u64, u64)]) {
        let of = self.column_mut(column);
        let Some(strip) = of.strip(number) else { return };
        let id = |key| NodeId { key, block_size: strip.window.block_size };
        let known = !of.has_no_nodes() && blocks.iter().any(|(key, _)| of.get(id(*key)).is_some());
        if known || strip.of_nodes {
            self.part(column, number);
            return self.grow_nodes(column, number, blocks);
        }
        let Some(mut last) = self.last_of(column, number) else { return };
        let Some(mut strip) = self.column_mut(column).take_strip(number) else { return };
        let (window, tier, from) = (strip.window, strip.tier, strip.len());
        if strip.keys.len() + blocks.len() > strip.keys.capacity() {
            let held = strip.keys.len();
            strip
                .keys
                .reserve_exact(blocks.len().max(held / 4).min(PAGE_BLOCKS - held.min(PAGE_BLOCKS)));
        }
        strip.keys.extend(blocks.iter().map(|(key, _)| *key));
        let mut at = from;
        let mut rest = blocks;
        let mut continues = from > 0;
        while let [(_, content), ..] = rest {
            let (place, count) = self.take_row(column, (last, *content, window), rest);
            let end = u32::try_from(count).unwrap_or(1).saturating_sub(1);
            let is_next = last == Before::Block(Place { at: place.at.wrapping_sub(1), ..place });
            if !(continues && is_next) {
                strip.push_part(Part {
                    page: place.page,
                    at: u8::try_from(place.at).unwrap_or(0),
                    from: at,
                });
            }
            let bits = first_bits(u8::try_from(count).unwrap_or(64)) << place.at;
            self.page_mut(place.page).set_all(column, tier, bits);
            last = Before::Block(Place { page: place.page, at: place.at + end });
            at += u8::try_from(count).unwrap_or(64);
            continues = true;
            rest = rest.get(count..).unwrap_or_default();
        }
        strip.live |= first_bits(at) & !first_bits(from);
        let columns = self.column_mut(column);
        columns.put_strip(number, strip);
        columns.add_run(window, tier, u64::from(at - from));
    }

    /// Takes places for some blocks, from the first on, that lie in a row. Returns the first and
    /// how many there are, at least one.
    fn take_row(
        &mut self,
        column: u32,
        (before, content, window): (Before, u64, Window),
        blocks: &[(u64, u64)],
    ) -> (Place, usize) {
        let place = self.allot(column, before, (content, window));
        let page = self.page_mut(place.page);
        let taken = page.taken(column) >> place.at >> 1;
        let room = to_usize(taken.trailing_zeros()).min(PAGE_BLOCKS - 1 - to_usize(place.at));
        let others = blocks.get(1..).unwrap_or_default();
        let others = others.get(..room).unwrap_or(others);
        let held = page.contents.get(to_usize(place.at) + 1..).unwrap_or_default();
        let alike = held.iter().zip(others).take_while(|(held, (_, own))| *held == own).count();
        let at = to_usize(place.at) + alike;
        let is_end = at + 1 == page.contents.len();
        if !is_end || page.hooked & (1 << at) != 0 {
            return (place, alike + 1);
        }
        let new = others.get(alike..).unwrap_or_default();
        if page.contents.capacity() < page.contents.len() + new.len() {
            page.contents.reserve_exact(new.len());
        }
        page.contents.extend(new.iter().map(|(_, content)| *content));
        (place, alike + 1 + new.len())
    }

    /// The place of a strip's last block; of a new strip, of what comes before it, which is known
    /// from now on for its sake.
    fn last_of(&mut self, column: u32, number: u32) -> Option<Before> {
        let strip = self.column_mut(column).strip(number)?;
        let (parent, window) = (strip.parent, strip.window);
        if let Some(last) = strip.len().checked_sub(1) {
            return strip.place(last).map(Before::Block);
        }
        Some(match parent {
            StripParent::Root(namespace) => Before::Root(namespace),
            StripParent::Block(id) => {
                // No block is its own parent's; the number only has to be another.
                let child = NodeId { key: !id.key, ..id };
                self.before(column, child, LinkParent::Block(id), window)
            }
            StripParent::Strip { number, at } => self.place_in(column, number, at),
        })
    }

    /// The place of a strip's block.
    fn place_in(&self, column: u32, number: u32, at: u8) -> Before {
        let place = || {
            let of = self.column(column)?;
            let strip = of.strip(number)?;
            match strip.of_nodes {
                true => of.get(strip.id(at)?).map(Node::place),
                false => strip.place(at),
            }
        };
        place().map_or(Before::Nowhere, Before::Block)
    }

    fn refill(&mut self, column: u32, number: u32, bits: u64) {
        let Some(mut strip) = self.column_mut(column).take_strip(number) else { return };
        let bits = bits & first_bits(strip.len()) & !strip.live;
        strip.live |= bits;
        if strip.of_nodes {
            let ids: Vec<NodeId> = bits_of(bits).filter_map(|at| strip.id(at)).collect();
            let tier = strip.tier;
            self.column_mut(column).put_strip(number, strip);
            return ids.into_iter().for_each(|id| self.link_again(column, id, tier));
        }
        for (page, bits) in strip.pages(bits).filter(|(_, bits)| *bits != 0) {
            let page = self.page_mut(page);
            page.set_all(column, strip.tier, bits);
            page.clear_all(column, KNOWN, bits);
        }
        let columns = self.column_mut(column);
        columns.add_run(strip.window, strip.tier, u64::from(bits.count_ones()));
        columns.put_strip(number, strip);
    }

    fn thin(&mut self, column: u32, number: u32, bits: u64, left: u8) {
        let Some(mut strip) = self.column_mut(column).take_strip(number) else { return };
        let (len, left) = (strip.len(), left.min(strip.len()));
        let bits = bits & strip.live;
        strip.live &= !bits;
        if strip.of_nodes {
            return self.thin_nodes((column, number), strip, (bits, left));
        }
        // Those that went and stay known; those that were known and are forgotten.
        let (known, cut) = (bits & first_bits(left), first_bits(len) & !first_bits(left));
        let lost = cut & !bits & !strip.live;
        for (number, gone) in strip.pages(bits | lost).filter(|(_, gone)| *gone != 0) {
            let page = self.page_mut(number);
            page.clear_all(column, strip.tier, gone);
            if lost != 0 {
                page.clear_all(column, KNOWN, gone);
            }
        }
        if known != 0 {
            for (number, known) in strip.pages(known).filter(|(_, known)| *known != 0) {
                self.page_mut(number).set_all(column, KNOWN, known);
            }
        }
        if bits != 0 {
            let gone = u64::from(bits.count_ones());
            self.column_mut(column).take_run(strip.window, strip.tier, gone);
        }
        if cut != 0 {
            for (number, _) in strip.pages(cut).filter(|(_, cut)| *cut != 0) {
                self.free_if_empty(number);
            }
        }
        if left > 0 {
            strip.cut(left);
            self.column_mut(column).put_strip(number, strip);
        } else if let StripParent::Block(id) = strip.parent {
            self.leave(column, id);
        }
    }

    /// One follower less of a block that is a node.
    fn leave(&mut self, column: u32, id: NodeId) {
        let child = NodeId { key: !id.key, ..id };
        if let Some(lonely) = self.leave_parent(column, child, LinkParent::Block(id)) {
            self.forget(column, lonely);
        }
    }

    /// Makes nodes of a strip's blocks, and of those of the strips before it.
    fn part(&mut self, column: u32, number: u32) {
        let mut way = vec![number];
        while let Some(strip) = way.last().and_then(|it| self.column(column)?.strip(*it))
            && let StripParent::Strip { number, .. } = strip.parent
            && self.column(column).and_then(|of| of.strip(number)).is_some_and(|it| !it.of_nodes)
        {
            way.push(number);
        }
        for number in way.into_iter().rev() {
            self.part_one(column, number);
        }
    }

    /// Makes nodes of all strips' blocks.
    pub(super) fn part_all(&mut self, column: u32) {
        let strips = self.column(column).map_or(0, |of| of.strip_numbers());
        for number in 0..strips {
            self.part(column, number);
        }
    }

    fn part_one(&mut self, column: u32, number: u32) {
        let of = self.column_mut(column);
        let Some(mut strip) = of.take_strip(number) else { return };
        if strip.of_nodes {
            return of.put_strip(number, strip);
        }
        let mut parent = match strip.parent {
            StripParent::Root(namespace) => LinkParent::Root(namespace),
            StripParent::Block(id) => LinkParent::Block(id), // which knows of one that follows
            StripParent::Strip { number, at } => {
                let id = of.strip(number).and_then(|before| before.id(at));
                if let (false, Some(node)) =
                    (strip.keys.is_empty(), id.and_then(|id| of.get_mut(id)))
                {
                    node.children += 1;
                }
                id.map_or(NOWHERE, LinkParent::Block)
            }
        };
        for at in 0..strip.len() {
            let (Some(id), Some(place)) = (strip.id(at), strip.place(at)) else { continue };
            let mut node = Node::new(id, parent, place);
            // The strip itself, and the next block.
            node.children = 1 + u32::from(at + 1 < strip.len());
            of.add(node);
            parent = LinkParent::Block(id);
        }
        (strip.of_nodes, strip.others) = (true, Vec::new());
        of.put_strip(number, strip);
    }

    fn grow_nodes(&mut self, column: u32, number: u32, blocks: &[(u64, u64)]) {
        for (key, content) in blocks {
            let Some(strip) = self.column(column).and_then(|of| of.strip(number)) else { return };
            let (window, tier) = (strip.window, strip.tier);
            let id = NodeId { key: *key, block_size: window.block_size };
            let parent = match strip.len().checked_sub(1).and_then(|last| strip.id(last)) {
                Some(last) => LinkParent::Block(last),
                None => self.parent_in_nodes(column, strip.parent),
            };
            self.link(column, (id, parent), (*content, window), tier);
            let of = self.column_mut(column);
            if let Some(node) = of.get_mut(id) {
                node.children += 1; // the strip
            }
            if let Some(strip) = of.strip_mut(number) {
                strip.live |= 1 << strip.len();
                strip.keys.push(*key);
            }
        }
    }

    fn parent_in_nodes(&self, column: u32, parent: StripParent) -> LinkParent {
        match parent {
            StripParent::Root(namespace) => LinkParent::Root(namespace),
            StripParent::Block(parent) => LinkParent::Block(parent),
            StripParent::Strip { number, at } => {
                let before = self.column(column).and_then(|of| of.strip(number)?.id(at));
                before.map_or(NOWHERE, LinkParent::Block)
            }
        }
    }

    fn link_again(&mut self, column: u32, id: NodeId, tier: TierNumber) {
        let Some(node) = self.column(column).and_then(|of| of.get(id)).copied() else { return };
        let page = self.page(node.place().page);
        let Some((content, window)) =
            page.and_then(|page| Some((page.content(node.place().at)?, page.window)))
        else {
            return;
        };
        self.link(column, (id, node.parent()), (content, window), tier);
    }

    fn thin_nodes(
        &mut self,
        (column, number): (u32, u32),
        mut strip: Strip,
        (bits, left): (u64, u8),
    ) {
        let tier = strip.tier;
        for id in bits_of(bits).filter_map(|at| strip.id(at)) {
            self.unlink(column, id, tier);
        }
        for id in (left..strip.len()).rev().filter_map(|at| strip.id(at)) {
            self.leave(column, id);
        }
        strip.cut(left);
        if left > 0 {
            self.column_mut(column).put_strip(number, strip);
        }
    }

    /// What some of a strip's blocks cover.
    pub(super) fn contents_in(&self, column: u32, number: u32, bits: u64) -> Vec<u64> {
        let places = bits_of(bits).filter_map(|at| match self.place_in(column, number, at) {
            Before::Block(place) => Some(place),
            Before::Root(_) | Before::Nowhere => None,
        });
        places.filter_map(|place| self.page(place.page)?.content(place.at)).collect()
    }
}
