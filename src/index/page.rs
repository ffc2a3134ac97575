//! Blocks that follow one another, and which columns hold them.

use std::ops::Range;

/// Blocks per page: as many as a row has bits.
pub(super) const PAGE_BLOCKS: usize = 64;

/// How many tokens a block's content hash covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Window {
    pub(super) block_size: u32,
    /// One token more than the block size (EAGLE pairs).
    pub(super) bigram: bool,
}

/// A block's place: the page's number and the block's in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) page: u32,
    pub(super) at: u32,
}

/// What comes before a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// Nothing: it begins a sequence in that namespace.
    Root(u64),
    Block(Place),
    /// Not known: no walk comes here.
    Nowhere,
}

/// The number of a tier's name. [`KNOWN`] is none.
pub(super) type TierNumber = u8;

/// In place of a tier: the column knows a block here that it does not hold, because of others that
/// follow it.
pub(super) const KNOWN: TierNumber = TierNumber::MAX;

/// Which blocks of a page one column holds in one tier, a bit each.
pub(super) struct Row {
    pub(super) column: u32,
    pub(super) tier: TierNumber,
    pub(super) bits: u64,
}

/// What one column has of a page.
pub(super) struct Own<'a>(&'a [Row]);

impl Own<'_> {
    /// The blocks that it holds in a tier, a bit each.
    pub(super) fn bits(&self, tier: TierNumber) -> u64 {
        self.0.iter().find(|row| row.tier == tier).map_or(0, |row| row.bits)
    }
}

/// Up to 64 blocks in a row. A block's place never moves while a column knows a block there.
pub(super) struct Page {
    pub(super) before: Before,
    pub(super) window: Window,
    pub(super) contents: Vec<u64>,
    /// By column, then tier; none without bits.
    rows: Vec<Row>,
    /// Blocks that pages follow, beside the next block here.
    pub(super) hooked: u64,
    /// Blocks that two or more blocks of one content follow.
    pub(super) twins: u64,
    /// A page that was hooked here, most likely where a walk goes on. It may have gone since.
    pub(super) ahead: u32,
}

impl Page {
    pub(super) fn new(before: Before, window: Window, content: u64) -> Page {
        let (contents, rows) = (vec![content], Vec::new());
        Page { before, window, contents, rows, hooked: 0, twins: 0, ahead: u32::MAX }
    }

    /// Remembers a page that was hooked to a place: rather to the last one, where most go on.
    pub(super) fn look_ahead(&mut self, at: u32, page: u32) {
        if self.ahead == u32::MAX || to_usize(at) + 1 == self.contents.len() {
            self.ahead = page;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn content(&self, at: u32) -> Option<u64> {
        self.contents.get(to_usize(at)).copied()
    }

    /// Sets a bit; `false` if it was set.
    pub(super) fn set(&mut self, column: u32, tier: TierNumber, at: u32) -> bool {
        let bit = 1 << at;
        match self.row(column, tier) {
            Ok(row) => {
                let bits = &mut self.rows[row].bits;
                let new = *bits & bit == 0;
                *bits |= bit;
                new
            }
            Err(row) => {
                self.insert(row, Row { column, tier, bits: bit });
                true
            }
        }
    }

    /// Sets bits that are clear.
    pub(super) fn set_all(&mut self, column: u32, tier: TierNumber, bits: u64) {
        match self.row(column, tier) {
            Ok(row) => self.rows[row].bits |= bits,
            Err(row) if bits != 0 => self.insert(row, Row { column, tier, bits }),
            Err(_) => (),
        }
    }

    /// Clears a bit; `false` if it was clear.
    pub(super) fn clear(&mut self, column: u32, tier: TierNumber, at: u32) -> bool {
        let Ok(row) = self.row(column, tier) else { return false };
        let bits = &mut self.rows[row].bits;
        let was_set = *bits & (1 << at) != 0;
        *bits &= !(1 << at);
        if *bits == 0 {
            self.rows.remove(row);
        }
        was_set
    }

    /// Clears bits that are set.
    pub(super) fn clear_all(&mut self, column: u32, tier: TierNumber, bits: u64) {
        let Ok(row) = self.row(column, tier) else { return };
        self.rows[row].bits &= !bits;
        if self.rows[row].bits == 0 {
            self.rows.remove(row);
        }
    }

    /// The blocks that a column holds in that tier, a bit each, if it has none in another.
    pub(super) fn only(&self, column: u32, tier: TierNumber) -> Option<u64> {
        match self.rows.get(self.rows_of(column))? {
            [row] if row.tier == tier => Some(row.bits),
            _ => None,
        }
    }

    /// Which places are taken by blocks of the column, a bit each.
    pub(super) fn taken(&self, column: u32) -> u64 {
        self.rows[self.rows_of(column)].iter().fold(0, |taken, row| taken | row.bits)
    }

    /// The tiers in which a column holds the block, [`KNOWN`] among them.
    pub(super) fn tiers(&self, column: u32, at: u32) -> impl Iterator<Item = TierNumber> + '_ {
        let rows = self.rows[self.rows_of(column)].iter();
        rows.filter(move |row| row.bits & (1 << at) != 0).map(|row| row.tier)
    }

    /// Whether the column holds the block in some tier.
    pub(super) fn is_held(&self, column: u32, at: u32) -> bool {
        self.tiers(column, at).any(|tier| tier != KNOWN)
    }

    /// Whether the place is taken by a block of the column.
    pub(super) fn is_taken(&self, column: u32, at: u32) -> bool {
        self.taken(column) & (1 << at) != 0
    }

    /// Forgets all that a column has here.
    pub(super) fn forget(&mut self, column: u32) {
        let rows = self.rows_of(column);
        self.rows.drain(rows);
    }

    /// What all columns have here, tier by tier.
    pub(super) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Each column that has something here, with what it has.
    pub(super) fn columns(&self) -> impl Iterator<Item = (u32, Own<'_>)> {
        self.rows.chunk_by(|a, b| a.column == b.column).filter_map(|own| {
            let column = own.first()?.column;
            Some((column, Own(own)))
        })
    }

    // Most pages are one column's.
    fn insert(&mut self, at: usize, row: Row) {
        if self.rows.len() == self.rows.capacity() {
            self.rows.reserve_exact(self.rows.len() / 2 + 1);
        }
        self.rows.insert(at, row);
    }

    fn row(&self, column: u32, tier: TierNumber) -> Result<usize, usize> {
        self.rows.binary_search_by_key(&(column, tier), |row| (row.column, row.tier))
    }

    fn rows_of(&self, column: u32) -> Range<usize> {
        let from = self.rows.partition_point(|row| row.column < column);
        let count = self.rows[from..].iter().take_while(|row| row.column == column).count();
        from..from + count
    }
}

/// A number of 32 bits as an index.
pub(super) fn to_usize(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
