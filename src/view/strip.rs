//! One strip of a view, and where a block lies in it.

use super::link::STRIP_BLOCKS_MAX;

/// A block's place: the strip's number and the block's in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) strip: u32,
    pub(super) at: u8,
}

impl Place {
    pub(super) fn number(self) -> u32 {
        self.strip * 64 + u32::from(self.at)
    }

    pub(super) fn of(number: u32) -> Place {
        Place { strip: number / 64, at: u8::try_from(number % 64).unwrap_or(0) }
    }

    /// The place of the block before it in its strip.
    pub(super) fn before(self) -> Option<Place> {
        Some(Place { at: self.at.checked_sub(1)?, ..self })
    }

    pub(super) fn bit(self) -> u64 {
        1 << self.at
    }
}

/// What comes before a strip's first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    Root(u64),
    /// A block that is in no strip, by its key.
    Block(u64),
    /// A block of a strip, which may have been parted since.
    Strip(Place),
}

#[derive(Clone)]
pub(super) struct Strip {
    pub(super) before: Before,
    /// Key and content of each block.
    pub(super) blocks: Vec<(u64, u64)>,
    /// The blocks that are there.
    pub(super) live: u64,
    /// Blocks that other strips follow, and perhaps some that they followed once.
    pub(super) followed: u64,
    /// How many strips follow.
    pub(super) followers: u32,
    pub(super) kind: u16,
    /// Its blocks are told one by one; it stays for the sake of strips that follow them.
    pub(super) parted: bool,
}

impl Strip {
    pub(super) fn get(&self, at: u8) -> Option<(u64, u64)> {
        self.blocks.get(usize::from(at)).copied()
    }

    /// The keys of some of its blocks.
    pub(super) fn keys_of(&self, bits: u64) -> Vec<u64> {
        let named = (0_u8..).zip(&self.blocks).filter(|(at, _)| bits >> at & 1 == 1);
        named.map(|(_, (key, _))| *key).collect()
    }

    pub(super) fn len(&self) -> u8 {
        u8::try_from(self.blocks.len()).unwrap_or(u8::MAX)
    }
}

/// The first so many bits.
pub(super) fn first_bits(count: usize) -> u64 {
    match u32::try_from(STRIP_BLOCKS_MAX.saturating_sub(count)) {
        Ok(rest) if count > 0 => u64::MAX >> rest,
        Ok(_) | Err(_) => 0,
    }
}
