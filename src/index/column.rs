//! One replica's blocks in the tree, by the names its view gives them.

use super::{
    page::{Place, TierNumber, Window, to_usize},
    strip::Strip,
};
use crate::{
    maps::{
        keyed::spread,
        push_slim,
        table::{Entry, Table},
        vec_map::VecMap,
    },
    view::{LinkParent, NodeId},
};

/// A block that the column holds, or knows because others follow it.
#[derive(Clone, Copy)]
pub(super) struct Node {
    pub(super) key: u64,
    /// The parent's key, or the namespace.
    parent: u64,
    page: u32,
    /// How many blocks of the column name it as their parent.
    pub(super) children: u32,
    block_size: u32,
    /// In the page. A byte, and not a [`Place`]: a node has 32 bytes.
    at: u8,
    root: bool,
    /// Never linked itself: it stands where the block would that others name as their parent.
    pub(super) awaited: bool,
}

// It fills one slot of a table, which is half a line of a processor's cache.
const _: () = assert!(size_of::<Option<Node>>() == 32, "nodes are small");

impl Node {
    pub(super) fn new(id: NodeId, parent: LinkParent, place: Place) -> Node {
        let (root, parent) = match parent {
            LinkParent::Root(namespace) => (true, namespace),
            LinkParent::Block(parent) => (false, parent.key),
        };
        let (key, block_size) = (id.key, id.block_size);
        let (page, children, awaited) = (place.page, 0, false);
        let mut node = Node { key, parent, page, children, block_size, at: 0, root, awaited };
        node.set_place(place);
        node
    }

    pub(super) fn place(&self) -> Place {
        Place { page: self.page, at: self.at.into() }
    }

    pub(super) fn set_place(&mut self, place: Place) {
        (self.page, self.at) = (place.page, u8::try_from(place.at).unwrap_or(u8::MAX));
    }

    /// It is linked, and to that parent.
    pub(super) fn moved_to(&mut self, parent: LinkParent) {
        *self = Node { children: self.children, ..Node::new(self.id(), parent, self.place()) };
    }

    pub(super) fn id(&self) -> NodeId {
        NodeId { key: self.key, block_size: self.block_size }
    }

    pub(super) fn parent(&self) -> LinkParent {
        if self.root {
            LinkParent::Root(self.parent)
        } else {
            LinkParent::Block(NodeId { key: self.parent, block_size: self.block_size })
        }
    }
}

/// The blocks of one replica, in one version of its data.
#[derive(Default)]
pub(super) struct Column {
    nodes: Table<Node>,
    /// By the numbers that the view gives them.
    strips: Vec<Option<Strip>>,
    /// How many blocks are held with each window, and in each tier.
    pub(super) windows: VecMap<Window, u64>,
    pub(super) tiers: VecMap<TierNumber, u64>,
    /// Blocks were told to come before themselves, through others.
    pub(super) has_rings: bool,
    /// How often the keys of `windows` or `tiers` changed.
    shape: u64,
}

impl Column {
    pub(super) fn get(&self, id: NodeId) -> Option<&Node> {
        self.nodes.find(id)
    }

