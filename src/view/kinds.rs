//! What many blocks say alike, told once.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    block::{Block, Copies, Full, Plain, Spot},
    link::{Link, LinkParent, NodeId},
};

/// How many kinds a view tells apart: as many as their numbers have values. Each salt makes one.
/// Policy beyond: blocks are kept at full length.
const KINDS_MAX: usize = 1 << u16::BITS;

/// All of a [`Plain`] block that is not its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kind {
    pub(super) spot: Spot,
    pub(super) partial: bool,
    pub(super) hint: bool,
    /// `None` = no store told its place.
    pub(super) link: Option<LinkKind>,
}

/// What the blocks of one sequence have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LinkKind {
    pub(super) block_size: u32,
    pub(super) root: bool,
    pub(super) bigram: bool,
    pub(super) lora: Option<Arc<str>>,
    pub(super) salt: Option<Arc<str>>,
}

/// The kinds of all plain blocks of a view, as long as there is a block of each.
#[derive(Clone, Default)]
pub(super) struct Kinds {
    numbers: BTreeMap<Arc<Kind>, u16>,
    kinds: Vec<Option<(Arc<Kind>, u64)>>,
    free: Vec<u16>,
    /// The number that was asked for last: most stores are of one kind.
    last: u16,
}

impl Kinds {
    pub(super) fn get(&self, number: u16) -> Option<&Kind> {
        self.kinds.get(usize::from(number))?.as_ref().map(|(kind, _)| &**kind)
    }

    /// The number of a kind that one more block has; `None` if there are too many.
    pub(super) fn hold(&mut self, kind: &Kind) -> Option<u16> {
        let is_last = self.get(self.last) == Some(kind);
        let known = if is_last { Some(self.last) } else { self.numbers.get(kind).copied() };
        if let Some(number) = known {
            self.last = number;
            self.hold_again(number);
            return Some(number);
        }
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                let next = Some(self.kinds.len()).filter(|len| *len < KINDS_MAX)?;
                self.kinds.push(None);
                u16::try_from(next).ok()?
            }
        };
        let kind = Arc::new(kind.clone());
        self.numbers.insert(Arc::clone(&kind), number);
        self.kinds[usize::from(number)] = Some((kind, 1));
        Some(number)
    }

    /// One more block has a kind that is held already.
    pub(super) fn hold_again(&mut self, number: u16) {
        self.hold_more(number, 1);
    }

    /// So many more blocks have a kind that is held already.
    pub(super) fn hold_more(&mut self, number: u16, more: u64) {
        if let Some(Some((_, blocks))) = self.kinds.get_mut(usize::from(number)) {
            *blocks += more;
        }
    }

    /// One block less has it; a kind without blocks is forgotten.
    pub(super) fn release(&mut self, number: u16) {
        self.release_more(number, 1);
    }

    /// So many blocks less have it.
    pub(super) fn release_more(&mut self, number: u16, less: u64) {
        let Some(held) = self.kinds.get_mut(usize::from(number)) else { return };
        let Some((kind, blocks)) = held else { return };
        *blocks -= less;
        if *blocks == 0 {
            self.numbers.remove(&**kind);
            *held = None;
            self.free.push(number);
        }
    }

    /// The block at full length. A plain block's kind stays held.
    pub(super) fn expand(&self, block: &Block) -> Full {
        let plain = match block {
            Block::Full(full) => return Full::clone(full),
            Block::Plain(plain) => plain,
        };
        let mut full = Full::default();
        let Some(kind) = self.get(plain.kind) else { return full };
        let copies = Copies { count: plain.count, partial: kind.partial, hint: kind.hint };
        full.copies.insert(kind.spot.clone(), copies);
        if let Some(link) = &kind.link {
            full.links.insert(link.block_size, link.link(plain));
        }
        full
    }

    /// The block in few bytes, its kind held, if that can say all of it.
    pub(super) fn pack(&mut self, full: &Full) -> Option<Plain> {
        let (mut copies, mut links) = (full.copies.iter(), full.links.iter());
        let (Some((spot, copies)), None) = (copies.next(), copies.next()) else { return None };
        let (link, None) = (links.next(), links.next()) else { return None };
        if link.is_some_and(|(_, link)| link.extra.is_some() || link.described.is_some()) {
            return None;
        }
        let (partial, hint) = (copies.partial, copies.hint);
        let of = |(block_size, link): (&u32, &Link)| LinkKind::of(*block_size, link);
        let kind = Kind { spot: spot.clone(), partial, hint, link: link.map(of) };
        let link = link.map(|(_, link)| link);
        let parent = link.map_or(0, |link| match link.parent {
            LinkParent::Root(namespace) => namespace,
            LinkParent::Block(node) => node.key,
        });
        Some(Plain {
            parent,
            content: link.map_or(0, |link| link.content),
            count: copies.count,
            kind: self.hold(&kind)?,
            parked: link.is_some_and(|link| link.parked),
        })
    }
}

impl LinkKind {
    fn of(block_size: u32, link: &Link) -> LinkKind {
        let root = matches!(link.parent, LinkParent::Root(_));
        let (lora, salt) = (link.lora.clone(), link.salt.clone());
        LinkKind { block_size, root, bigram: link.bigram, lora, salt }
    }

    pub(super) fn parent(&self, plain: &Plain) -> LinkParent {
        if self.root {
            LinkParent::Root(plain.parent)
        } else {
            LinkParent::Block(NodeId { key: plain.parent, block_size: self.block_size })
        }
    }

    fn link(&self, plain: &Plain) -> Link {
        Link {
            parent: self.parent(plain),
            content: plain.content,
            extra: None,
            bigram: self.bigram,
            lora: self.lora.clone(),
            salt: self.salt.clone(),
            parked: plain.parked,
            described: None,
        }
    }
}
