//! The engine's own hashes, computed from what a store tells. Pure; nothing here decides what a
//! difference means.
//!
//! A salt is a seed of the chain in newer releases and nothing in older ones, an adapter is in no
//! hash: who compares leaves both out.

use kvbridge_adapters_api::{HashFunction, Link};
use kvbridge_schemas::Projection;
use sha2::{Digest as _, Sha256};

/// The one way in which pages are hashed: SHA-256 over the digest of the page before and the
/// tokens, of which the first 8 bytes are sent, signed.
pub const HASH_FUNCTION: HashFunction = HashFunction {
    scheme: "sglang.sha256",
    projection: Projection::First8,
    root: None,
    block: page,
    whole_bytes: 32,
    tells_all: true,
};

fn page(parent: Option<&Link>, tokens: &[u32]) -> Link {
    let mut hasher = Sha256::new();
    if let Some(parent) = parent {
        hasher.update(parent);
    }
    for token in tokens {
        hasher.update(token.to_le_bytes());
    }
    hasher.finalize().into()
}
