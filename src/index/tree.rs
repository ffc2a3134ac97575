//! The linked blocks of all replicas of a model, content by content, from the roots of namespaces.
//!
//! What replicas hold alike is there once: a page has the contents of blocks that follow one
//! another, and for each replica that has any of them (its *column*) a bit for each. A block that
//! follows another one but not in its page begins a page that is *hooked* to the other's place.
//!
//! A block of a column has one place as long as the column knows it. Two blocks of one column with
//! the same parent and the same content, which an engine hashed apart, have two places (*twins*):
//! what follows one does not follow the other. A column also knows blocks that it does not hold, if
//! others of its blocks follow them: a walk cannot pass a hole, and passes again the moment the
//! hole is filled.

use std::collections::BTreeMap;

use hashbrown::HashTable;
use kvbridge_schemas::Tier;

use super::{
    column::{Column, Node},
    page::{Before, KNOWN, PAGE_BLOCKS, Page, Place, TierNumber, Window, to_usize},
};
use crate::{
    maps::{keyed::mix, push_slim},
    view::{Delta, LinkParent, NodeId},
};

/// Names of tiers per model: as many as their numbers have values beside [`KNOWN`]. Engines make
/// names up. Policy beyond: blocks in another tier are never a match.
const TIERS_MAX: usize = 255;

/// The number of [`Tier::Device`], which every tree knows.
pub(super) const DEVICE: TierNumber = 0;

/// A page by what comes before it and its first content.
#[derive(Clone, Copy)]
struct Hook {
    before: Before,
    content: u64,
    page: u32,
}

/// What follows a place, as far as it can be said at once.
pub(super) enum Next {
    Nothing,
    One(Place),
    /// One, none or twins.
    Perhaps,
}

pub(super) struct Tree {
    pages: Vec<Page>,
    free_pages: Vec<u32>,
    hooks: HashTable<Hook>,
    columns: Vec<Column>,
    free_columns: Vec<u32>,
    tiers: Vec<Tier>,
    tier_numbers: BTreeMap<Tier, TierNumber>,
}

impl Default for Tree {
    fn default() -> Tree {
        Tree {
            pages: Vec::new(),
            free_pages: Vec::new(),
            hooks: HashTable::new(),
            columns: Vec::new(),
            free_columns: Vec::new(),
            tiers: vec![Tier::Device],
            tier_numbers: BTreeMap::from([(Tier::Device, DEVICE)]),
        }
    }
}

impl Tree {
    /// Pages in use.
    #[cfg(test)]
    pub(super) fn page_count(&self) -> usize {
        self.pages.len() - self.free_pages.len()
    }

    /// A new column without blocks.
    pub(super) fn add_column(&mut self) -> u32 {
        if let Some(number) = self.free_columns.pop() {
            return number;
        }
        self.columns.push(Column::default());
        u32::try_from(self.columns.len() - 1).unwrap_or(u32::MAX)
    }

    pub(super) fn column(&self, number: u32) -> Option<&Column> {
        self.columns.get(to_usize(number))
    }

    pub(super) fn page(&self, number: u32) -> Option<&Page> {
        self.pages.get(to_usize(number))
    }

    pub(super) fn tier(&self, number: TierNumber) -> Option<&Tier> {
        self.tiers.get(usize::from(number))
    }

    pub(super) fn tier_number(&self, tier: &Tier) -> Option<TierNumber> {
        if *tier == Tier::Device {
            return Some(DEVICE); // nearly always
        }
        self.tier_numbers.get(tier).copied()
    }

    /// Changes one column as its view says. [`Delta::Cleared`] is not for here: a column that is
    /// cleared is another column.
    pub(super) fn apply(&mut self, column: u32, delta: &Delta) {
        match delta {
            Delta::Linked { node, parent, content, bigram, tier } => {
                let window = Window { block_size: node.block_size, bigram: *bigram };
                if let Some(tier) = self.number_tier(tier) {
                    self.link(column, (*node, *parent), (*content, window), tier);
                }
            }
            Delta::Unlinked { node, tier } => {
                if let Some(tier) = self.tier_number(tier) {
                    self.unlink(column, *node, tier);
                }
            }
            Delta::Strip { number, change } => self.apply_strip(column, *number, change),
            Delta::Cleared => debug_assert!(false, "a cleared column is another column"),
        }
    }

    /// What a column's block covers, while it holds it.
    pub(super) fn content(&self, column: u32, id: &NodeId) -> Option<u64> {
        let place = self.column(column)?.get(*id)?.place();
        let page = self.page(place.page)?;
        page.is_held(column, place.at).then(|| page.content(place.at))?
    }

