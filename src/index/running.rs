//! Blocks that come in a row, as a store tells them: each one's place follows from that of the one
//! before it, and what is counted is counted once.

use super::{
    column::Node,
    page::{Before, PAGE_BLOCKS, Page, Place, TierNumber, Window, to_usize},
    tree::Tree,
};
use crate::view::{Delta, LinkParent, NodeId};

/// Blocks that are linked in one go: room is made for so many.
const ROW_MAX: usize = 256;

/// The last block of a row, and what of its page is not written yet.
struct Last {
    id: NodeId,
    /// Its node's slot in the column, or one near it.
    slot: usize,
    place: Place,
    /// Places of the page where the column has other blocks.
    taken: u64,
    /// Places that the row took.
    bits: u64,
    /// How many blocks may follow.
    more: usize,
}

impl Tree {
    /// Changes one column as its view says.
    pub(super) fn apply_all(&mut self, column: u32, mut deltas: &[Delta]) {
        while let [delta, others @ ..] = deltas {
            let gone = self.unlink_row(column, deltas);
            if gone > 0 {
                deltas = deltas.get(gone..).unwrap_or_default();
                continue;
            }
            self.apply(column, delta);
            deltas = others.get(self.link_row(column, delta, others)..).unwrap_or_default();
        }
    }

    /// Links the blocks that follow a linked one, each in the one before it, as long as the column
    /// knows none of them. Returns how many.
    fn link_row(&mut self, column: u32, first: &Delta, others: &[Delta]) -> usize {
        let Delta::Linked { node, bigram, tier, .. } = first else { return 0 };
        let others = others.get(..ROW_MAX).unwrap_or(others);
        let next = |before: NodeId, number: usize| match others.get(number)? {
            Delta::Linked { node, parent, content, bigram: pairs, tier: other } => {
                let follows = *parent == LinkParent::Block(before)
                    && node.block_size == before.block_size
                    && pairs == bigram
                    && other == tier;
                follows.then_some((*node, *content))
            }
            Delta::Unlinked { .. } | Delta::Strip { .. } | Delta::Cleared => None,
        };
        if next(*node, 0).is_none() {
            return 0;
        }
        let window = Window { block_size: node.block_size, bigram: *bigram };
        let Some(tier) = self.tier_number(tier) else { return 0 };
        let nodes = self.column_mut(column).nodes();
        nodes.reserve(others.len());
        let Some(slot) = nodes.seek(*node).ok() else { return 0 };
        let Some(place) = nodes.at(slot).map(Node::place) else { return 0 };
        let mut last = Last { id: *node, slot, place, taken: 0, bits: 0, more: others.len() };
        last.taken = self.page_mut(place.page).taken(column);
        let mut count = 0;
        while let Some((id, content)) = next(last.id, count) {
            let Err(slot) = self.column_mut(column).nodes().seek(id) else { break };
            self.follow((column, tier), &mut last, (content, window));
            let nodes = self.column_mut(column).nodes();
            match nodes.at_mut(last.slot) {
                Some(parent) if parent.id() == last.id => parent.children += 1,
                Some(_) | None => {
                    if let Some(parent) = nodes.find_mut(last.id) {
                        parent.children += 1; // another entry moved it on
                    }
                }
            }
            nodes.fill(slot, Node::new(id, LinkParent::Block(last.id), last.place));
            (last.id, last.slot) = (id, slot);
            count += 1;
            last.more -= 1;
        }
        self.page_mut(last.place.page).set_all(column, tier, last.bits);
        if count > 0 {
            self.column_mut(column).add_run(window, tier, u64::try_from(count).unwrap_or(0));
        }
        count
    }

    /// Unlinks blocks that nothing follows and that are held in one tier, as long as they are in
    /// one page. Returns how many.
    fn unlink_row(&mut self, column: u32, deltas: &[Delta]) -> usize {
        let Some(Delta::Unlinked { node, tier }) = deltas.first() else { return 0 };
        let Some(number) = self.tier_number(tier) else { return 0 };
        let Some(first) = self.column(column).filter(|it| !it.has_rings) else { return 0 };
        let Some(in_page) = first.get(*node).map(|node| node.place().page) else { return 0 };
        let page = self.page_mut(in_page);
        let (window, Some(before)) = (page.window, page.only(column, number)) else { return 0 };
        let nodes = self.column_mut(column).nodes();
        let (mut bits, mut count, mut parent_at, mut left) = (before, 0, None, None);
        for delta in deltas {
            let Delta::Unlinked { node: id, tier: other } = delta else { break };
            if left.is_some() || other != tier {
                break;
            }
            let near = parent_at.filter(|at| nodes.at(*at).is_some_and(|node| node.id() == *id));
            let Some(slot) = near.or_else(|| nodes.seek(*id).ok()) else { break };
            let Some(node) = nodes.at(slot).copied() else { break };
            let bit = 1 << node.place().at;
            if node.children > 0 || node.place().page != in_page || bits & bit == 0 {
                break;
            }
            bits &= !bit;
            count += 1;
            nodes.take(slot);
            let LinkParent::Block(parent) = node.parent() else { continue };
            parent_at = nodes.seek(parent).ok().filter(|_| parent != *id);
            let Some(parent) = parent_at.and_then(|at| nodes.at_mut(at)) else { continue };
            parent.children = parent.children.saturating_sub(1);
            let is_held = parent.place().page == in_page && bits & (1 << parent.place().at) != 0;
            left = Some(*parent).filter(|parent| parent.children == 0 && !is_held);
        }
        self.end_unlinked((column, number), (in_page, before & !bits), window, left);
        count
    }

    /// Writes what went from a page; `left` lost what followed it, and may be held elsewhere.
    fn end_unlinked(
        &mut self,
        (column, tier): (u32, TierNumber),
        (in_page, gone): (u32, u64),
        window: Window,
        left: Option<Node>,
    ) {
        if gone == 0 {
            return;
        }
        self.page_mut(in_page).clear_all(column, tier, gone);
        self.column_mut(column).take_run(window, tier, u64::from(gone.count_ones()));
        self.free_if_empty(in_page);
        if let Some(left) = left
            && !self.page_mut(left.place().page).is_held(column, left.place().at)
        {
            self.forget(column, left.id());
        }
    }

    /// Takes the place of a block that follows the last one: nearly always the next in its page.
    fn follow(&mut self, (column, tier): (u32, TierNumber), last: &mut Last, block: (u64, Window)) {
        let page = self.page_mut(last.place.page);
        if page.window == block.1 && take_next(page, last, block.0) {
            last.place.at += 1;
        } else {
            page.set_all(column, tier, last.bits);
            last.place = self.allot(column, Before::Block(last.place), block);
            last.taken = self.page_mut(last.place.page).taken(column);
            last.bits = 0;
        }
        last.bits |= 1 << last.place.at;
    }
}

/// Whether the content is, or is put, behind the last block in its page. If not, it is for
/// [`Tree::allot`] to say where it goes.
fn take_next(page: &mut Page, last: &Last, content: u64) -> bool {
    let at = to_usize(last.place.at) + 1;
    match page.contents.get(at) {
        Some(held) => *held == content && last.taken & (1 << at) == 0,
        None => {
            let is_room = at < PAGE_BLOCKS && page.hooked & (1 << last.place.at) == 0;
            if is_room {
                if page.contents.len() == page.contents.capacity() && last.more > 1 {
                    page.contents.reserve_exact(last.more.min(PAGE_BLOCKS - at));
                }
                page.contents.push(content);
            }
            is_room
        }
    }
}
