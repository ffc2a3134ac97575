//! Blocks that turn out to be elsewhere than was thought, with all that follows them.
//!
//! It happens where a block comes after those that follow it, or with another place than the one it
//! had before it went. Both are rare, so it may look at all blocks of the column.

use std::collections::BTreeSet;

use super::{
    page::{Before, Place, TierNumber, Window},
    tree::Tree,
};
use crate::view::{LinkParent, NodeId};

impl Tree {
    /// Moves a known block, and what follows it, to where its view says that it is. Returns its
    /// place.
    pub(super) fn move_node(
        &mut self,
        column: u32,
        id: NodeId,
        parent: LinkParent,
        (content, window): (u64, Window),
    ) -> Place {
        self.part_all(column);
        let moved = self.followers(column, id);
        let ring = matches!(parent, LinkParent::Block(parent) if moved.contains(&parent));
        let mut before = self.before(column, id, parent, window);
        if ring {
            before = Before::Nowhere; // a block that comes before itself is in no sequence
            self.column_mut(column).has_rings = true;
        }
        let mut emptied = BTreeSet::new();
        let mut left = None;
        for (number, each) in moved.iter().enumerate() {
            let Some(node) = self.column(column).and_then(|it| it.get(*each)).copied() else {
                continue;
            };
            let old = node.place();
            let old_page = self.page_mut(old.page);
            let tiers: Vec<TierNumber> = old_page.tiers(column, old.at).collect();
            let block = (old_page.content(old.at).unwrap_or(0), old_page.window);
            for tier in &tiers {
                old_page.clear(column, *tier, old.at);
            }
            emptied.insert(old.page);
            let place = if number == 0 {
                left = Some(node.parent());
                self.allot(column, before, (content, window))
            } else {
                let before = self.place_of_parent(column, node.parent());
                self.allot(column, before, block)
            };
            let page = self.page_mut(place.page);
            for tier in &tiers {
                page.set(column, *tier, place.at);
            }
            if let Some(node) = self.column_mut(column).get_mut(*each) {
                node.set_place(place);
                if number == 0 {
                    node.moved_to(parent);
                }
            }
        }
        emptied.into_iter().for_each(|page| self.free_if_empty(page));
        if let Some(lonely) = left.and_then(|parent| self.leave_parent(column, id, parent)) {
            self.forget(column, lonely);
        }
        let node = self.column(column).and_then(|it| it.get(id)).copied();
        node.map_or(Place { page: 0, at: 0 }, |node| node.place())
    }

    fn place_of_parent(&self, column: u32, parent: LinkParent) -> Before {
        match parent {
            LinkParent::Root(namespace) => Before::Root(namespace),
            LinkParent::Block(id) => {
                let node = self.column(column).and_then(|it| it.get(id));
                node.map_or(Before::Nowhere, |node| Before::Block(node.place()))
            }
        }
    }

    /// The block and all that follow it, parents first, each once.
    fn followers(&self, column: u32, id: NodeId) -> Vec<NodeId> {
        let Some(by_parent) = self.column(column).map(super::column::Column::by_parent) else {
            return Vec::new();
        };
        let (mut found, mut seen, mut next) = (vec![id], BTreeSet::from([id]), 0);
        while let Some(parent) = found.get(next).copied().map(LinkParent::Block) {
            next += 1;
            let from = by_parent.partition_point(|(other, _)| *other < parent);
            let children = by_parent[from..].iter().take_while(|(other, _)| *other == parent);
            found.extend(children.map(|(_, child)| *child).filter(|child| seen.insert(*child)));
        }
        found
    }
}
