//! PURE. A request's tokens, the hashes of its full blocks, and the blocks it uses.

use kvbridge_schemas::ExtraKey;

use super::{
    drained::hash::{Space, mixed, root, salt_number},
    hash::{Hash, HashKey, block_hash},
    radix::hash::{page_hash, salt_hash},
};

/// What keeps sequences with equal tokens apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    /// Adapter name.
    pub lora: Option<String>,
    /// The adapter's number in this process.
    pub lora_id: Option<i64>,
    /// Cache salt.
    pub salt: Option<String>,
    /// Items in a hash are tagged.
    pub tagged: bool,
}

/// How hashes follow each other.
#[derive(Clone, Copy, Debug)]
pub enum Chain {
    /// Over (parent, tokens, extra keys), from this hash on.
    Keyed(Hash),
    /// Over (parent, tokens); where the release does so, the salt stands before the first.
    Plain {
        /// Whether it does.
        salted: bool,
    },
    /// 64 bits over (parent, tokens, namespace).
    Mixed,
    /// Over (parent, tokens), from the namespace's own start on.
    Scoped,
}

impl From<Hash> for Chain {
    fn from(none: Hash) -> Chain {
        Chain::Keyed(none)
    }
}

/// Tokens that grow, with their chain of hashes.
#[derive(Clone, Debug)]
pub struct Sequence {
    namespace: Namespace,
    block_size: usize,
    chain: Chain,
    tokens: Vec<u32>,
    hashes: Vec<Hash>,
    /// Full blocks that the cache knows by hash.
    pub(super) registered: usize,
    /// Per group the block of each position; none = out of its window.
    pub(super) tables: Vec<Vec<Option<usize>>>,
    /// Pages that are taken for it, where a cache only counts them.
    pub(super) page_count: usize,
}

impl Sequence {
    /// A sequence of these tokens.
    pub fn new(
        chain: impl Into<Chain>,
        block_size: u32,
        namespace: Namespace,
        tokens: &[u32],
    ) -> Sequence {
        let block_size = usize::try_from(block_size).unwrap_or(usize::MAX).max(1);
        let mut sequence = Sequence {
            namespace,
            block_size,
            chain: chain.into(),
            tokens: Vec::with_capacity(tokens.len()),
            hashes: Vec::new(),
            registered: 0,
            tables: Vec::new(),
            page_count: 0,
        };
        tokens.iter().for_each(|token| sequence.push(*token));
        sequence
    }

    /// Adds one token.
    pub fn push(&mut self, token: u32) {
        self.tokens.push(token);
        if self.tokens.len().is_multiple_of(self.block_size) {
            let start = self.tokens.len() - self.block_size;
            let tokens = &self.tokens[start..];
            let parent = self.hashes.last();
            let hash = match &self.chain {
                Chain::Keyed(none) => {
                    block_hash(parent.unwrap_or(none), tokens, &self.keys(self.hashes.len()))
                }
                Chain::Plain { salted } => {
                    let salt = self.namespace.salt.as_deref().filter(|_| *salted).map(salt_hash);
                    page_hash(parent.or(salt.as_ref()), tokens)
                }
                Chain::Mixed => mixed(parent, tokens, self.space()),
                Chain::Scoped => page_hash(Some(parent.unwrap_or(&root(self.space()))), tokens),
            };
            self.hashes.push(hash);
        }
    }

    /// Takes the last token back; one that completed a block takes its hash along.
    pub(super) fn pop(&mut self) {
        if self.tokens.len().is_multiple_of(self.block_size) {
            self.hashes.pop();
        }
        self.tokens.pop();
    }

    /// All tokens.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Hashes of the full blocks.
    pub fn hashes(&self) -> &[Hash] {
        &self.hashes
    }

    /// Adapter name.
    pub fn lora(&self) -> Option<&str> {
        self.namespace.lora.as_deref()
    }

    /// Cache salt.
    pub fn salt(&self) -> Option<&str> {
        self.namespace.salt.as_deref()
    }

    /// The adapter's number.
    pub fn lora_id(&self) -> Option<i64> {
        self.namespace.lora_id
    }

    /// A block's extra keys as events show them: without tags, the salt in the first block only.
    pub(super) fn extra(&self, index: usize) -> Vec<ExtraKey> {
        let salt = self.namespace.salt.iter().filter(|_| index == 0);
        self.namespace.lora.iter().chain(salt).map(|text| ExtraKey::Text(text.clone())).collect()
    }

    fn space(&self) -> Space {
        let lora = self.namespace.lora_id.and_then(|id| u64::try_from(id).ok());
        Space { lora, salt: self.namespace.salt.as_deref().map(salt_number) }
    }

    fn keys(&self, index: usize) -> Vec<HashKey> {
        let Namespace { lora, salt, tagged, .. } = &self.namespace;
        let key = |tag: &str, parts: &[&str]| match (tagged, parts) {
            (false, [text, ..]) => HashKey::Text((*text).to_owned()),
            (_, parts) => {
                let tuple = std::iter::once(tag).chain(parts.iter().copied());
                HashKey::Tuple(tuple.map(str::to_owned).collect())
            }
        };
        let mut keys = Vec::new();
        if let Some(name) = lora {
            keys.push(key("lora", &[name, &format!("/adapters/{name}")]));
        }
        if let Some(salt) = salt.as_deref().filter(|_| index == 0) {
            keys.push(key("cache_salt", &[salt]));
        }
        keys
    }
}
