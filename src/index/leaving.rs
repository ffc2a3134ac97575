//! Blocks that go, and blocks that are known for their sake.

use super::{
    page::{KNOWN, TierNumber},
    tree::Tree,
};
use crate::view::{LinkParent, NodeId};

impl Tree {
    pub(super) fn unlink(&mut self, column: u32, id: NodeId, tier: TierNumber) {
        let nodes = self.column_mut(column).nodes();
        let Ok(slot) = nodes.seek(id) else { return };
        let Some(node) = nodes.at(slot).copied() else { return };
        let place = node.place();
        let page = self.page_mut(place.page);
        if !page.clear(column, tier, place.at) {
            return;
        }
        let held = page.is_held(column, place.at);
        let window = page.window;
        let columns = self.column_mut(column);
        columns.take_tier(tier);
        if held {
            return;
        }
        columns.take_window(window);
        if node.children > 0 {
            self.page_mut(place.page).set(column, KNOWN, place.at);
            if self.is_lost_ring(column, id) {
                self.forget(column, id);
            }
            return;
        }
        self.column_mut(column).nodes().take(slot);
        self.free_if_empty(place.page);
        if let Some(lonely) = self.leave_parent(column, id, node.parent()) {
            self.forget(column, lonely);
        }
    }

    /// Whether the block is in a ring of blocks that follow one another, none of which the column
    /// holds and nothing else follows. A hostile stream can make rings; no walk ever reaches one,
    /// and each of its blocks would be known for the sake of the next for ever.
    fn is_lost_ring(&self, column: u32, id: NodeId) -> bool {
        let Some(column_of) = self.column(column).filter(|it| it.has_rings) else { return false };
        let mut at = id;
        while let Some(node) = column_of.get(at) {
            let held =
                self.page(node.place().page).is_some_and(|it| it.is_held(column, node.place().at));
            match node.parent() {
                LinkParent::Block(parent) if parent != at && node.children == 1 && !held => {
                    at = parent;
                }
                LinkParent::Root(_) | LinkParent::Block(_) => return false,
            }
            if at == id {
                return true;
            }
        }
        false
    }

    /// Forgets a block that nothing follows, and those before it that were known for its sake.
    pub(super) fn forget(&mut self, column: u32, id: NodeId) {
        let mut next = Some(id);
        while let Some(node) = next.and_then(|id| self.column_mut(column).remove(id)) {
            let page = self.page_mut(node.place().page);
            page.clear(column, KNOWN, node.place().at);
            self.free_if_empty(node.place().page);
            next = self.leave_parent(column, node.id(), node.parent());
        }
    }

    /// One block less follows the parent; the parent, if nobody needs it any more.
    pub(super) fn leave_parent(
        &mut self,
        column: u32,
        child: NodeId,
        parent: LinkParent,
    ) -> Option<NodeId> {
        let LinkParent::Block(id) = parent else { return None };
        if id == child {
            return None; // it never counted itself
        }
        let node = self.column_mut(column).get_mut(id)?;
        node.children = node.children.saturating_sub(1);
        let node = *node;
        if node.children > 0 {
            return self.is_lost_ring(column, id).then_some(id);
        }
        let page = self.page(node.place().page)?;
        (!page.is_held(column, node.place().at)).then_some(id)
    }
}
