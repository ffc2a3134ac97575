//! The short way of nearly every block: stored where it is new or is what it was, and removed.
//!
//! It does what `fold` does to blocks at full length, for those that need no length. Where that is
//! in doubt it does nothing and says so.

use kvbridge_adapters_api::Removal;
use kvbridge_schemas::{BlockHash, Event, Parent, SnapshotRecord};

use super::{
    View,
    block::{Block, Copies, Plain, Spot, count_down, count_up},
    fold::Output,
    kinds::{Kind, LinkKind},
    link::{Delta, LinkParent, NodeId},
};

/// Events whose blocks are looked for together before they are folded. An engine that generates
/// makes one event for each block, so fewer would be none; more would not fit the caches.
pub(super) const EVENTS_WARMED: usize = 16;

/// The most blocks of a store that is warmed with others.
const STORE_WARMED_MAX: usize = 8;

/// What one store's blocks have in common, and how far it got.
pub(super) struct Run {
    /// The kind of all blocks that follow another, or that are told without places.
    pub(super) kind: Kind,
    /// Its number, held while the run lasts.
    number: Option<u16>,
    /// The last block, while it waits for nothing.
    pub(super) ready: Option<u64>,
}

/// A block's parent and content, as far as they are told.
pub(super) type Told = Option<(LinkParent, u64)>;

impl Run {
    pub(super) fn new(kind: Kind) -> Run {
        Run { kind, number: None, ready: None }
    }
}

impl View {
    /// Looks for the blocks of some events, so that the fold does not wait for each of them.
    pub(super) fn warm(&self, events: &[Event]) {
        let key = |hash: &BlockHash| self.settings.projection.apply(hash);
        for event in events {
            match event {
                // A longer store looks for its blocks itself.
                Event::Stored(it) if it.blocks.len() > STORE_WARMED_MAX => (),
                Event::Stored(it) => {
                    let keys = it.blocks.iter().map(|block| key(&block.hash));
                    self.strips.warm(keys.clone());
                    if !self.blocks.is_empty() {
                        self.blocks.warm(keys);
                    }
                }
                Event::Removed(it) => {
                    self.strips.warm(it.hashes.iter().map(key));
                    if !self.blocks.is_empty() {
                        self.blocks.warm(it.hashes.iter().map(key));
                    }
                }
                Event::Moved(_)
                | Event::Cleared(_)
                | Event::Reset(_)
                | Event::Trust(_)
                | Event::Unknown(_) => (),
            }
        }
    }

    /// Stores a block that is new, or one more copy of a block that is told as before. `false` =
    /// nothing was done.
    pub(super) fn store_plain(
        &mut self,
        (key, hash): (u64, &BlockHash),
        told: Told,
        run: &mut Run,
        out: &mut Output<'_>,
    ) -> bool {
        let before = run.ready.take();
        let (ready, parent) = match told {
            Some((LinkParent::Block(parent), _)) => {
                (before == Some(parent.key) || self.is_ready(parent), parent.key)
            }
            Some((LinkParent::Root(namespace), _)) => (true, namespace),
            None => (true, 0),
        };
        let own_parent = matches!(told, Some((LinkParent::Block(parent), _)) if parent.key == key);
        if !ready || own_parent || !self.bare.is_empty() {
            return false;
        }
        let Some(kind) = self.hold_kind(told, run) else { return false };
        self.note_hash(key, hash);
        let content = told.map_or(0, |(_, content)| content);
        let new = Plain { parent, content, count: 1, kind, parked: false };
        self.blocks.reserve(1);
        let is_new = match self.blocks.seek(key) {
            Err(at) => {
                self.blocks.fill(at, (key, Block::Plain(new)));
                true
            }
            Ok(at) => {
                self.kinds.release(kind); // each block holds it once
                match self.blocks.at_mut(at) {
                    Some((_, Block::Plain(plain))) if plain.is_again(&new) => plain.count += 1,
                    Some((_, Block::Plain(_) | Block::Full(_))) | None => return false,
                }
                false
            }
        };
        self.enter((key, told), is_new, run, out);
        run.ready = Some(key);
        true
    }

    /// The number of a block's kind, held for that block.
    fn hold_kind(&mut self, told: Told, run: &mut Run) -> Option<u16> {
        let link = run.kind.link.as_ref();
        match (told, link) {
            (Some((LinkParent::Root(_), _)), Some(link)) => {
                let link = Some(LinkKind { root: true, ..link.clone() });
                self.kinds.hold(&Kind { link, ..run.kind.clone() })
            }
            (None, Some(_)) => self.kinds.hold(&Kind { link: None, ..run.kind.clone() }),
            (Some(_) | None, _) => {
                self.number(run).inspect(|number| self.kinds.hold_again(*number))
            }
        }
    }

    /// The number of a run's kind, held for the run alone.
    pub(super) fn number(&mut self, run: &mut Run) -> Option<u16> {
        if run.number.is_none() {
            run.number = self.kinds.hold(&run.kind);
        }
        run.number
    }

