//! What could not be read, and why. Reasons are names; no value of the wire is in them, because
//! token ids and salts are customers' secrets.

use kvbridge_adapters_api::Loss;

/// Why one event was not read, or not wholly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Fault {
    /// A store was not read.
    #[error("store not read")]
    Stored,
    /// A block of a store has more tokens than a block of this engine.
    #[error("block longer than {block_size} tokens")]
    LongBlock {
        /// Tokens per block.
        block_size: u32,
    },
    /// More blocks are resident than are remembered.
    #[error("more than {} blocks", crate::limits::BLOCKS_MAX)]
    TooManyBlocks,
    /// A removal, a move or the head of a life was not read.
    #[error("removal, move or start not read")]
    MayRemove,
    /// A type that no release sends.
    #[error("unknown type")]
    UnknownType,
}

impl Fault {
    /// What the batch lost with it.
    pub fn loss(self) -> Loss {
        match self {
            Fault::Stored | Fault::LongBlock { .. } | Fault::TooManyBlocks => Loss::Stores,
            Fault::MayRemove | Fault::UnknownType => Loss::MayRemove,
        }
    }
}

/// Why a whole answer was not read. Its events are lost: the engine has forgotten them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum BodyError {
    /// Above the limit.
    #[error("answer has more than {max} bytes")]
    TooLarge {
        /// How many are allowed.
        max: usize,
    },
    /// No JSON array, or one that is cut short.
    #[error("answer is no list of events")]
    NotAList,
    /// More events than the limit.
    #[error("answer has {count} events, limit {max}")]
    TooManyEvents {
        /// How many came.
        count: usize,
        /// How many are allowed.
        max: usize,
    },
}
