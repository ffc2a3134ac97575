//! What was heard of one rank's live stream, folded batch by batch.

use std::collections::BTreeSet;

use kvbridge_adapters_api::Batch;
use kvbridge_schemas::{Event, HashScheme};

/// Values of one kind that are remembered: more of them tell nobody more.
const VALUES_MAX: usize = 16;

/// What was heard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamSight {
    /// It could be connected to.
    pub is_attached: bool,
    /// Batches that came.
    pub batches: u64,
    /// Seq of the last one.
    pub last: Option<u64>,
    /// Seqs that were left out.
    pub missing: u64,
    /// How often a seq came that was not above the one before.
    pub fell: u64,
    /// Messages and events that could not be read.
    pub faults: u64,
    /// Why the first of them could not.
    pub fault: Option<String>,
    /// Wire forms.
    pub formats: BTreeSet<&'static str>,
    /// Tokens per block.
    pub block_sizes: BTreeSet<u32>,
    /// Bytes of hashes.
    pub hash_lengths: BTreeSet<usize>,
    /// Algorithms that batches name.
    pub algorithms: BTreeSet<String>,
    /// Ranks that batches name.
    pub ranks: BTreeSet<u32>,
    /// Stores of whole blocks, and of blocks with fewer tokens.
    pub stores: u64,
    /// See there.
    pub partials: u64,
    /// What came of computing announced hashes again; absent = no function that is known fits.
    pub hashes: Option<HashesSight>,
}

/// What came of computing announced hashes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashesSight {
    /// The function.
    pub scheme: &'static str,
    /// Blocks that have the announced hash.
    pub equal: u64,
    /// Blocks that have another one, and must not.
    pub wrong: u64,
}

impl StreamSight {
    /// A message of that seq came.
    pub fn seq(&mut self, seq: u64) {
        self.batches += 1;
        match self.last {
            Some(last) if seq <= last => self.fell += 1,
            Some(last) => self.missing = self.missing.saturating_add(seq - last - 1),
            None => (),
        }
        self.last = Some(seq);
    }

    /// What it held.
    pub fn batch(&mut self, batch: &Batch) {
        keep(&mut self.formats, batch.format);
        if let Some(rank) = batch.rank {
            keep(&mut self.ranks, rank);
        }
        if batch.hash.scheme != HashScheme::Unknown {
            keep(&mut self.algorithms, batch.hash.scheme.as_str().to_owned());
        }
        for event in &batch.events {
            let Event::Stored(stored) = event else { continue };
            let count = if stored.partial { &mut self.partials } else { &mut self.stores };
            *count += 1;
            // Some releases say 0 of a tier that is not the device.
            if stored.block_size > 0 && !stored.partial {
                keep(&mut self.block_sizes, stored.block_size);
            }
            for block in &stored.blocks {
                keep(&mut self.hash_lengths, block.hash.as_bytes().len());
            }
        }
    }

    /// Something could not be read.
    pub fn fault(&mut self, why: impl Into<String>) {
        self.faults += 1;
        self.fault.get_or_insert_with(|| why.into());
    }
}

fn keep<T: Ord>(values: &mut BTreeSet<T>, value: T) {
    if values.len() < VALUES_MAX {
        values.insert(value);
    }
}