    /// Brings what is known of some blocks of a column close to the processor, all at once: asked
    /// one after the other, each would be waited for. It changes nothing.
    pub(super) fn warm(&self, column: u32, deltas: &[Delta]) {
        let Some(of) = self.column(column) else { return };
        of.warm(deltas.iter().filter_map(|delta| match delta {
            Delta::Linked { node, .. } | Delta::Unlinked { node, .. } => Some(*node),
            Delta::Strip { .. } | Delta::Cleared => None,
        }));
    }

    pub(super) fn number_tier(&mut self, tier: &Tier) -> Option<TierNumber> {
        if let Some(number) = self.tier_number(tier) {
            return Some(number);
        }
        let number =
            u8::try_from(self.tiers.len()).ok().filter(|_| self.tiers.len() < TIERS_MAX)?;
        self.tiers.push(tier.clone());
        self.tier_numbers.insert(tier.clone(), number);
        Some(number)
    }

    pub(super) fn link(
        &mut self,
        column: u32,
        (id, parent): (NodeId, LinkParent),
        block: (u64, Window),
        tier: TierNumber,
    ) {
        let known = self.columns[to_usize(column)].get(id).copied();
        let place = match known {
            Some(node) if self.is_at(&node, parent, block) => node.place(),
            Some(node) => {
                let held = self.pages[to_usize(node.place().page)].is_held(column, node.place().at);
                debug_assert!(!held, "a view moves no linked block");
                self.move_node(column, id, parent, block)
            }
            None => {
                let before = self.before(column, id, parent, block.1);
                let place = self.allot(column, before, block);
                self.columns[to_usize(column)].add(Node::new(id, parent, place));
                place
            }
        };
        let page = &mut self.pages[to_usize(place.page)];
        let was_held = known.is_some() && page.is_held(column, place.at);
        let columns = &mut self.columns[to_usize(column)];
        if page.set(column, tier, place.at) {
            columns.add_tier(tier);
        }
        if !was_held {
            columns.add_window(block.1);
            if known.is_some() {
                page.clear(column, KNOWN, place.at);
            }
        }
    }

    fn is_at(&self, node: &Node, parent: LinkParent, (content, window): (u64, Window)) -> bool {
        let page = &self.pages[to_usize(node.place().page)];
        let same = page.window == window && page.content(node.place().at) == Some(content);
        same && !node.awaited && node.parent() == parent
    }

    /// The place before a block; a parent that is not known is awaited from now on.
    pub(super) fn before(
        &mut self,
        column: u32,
        id: NodeId,
        parent: LinkParent,
        window: Window,
    ) -> Before {
        let parent = match parent {
            LinkParent::Root(namespace) => return Before::Root(namespace),
            LinkParent::Block(parent) if parent == id => return Before::Nowhere,
            LinkParent::Block(parent) => parent,
        };
        if let Some(node) = self.columns[to_usize(column)].get_mut(parent) {
            node.children += 1;
            return Before::Block(node.place());
        }
        let place = self.allot(column, Before::Nowhere, (0, window));
        self.pages[to_usize(place.page)].set(column, KNOWN, place.at);
        let mut node = Node::new(parent, LinkParent::Root(0), place);
        (node.awaited, node.children) = (true, 1);
        self.columns[to_usize(column)].add(node);
        Before::Block(place)
    }

    /// A place for a block of the column: one where others have it, if there is one.
    pub(super) fn allot(
        &mut self,
        column: u32,
        before: Before,
        (content, window): (u64, Window),
    ) -> Place {
        let is_taken = |place: Place| self.pages[to_usize(place.page)].is_taken(column, place.at);
        let mut twin = false;
        match self.only_next(before, content, window) {
            Next::One(place) if !is_taken(place) => return place,
            Next::One(_) => twin = true,
            Next::Nothing => (),
            Next::Perhaps => {
                for place in self.next(before, content, window) {
                    if !is_taken(place) {
                        return place;
                    }
                    twin = true;
                }
            }
        }
        if let Before::Block(last) = before {
            let page = &mut self.pages[to_usize(last.page)];
            if twin {
                page.twins |= 1 << last.at;
            }
            let length = page.contents.len();
            if to_usize(last.at) + 1 == length && length < PAGE_BLOCKS && page.window == window {
                page.contents.push(content);
                return Place { page: last.page, at: last.at + 1 };
            }
            page.hooked |= 1 << last.at;
        }
        let page = self.add_page(Page::new(before, window, content));
        if let Before::Block(last) = before {
            self.page_mut(last.page).look_ahead(last.at, page);
        }
        if before != Before::Nowhere {
            let hash = |hook: &Hook| hook_hash(hook.before, hook.content);
            let hook = Hook { before, content, page };
            self.hooks.insert_unique(hash(&hook), hook, hash);
        }
        Place { page, at: 0 }
    }

