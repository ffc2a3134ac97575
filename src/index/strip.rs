//! One strip of a column: what its view told, and where its blocks lie.

use super::page::{Place, TierNumber, Window};
use crate::view::{NodeId, StripParent};

/// Blocks of a strip that follow one another in one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) page: u32,
    /// The first one's number in the page, and in the strip.
    pub(super) at: u8,
    pub(super) from: u8,
}

/// A strip of a column.
#[derive(Clone)]
pub(super) struct Strip {
    pub(super) parent: StripParent,
    pub(super) window: Window,
    pub(super) tier: TierNumber,
    /// The column has a node for each block.
    pub(super) of_nodes: bool,
    /// The blocks that it holds.
    pub(super) live: u64,
    pub(super) keys: Vec<u64>,
    /// Where they lie, as long as it is not of nodes. Nearly always there are one or two parts.
    first: Part,
    pub(super) others: Vec<Part>,
}

impl Strip {
    pub(super) fn new(parent: StripParent, window: Window, tier: TierNumber) -> Strip {
        let (first, others, keys) = (Part { page: 0, at: 0, from: 0 }, Vec::new(), Vec::new());
        Strip { parent, window, tier, of_nodes: false, live: 0, keys, first, others }
    }

    pub(super) fn id(&self, at: u8) -> Option<NodeId> {
        let key = *self.keys.get(usize::from(at))?;
        Some(NodeId { key, block_size: self.window.block_size })
    }

    pub(super) fn len(&self) -> u8 {
        u8::try_from(self.keys.len()).unwrap_or(u8::MAX)
    }

    pub(super) fn parts(&self) -> impl DoubleEndedIterator<Item = Part> + '_ {
        let first = (!self.of_nodes && !self.keys.is_empty()).then_some(self.first);
        first.into_iter().chain(self.others.iter().copied())
    }

    /// For each page, which of its blocks some of the strip's are.
    pub(super) fn pages(&self, bits: u64) -> impl Iterator<Item = (u32, u64)> + '_ {
        let ends = self.parts().skip(1).map(|part| part.from).chain([self.len()]);
        self.parts().zip(ends).map(move |(part, end)| {
            let bits = (bits & first_bits(end)) >> part.from << part.at;
            (part.page, bits)
        })
    }

    pub(super) fn place(&self, at: u8) -> Option<Place> {
        let part = self.parts().rev().find(|part| part.from <= at)?;
        (at < self.len())
            .then(|| Place { page: part.page, at: u32::from(part.at) + u32::from(at - part.from) })
    }

    pub(super) fn push_part(&mut self, part: Part) {
        if part.from == 0 {
            self.first = part;
        } else {
            self.others.reserve_exact(1);
            self.others.push(part);
        }
    }

    pub(super) fn cut(&mut self, left: u8) {
        self.keys.truncate(usize::from(left));
        let stays = self.others.iter().take_while(|part| part.from < left).count();
        self.others.truncate(stays);
    }

    /// The pages that it has blocks in, one of them perhaps twice.
    pub(super) fn all_pages(&self) -> impl Iterator<Item = u32> + '_ {
        self.parts().map(|part| part.page)
    }
}

/// The first so many bits.
pub(super) fn first_bits(count: u8) -> u64 {
    if count == 0 { 0 } else { u64::MAX >> (64 - u32::from(count.min(64))) }
}