    /// Accounts for a copy of a plain block.
    fn enter(&mut self, (key, told): (u64, Told), is_new: bool, run: &Run, out: &mut Output<'_>) {
        let Kind { spot, partial, hint, link } = &run.kind;
        let copies = |count| Copies { count, partial: *partial, hint: *hint };
        let before = (!is_new).then(|| copies(1));
        self.totals.change(&spot.tier, before, Some(copies(1 + u32::from(!is_new))));
        if !is_new {
            return;
        }
        self.groups.hold(spot.group);
        count_up(&mut self.totals.blocks, &spot.tier);
        if let (Some((parent, content)), Some(link)) = (told, link) {
            count_up(&mut self.totals.links, &link.block_size);
            let node = NodeId { key, block_size: link.block_size };
            let (bigram, tier) = (link.bigram, spot.tier.clone());
            out.deltas.push(Delta::Linked { node, parent, content, bigram, tier });
        }
    }

    /// Ends a run.
    pub(super) fn end_run(&mut self, run: &Run) {
        if let Some(number) = run.number {
            self.kinds.release(number);
        }
    }

    /// Takes a copy of a plain block away (or all of them); `Some(false)` = there is none, `None` =
    /// nothing was done.
    pub(super) fn drop_plain(
        &mut self,
        key: u64,
        spot: &Spot,
        out: &mut Output<'_>,
    ) -> Option<bool> {
        let Ok(at) = self.blocks.seek(key) else { return Some(false) };
        let Some((_, Block::Plain(plain))) = self.blocks.at_mut(at) else { return None };
        let kind = self.kinds.get(plain.kind)?;
        if kind.spot != *spot {
            return Some(false);
        }
        let copies = |count| Copies { count, partial: kind.partial, hint: kind.hint };
        let before = Some(copies(plain.count));
        if self.settings.removal == Removal::PerCopy && plain.count > 1 {
            plain.count -= 1;
            self.totals.change(&spot.tier, before, Some(copies(plain.count)));
            return Some(true);
        }
        let plain = *plain;
        self.blocks.take(at);
        self.totals.change(&spot.tier, before, None);
        count_down(&mut self.totals.blocks, &spot.tier);
        self.bare.remove(&key);
        self.hashes.remove(key);
        if let Some(link) = &kind.link {
            let node = NodeId { key, block_size: link.block_size };
            count_down(&mut self.totals.links, &link.block_size);
            match link.parent(&plain) {
                LinkParent::Block(parent) if plain.parked => self.parking.remove(parent, key),
                LinkParent::Root(_) | LinkParent::Block(_) => (),
            }
            if !plain.parked && self.groups.match_prefixes(spot.group) {
                out.deltas.push(Delta::Unlinked { node, tier: spot.tier.clone() });
            }
        }
        self.groups.release(spot.group);
        self.kinds.release(plain.kind);
        Some(true)
    }

    /// The parent of a plain block that has a place.
    pub(super) fn parent(&self, plain: &Plain) -> Option<LinkParent> {
        let link = self.kinds.get(plain.kind)?.link.as_ref()?;
        Some(link.parent(plain))
    }

    /// The delta that shows a plain block to prefix matching, if it does.
    pub(super) fn linked(&self, key: u64, plain: &Plain) -> Option<Delta> {
        let Kind { spot, link, .. } = self.kinds.get(plain.kind)?;
        let link = link.as_ref().filter(|_| !plain.parked)?;
        self.groups.match_prefixes(spot.group).then(|| Delta::Linked {
            node: NodeId { key, block_size: link.block_size },
            parent: link.parent(plain),
            content: plain.content,
            bigram: link.bigram,
            tier: spot.tier.clone(),
        })
    }

    /// The record of a plain block.
    pub(super) fn describe_plain(&self, key: u64, plain: &Plain) -> Option<SnapshotRecord> {
        let Kind { spot, partial, hint, link } = self.kinds.get(plain.kind)?;
        let parent = match link.as_ref().map(|link| link.parent(plain)) {
            None => self.bare.get(&key).cloned().unwrap_or(Parent::Unknown),
            Some(LinkParent::Root(_)) => Parent::Root,
            Some(LinkParent::Block(node)) => Parent::Block(self.hash_of(node.key)),
        };
        let link = link.as_ref();
        Some(SnapshotRecord {
            hash: self.hash_of(key),
            parent,
            content: link.map(|_| plain.content),
            block_size: link.map_or(0, |link| link.block_size),
            tier: spot.tier.clone(),
            group: self.groups.describe(spot.group),
            count: plain.count,
            lora: link.and_then(|link| link.lora.as_deref()).map(str::to_owned),
            salt: link.and_then(|link| link.salt.as_deref()).map(str::to_owned),
            extra: None,
            partial: *partial,
            bigram: link.is_some_and(|link| link.bigram),
            parked: plain.parked,
            hint: *hint,
        })
    }
}
