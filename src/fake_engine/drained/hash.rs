//! PURE. Block hashes of both cache managers, with the adapter's number and a number for the salt
//! in them.

use sha2::{Digest as _, Sha256};

use crate::fake_engine::hash::Hash;

/// What keeps sequences with equal tokens apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// The adapter's number.
    pub lora: Option<u64>,
    /// The salt's.
    pub salt: Option<u64>,
}

/// The number of a salt.
pub fn salt_number(salt: &str) -> u64 {
    let digest: Hash = Sha256::digest(salt).into();
    digest.first_chunk::<8>().map_or(0, |head| u64::from_le_bytes(*head))
}

/// The older manager's: 64 bits, here in front of a longer hash.
pub fn mixed(parent: Option<&Hash>, tokens: &[u32], space: Space) -> Hash {
    let parent =
        parent.and_then(|hash| hash.first_chunk::<8>()).map_or(0, |head| u64::from_be_bytes(*head));
    let length = u64::try_from(tokens.len()).unwrap_or(u64::MAX);
    let mut state = length ^ parent.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    if let (0, Some(salt)) = (parent, space.salt) {
        state = stir(state, long(salt));
    }
    for token in tokens {
        state = stir(state, short(*token));
    }
    if let Some(lora) = space.lora {
        state = stir(state, long(lora));
    }
    let mut hash = Hash::default();
    hash[..8].copy_from_slice(&state.to_be_bytes());
    hash
}

fn stir(state: u64, word: u64) -> u64 {
    state ^ word.wrapping_add(state << 6).wrapping_add(state >> 2)
}

fn short(token: u32) -> u64 {
    let mut word = token;
    for _ in 0..2 {
        word = (word ^ word >> 16).wrapping_mul(0x045d_9f3b);
    }
    u64::from((word ^ word >> 16).wrapping_add(0x9e37_79b9))
}

fn long(number: u64) -> u64 {
    let word = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (word ^ word >> 31).wrapping_add(0x9e37_79b9)
}

/// What the newer manager's chain starts from.
pub fn root(space: Space) -> Hash {
    let mask = u8::from(space.lora.is_some()) + 2 * u8::from(space.salt.is_some());
    let mut hasher = Sha256::new_with_prefix([mask]);
    for number in [space.lora, space.salt].into_iter().flatten() {
        hasher.update(number.to_le_bytes());
    }
    hasher.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_engine::radix::hash::page_hash;

    /// Constants of an upstream test, and of the algorithm in Python.
    #[test]
    fn chains_are_those_of_the_engine() {
        let number = |hash: &Hash| u64::from_be_bytes(*hash.first_chunk().unwrap());
        let first = mixed(None, &[1, 2, 3, 4], Space::default());
        assert_eq!(number(&first), 924_206_229_973_855);
        let second = mixed(Some(&first), &[5, 6], Space::default());
        assert_eq!(number(&second), 6_875_034_662_206_558_884);
        let salted = mixed(None, &[1, 2, 3, 4], Space { salt: Some(123), lora: None });
        assert_eq!(number(&salted), 6_280_297_290_684_427_985);
        let adapted = mixed(None, &[1, 2, 3, 4], Space { salt: None, lora: Some(7) });
        assert_eq!(number(&adapted), 1_405_807_694_910_447_675);
        assert_eq!(salt_number("tenant-A"), 10_590_430_051_267_512_242);
        let scoped = page_hash(Some(&root(Space::default())), &[1, 2, 3, 4]);
        assert_eq!(number(&scoped), 16_443_243_144_690_205_867);
    }
}
