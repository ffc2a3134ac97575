//! What a router asks, and the hashes of one prompt.

use std::collections::BTreeMap;

use kvbridge_schemas::{Trust, content_hash};

use super::page::Window;

/// Which replicas hold how much of a prompt?
#[derive(Clone, Copy)]
pub struct Query<'a> {
    /// The served model.
    pub model: &'a str,
    /// The prompt.
    pub prompt: Prompt<'a>,
    /// The LoRA adapter's name; an empty one is none.
    pub lora: Option<&'a str>,
    /// The cache salt; an empty one is none.
    pub salt: Option<&'a str>,
    /// The least trust a match must have: `Exact` or `LowerBound`. `None` is read as `LowerBound`:
    /// what nobody vouches for is never a match.
    pub accept: Trust,
    /// Whether tiers whose engines announce no removals count too.
    pub hints: bool,
}

/// A prompt. It has no debug form: token ids are what a customer wrote.
#[derive(Clone, Copy)]
pub enum Prompt<'a> {
    /// Token ids. Every replica is asked in its own block size.
    Tokens(&'a [u32]),
    /// Content hashes of its blocks, from the first on.
    Content {
        /// XXH3-64 seed 1337 over each block's tokens.
        hashes: &'a [u64],
        /// Tokens per block. Hashes of different sizes never compare.
        block_size: u32,
    },
}

/// A question without an answer. Never to be read as "nothing matched".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// No replica serves the model.
    #[error("no replica of this model is known")]
    UnknownModel,
    /// No replica of the model has blocks of the prompt's size.
    #[error("no replica of this model uses the prompt's block size, expected one of {used:?}")]
    BlockSize {
        /// The sizes in use, smallest first.
        used: Vec<u32>,
    },
}

impl QueryError {
    /// The word shown.
    pub fn as_str(&self) -> &'static str {
        match self {
            QueryError::UnknownModel => "unknown_model",
            QueryError::BlockSize { .. } => "block_size_mismatch",
        }
    }
}

/// The hashes of one prompt, each window's computed once per query.
pub(super) struct PromptHashes<'a> {
    prompt: Prompt<'a>,
    by_window: BTreeMap<Window, Vec<u64>>,
}

impl<'a> PromptHashes<'a> {
    pub(super) fn new(prompt: Prompt<'a>) -> PromptHashes<'a> {
        PromptHashes { prompt, by_window: BTreeMap::new() }
    }

    /// The prompt's blocks in that window; `None` if it is told in another block size.
    pub(super) fn of(&mut self, window: Window) -> Option<&[u64]> {
        match self.prompt {
            Prompt::Content { hashes, block_size } => {
                (block_size == window.block_size).then_some(hashes)
            }
            Prompt::Tokens(tokens) => {
                Some(self.by_window.entry(window).or_insert_with(|| hash(tokens, window)))
            }
        }
    }
}

fn hash(tokens: &[u32], window: Window) -> Vec<u64> {
    let Ok(step) = usize::try_from(window.block_size) else { return Vec::new() };
    if step == 0 {
        return Vec::new();
    }
    let width = step + usize::from(window.bigram);
    let starts = (0..tokens.len()).step_by(step);
    let blocks = starts.map_while(|start| tokens.get(start..start.checked_add(width)?));
    blocks.map(content_hash).collect()
}