    pub(super) fn get_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.nodes.find_mut(id)
    }

    /// Adds a node that is not there.
    pub(super) fn add(&mut self, node: Node) {
        let old = self.nodes.put(node);
        debug_assert!(old.is_none(), "a node is added once");
    }

    pub(super) fn remove(&mut self, id: NodeId) -> Option<Node> {
        self.nodes.remove(id)
    }

    /// The nodes by their slots, for whoever looks one up once for all that is done with it.
    pub(super) fn nodes(&mut self) -> &mut Table<Node> {
        &mut self.nodes
    }

    /// Brings the places of some nodes close to the processor.
    pub(super) fn warm(&self, ids: impl Iterator<Item = NodeId>) {
        self.nodes.warm(ids);
    }

    pub(super) fn has_no_nodes(&self) -> bool {
        self.nodes.is_empty()
    }

    #[cfg(test)]
    pub(super) fn node_count(&self) -> usize {
        self.nodes.len() + self.strips.iter().flatten().count()
    }

    pub(super) fn strip(&self, number: u32) -> Option<&Strip> {
        self.strips.get(to_usize(number))?.as_ref()
    }

    pub(super) fn strip_mut(&mut self, number: u32) -> Option<&mut Strip> {
        self.strips.get_mut(to_usize(number))?.as_mut()
    }

    pub(super) fn take_strip(&mut self, number: u32) -> Option<Strip> {
        self.strips.get_mut(to_usize(number))?.take()
    }

    /// Puts a strip under its number. A view gives numbers one after the other.
    pub(super) fn put_strip(&mut self, number: u32, strip: Strip) {
        let at = to_usize(number);
        while at >= self.strips.len() {
            push_slim(&mut self.strips, None);
        }
        if let Some(slot) = self.strips.get_mut(at) {
            *slot = Some(strip);
        }
    }

    /// One more than the highest number of a strip.
    pub(super) fn strip_numbers(&self) -> u32 {
        u32::try_from(self.strips.len()).unwrap_or(u32::MAX)
    }

    /// One more block with that window.
    pub(super) fn add_window(&mut self, window: Window) {
        self.shape += u64::from(add(&mut self.windows, window, 1));
    }

    /// One more block in that tier.
    pub(super) fn add_tier(&mut self, tier: TierNumber) {
        self.shape += u64::from(add(&mut self.tiers, tier, 1));
    }

    /// So many more blocks with that window and in that tier.
    pub(super) fn add_run(&mut self, window: Window, tier: TierNumber, blocks: u64) {
        self.shape += u64::from(add(&mut self.windows, window, blocks));
        self.shape += u64::from(add(&mut self.tiers, tier, blocks));
    }

    /// One block less with that window.
    pub(super) fn take_window(&mut self, window: Window) {
        self.shape += u64::from(take(&mut self.windows, &window, 1));
    }

    /// One block less in that tier.
    pub(super) fn take_tier(&mut self, tier: TierNumber) {
        self.shape += u64::from(take(&mut self.tiers, &tier, 1));
    }

    /// So many blocks less with that window and in that tier.
    pub(super) fn take_run(&mut self, window: Window, tier: TierNumber, blocks: u64) {
        self.shape += u64::from(take(&mut self.windows, &window, blocks));
        self.shape += u64::from(take(&mut self.tiers, &tier, blocks));
    }

    /// Differs when other windows or tiers are in use than before.
    pub(super) fn shape(&self) -> u64 {
        self.shape
    }

    /// All nodes in the order of their parents.
    pub(super) fn by_parent(&self) -> Vec<(LinkParent, NodeId)> {
        let mut all: Vec<_> = self.nodes.iter().map(|node| (node.parent(), node.id())).collect();
        all.sort_unstable();
        all
    }

    /// The pages of all nodes, each once.
    pub(super) fn pages(&self) -> Vec<u32> {
        let mut pages: Vec<u32> = self.nodes.iter().map(|node| node.page).collect();
        pages.extend(self.strips.iter().flatten().flat_map(Strip::all_pages));
        pages.sort_unstable();
        pages.dedup();
        pages
    }
}

impl Entry for Node {
    type Key = NodeId;

    fn key(&self) -> NodeId {
        self.id()
    }

    fn hash(id: NodeId) -> u64 {
        spread(id.key ^ u64::from(id.block_size))
    }
}

/// So many more of that; whether there was none.
fn add<K: Ord>(counts: &mut VecMap<K, u64>, key: K, more: u64) -> bool {
    let count = counts.or_default(key);
    *count += more;
    *count == more
}

/// So many less of that; whether they were the last ones.
fn take<K: Ord>(counts: &mut VecMap<K, u64>, key: &K, less: u64) -> bool {
    let Some(count) = counts.get_mut(key) else { return false };
    *count -= less;
    let was_last = *count == 0;
    if was_last {
        counts.remove(key);
    }
    was_last
}
