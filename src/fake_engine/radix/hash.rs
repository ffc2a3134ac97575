//! Page hashes as SGLang computes them: a chain of SHA-256 over (parent's digest, tokens).

use sha2::{Digest as _, Sha256};

use crate::fake_engine::hash::Hash;

/// What a salt is hashed behind, so that no page's digest is a salt's.
const SALT_DOMAIN: &[u8] = b"sglang-cache-salt-v1\0";

/// What stands for the parent of a first page in a salted namespace.
pub fn salt_hash(salt: &str) -> Hash {
    Sha256::new().chain_update(SALT_DOMAIN).chain_update(salt).finalize().into()
}

/// A page's hash; a first page without a salt has nothing before it.
pub fn page_hash(before: Option<&Hash>, tokens: &[u32]) -> Hash {
    let mut hasher = Sha256::new();
    if let Some(before) = before {
        hasher.update(before);
    }
    for token in tokens {
        hasher.update(token.to_le_bytes());
    }
    hasher.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_engine::hash::Hash;

    fn shown(hash: &Hash) -> i64 {
        i64::from_be_bytes(*hash.first_chunk().unwrap())
    }

    /// From the algorithm in Python, which reproduces every recorded hash.
    #[test]
    fn chains_are_those_of_the_engine() {
        let first = page_hash(None, &[1, 2, 3, 4]);
        let second = page_hash(Some(&first), &[5, 6, 7, 8]);
        assert_eq!(shown(&first), -3_488_128_144_981_237_669);
        assert_eq!(shown(&second), 5_674_439_469_042_975_057);
        let salted = page_hash(Some(&salt_hash("tenant-a")), &[1, 2, 3, 4]);
        assert_eq!(shown(&salted), 3_718_046_898_735_569_995);
    }
}