    /// The place of that content that follows another one, if that can be said without a look-up.
    pub(super) fn only_next(&self, before: Before, content: u64, window: Window) -> Next {
        let place = match before {
            Before::Root(_) => return Next::Perhaps,
            Before::Nowhere => return Next::Nothing,
            Before::Block(place) => place,
        };
        let Some(page) = self.page(place.page) else { return Next::Nothing };
        let (bit, at) = (1 << place.at, place.at + 1);
        if page.twins & bit != 0 {
            return Next::Perhaps;
        }
        if page.window == window && page.content(at) == Some(content) {
            return Next::One(Place { page: place.page, at });
        }
        if page.hooked & bit == 0 {
            return Next::Nothing;
        }
        let is_ahead = |ahead: &Page| {
            ahead.before == before && ahead.window == window && ahead.content(0) == Some(content)
        };
        match self.page(page.ahead).filter(|ahead| is_ahead(ahead)) {
            Some(_) => Next::One(Place { page: page.ahead, at: 0 }),
            None => Next::Perhaps,
        }
    }

    /// The places of that content that follow another one: nearly always one or none.
    pub(super) fn next(
        &self,
        before: Before,
        content: u64,
        window: Window,
    ) -> impl Iterator<Item = Place> + '_ {
        let (mut beside, mut look_up) = (None, before != Before::Nowhere);
        if let Before::Block(place) = before
            && let Some(page) = self.page(place.page)
        {
            let at = place.at + 1;
            let is_next = page.window == window && page.content(at) == Some(content);
            beside = is_next.then_some(Place { page: place.page, at });
            let of = if is_next { page.twins } else { page.hooked };
            look_up = of & (1 << place.at) != 0;
        }
        let hash = hook_hash(before, content);
        let hooked = look_up.then(|| self.hooks.iter_hash(hash)).into_iter().flatten();
        let fits = move |hook: &&Hook| hook.before == before && hook.content == content;
        let pages = hooked.filter(fits).map(|hook| hook.page);
        let pages = pages.filter(move |page| self.pages[to_usize(*page)].window == window);
        beside.into_iter().chain(pages.map(|page| Place { page, at: 0 }))
    }

    fn add_page(&mut self, page: Page) -> u32 {
        if let Some(number) = self.free_pages.pop() {
            self.pages[to_usize(number)] = page;
            return number;
        }
        push_slim(&mut self.pages, page);
        u32::try_from(self.pages.len() - 1).unwrap_or(u32::MAX)
    }

    pub(super) fn free_if_empty(&mut self, number: u32) {
        let page = &mut self.pages[to_usize(number)];
        let Some(content) = page.contents.first().copied().filter(|_| page.is_empty()) else {
            return;
        };
        let before = std::mem::replace(&mut page.before, Before::Nowhere);
        (page.contents, page.hooked, page.twins, page.ahead) = (Vec::new(), 0, 0, u32::MAX);
        let this = |hook: &Hook| hook.page == number;
        if let Ok(hook) = self.hooks.find_entry(hook_hash(before, content), this) {
            hook.remove();
        }
        self.free_pages.push(number);
    }

    /// Takes a column's blocks out of some pages. When all of its pages were named, the column is
    /// to be given back.
    pub(super) fn clear_pages(&mut self, column: u32, pages: &[u32]) {
        for page in pages {
            self.pages[to_usize(*page)].forget(column);
            self.free_if_empty(*page);
        }
    }

    /// Gives a column back that has no blocks in any page. What it was is for the caller to free.
    pub(super) fn free_column(&mut self, column: u32) -> Column {
        self.free_columns.push(column);
        std::mem::take(self.column_mut(column))
    }

    pub(super) fn column_mut(&mut self, column: u32) -> &mut Column {
        &mut self.columns[to_usize(column)]
    }

    pub(super) fn page_mut(&mut self, page: u32) -> &mut Page {
        &mut self.pages[to_usize(page)]
    }
}

fn hook_hash(before: Before, content: u64) -> u64 {
    let before = match before {
        Before::Root(namespace) => !namespace,
        Before::Block(place) => u64::from(place.page) << 6 | u64::from(place.at),
        Before::Nowhere => 0,
    };
    mix(mix(before) ^ content)
}
