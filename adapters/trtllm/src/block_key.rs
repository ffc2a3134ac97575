//! The engine's own hashes, computed from what a store tells: to check that both mean the same
//! blocks. Pure; nothing here decides what a difference means.
//!
//! A salt enters either hash as a number that one release and the next derive differently, and an
//! adapter as a number that no event carries: who wants such blocks checked must know both.

use kvbridge_adapters_api::{HashBlock, HashFunction};
use kvbridge_schemas::Projection;
use sha2::{Digest as _, Sha256};

const ODD: u64 = 0xbf58_476d_1ce4_e5b9;
const ODD_SECOND: u64 = 0x94d0_49bb_1331_11eb;
const GOLDEN: u32 = 0x9e37_79b9;
const ODD_32: u32 = 0x045d_9f3b;

/// What is hashed of one block.
#[derive(Clone, Copy, Default)]
pub struct BlockContent<'a> {
    /// Its tokens, all of them: a shorter block has another hash than the one it grows into.
    pub tokens: &'a [u32],
    /// One for each token, where the engine uses them.
    pub extra_ids: Option<&'a [u64]>,
    /// The adapter's number in the engine.
    pub lora: Option<u64>,
    /// The number that the engine makes of the salt.
    pub salt: Option<u64>,
    /// Digest and start of each media item.
    pub media: &'a [([u8; 32], u64)],
}

/// The function that a batch's hash scheme names, if it is one that can be computed.
pub fn hash_function(scheme: &str) -> Option<HashFunction> {
    let v1: HashBlock = |parent, tokens| {
        let parent = parent.and_then(|parent| parent.first_chunk().copied()).unwrap_or([0; 8]);
        let content = BlockContent { tokens, ..BlockContent::default() };
        let mut link = [0; 32];
        let hash = v1_block_key(&content, u64::from_be_bytes(parent)).to_be_bytes();
        link.iter_mut().zip(hash).for_each(|(to, from)| *to = from);
        link
    };
    let v2: HashBlock = |parent, tokens| v2_sha256(tokens, parent.unwrap_or(&[0; 32]));
    let (scheme, root, block, whole_bytes) = match scheme {
        "trtllm.v1_block_key" => ("trtllm.v1_block_key", None, v1, 8),
        "trtllm.v2_sha256" => ("trtllm.v2_sha256", Some(v2_root(None, None)), v2, 32),
        // A chain cannot be followed below a part of a hash, but its beginnings can be computed.
        "trtllm.v2_sha256_64" => ("trtllm.v2_sha256_64", Some(v2_root(None, None)), v2, 32),
        _ => return None,
    };
    let projection = Projection::First8;
    // An adapter is hashed and in no event.
    let tells_all = false;
    Some(HashFunction { scheme, projection, root, block, whole_bytes, tells_all })
}

/// The hash `v1_block_key`; `parent` is 0 for a block at the root.
pub fn v1_block_key(block: &BlockContent<'_>, parent: u64) -> u64 {
    let length = u64::try_from(block.tokens.len()).unwrap_or(u64::MAX);
    let mut seed = length ^ parent.wrapping_mul(ODD);
    if let (0, Some(salt)) = (parent, block.salt) {
        seed = mix_long(salt, seed);
    }
    for (at, token) in block.tokens.iter().enumerate() {
        seed = mix_word(*token, seed);
        if let Some(extra) = block.extra_ids {
            seed = mix_long(extra.get(at).copied().unwrap_or(0), seed);
        }
    }
    if let Some(lora) = block.lora {
        seed = mix_long(lora, seed);
    }
    for (digest, start) in block.media {
        let (words, _) = digest.as_chunks::<4>();
        seed = words.iter().fold(seed, |seed, word| mix_word(u32::from_le_bytes(*word), seed));
        seed = mix_long(*start, seed);
    }
    seed
}

/// A 32-bit word. The constant is added before it is widened.
fn mix_word(word: u32, seed: u64) -> u64 {
    let stir = |value: u32| ((value >> 16) ^ value).wrapping_mul(ODD_32);
    let stirred = stir(stir(word));
    combine(u64::from((stirred ^ (stirred >> 16)).wrapping_add(GOLDEN)), seed)
}

/// A 64-bit word. The constant is added in all 64 bits.
fn mix_long(word: u64, seed: u64) -> u64 {
    let once = (word ^ (word >> 30)).wrapping_mul(ODD);
    let twice = (once ^ (once >> 27)).wrapping_mul(ODD_SECOND);
    combine((twice ^ (twice >> 31)).wrapping_add(u64::from(GOLDEN)), seed)
}

fn combine(word: u64, seed: u64) -> u64 {
    seed ^ word.wrapping_add(seed << 6).wrapping_add(seed >> 2)
}

/// Where the chain `v2_sha256` starts: the digest of what keeps namespaces apart.
pub fn v2_root(lora: Option<u64>, salt: Option<u64>) -> [u8; 32] {
    let mut scope = vec![u8::from(lora.is_some()) | u8::from(salt.is_some()) << 1];
    for number in [lora, salt].into_iter().flatten() {
        scope.extend(number.to_le_bytes());
    }
    Sha256::digest(scope).into()
}

/// The hash `v2_sha256` of a block of plain tokens, as of the middle of 2026; earlier builds hash
/// eight bytes a token. `parent` is another block's, or the root.
pub fn v2_sha256(tokens: &[u32], parent: &[u8; 32]) -> [u8; 32] {
    let mut hasher = Sha256::new_with_prefix(parent);
    for token in tokens {
        hasher.update(token.to_le_bytes());
    }
    hasher.finalize().into()
}

/// The number that `v2_sha256_64` sends of such a hash.
pub fn v2_sha256_64(hash: &[u8; 32]) -> u64 {
    hash.iter().take(8).fold(0, |value, byte| value << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(tokens: &[u32]) -> BlockContent<'_> {
        BlockContent { tokens, ..BlockContent::default() }
    }

    #[test]
    fn v1_is_what_the_engine_computes() {
        // The first two are constants of an upstream test.
        let first = v1_block_key(&plain(&[1, 2, 3, 4]), 0);
        assert_eq!(first, 924_206_229_973_855);
        assert_eq!(v1_block_key(&plain(&[5, 6]), first), 6_875_034_662_206_558_884);
        let long: Vec<u32> = (0..64).collect();
        let head = v1_block_key(&plain(&long[..32]), 0);
        assert_eq!(head, 17_461_474_797_406_555_673);
        assert_eq!(v1_block_key(&plain(&long[32..]), head), 949_730_894_463_544_763);
    }

    #[test]
    fn v1_takes_salt_adapter_extra_ids_and_media_in() {
        let tokens = &[1, 2, 3, 4];
        let salted = BlockContent { salt: Some(123), ..plain(tokens) };
        let first = v1_block_key(&salted, 0);
        assert_eq!(first, 6_280_297_290_684_427_985);
        // Only the first block of a chain is salted.
        let second = BlockContent { salt: Some(123), ..plain(&[5, 6]) };
        assert_eq!(v1_block_key(&second, first), 18_177_682_803_760_873_588);
        let adapted = BlockContent { lora: Some(7), ..plain(tokens) };
        assert_eq!(v1_block_key(&adapted, 0), 1_405_807_694_910_447_675);
        let extra = BlockContent { extra_ids: Some(&[0, 0, 9, 9]), ..plain(tokens) };
        assert_eq!(v1_block_key(&extra, 0), 11_162_044_531_271_220_378);
        let digest = std::array::from_fn(|at| u8::try_from(at).unwrap());
        let media = BlockContent { media: &[(digest, 5)], ..plain(tokens) };
        assert_eq!(v1_block_key(&media, 0), 4_918_641_398_729_860_447);
    }

    #[test]
    fn v2_is_a_chain_of_sha256_from_the_scope_on() {
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let root = v2_root(None, None);
        assert!(hex(&root).starts_with("6e340b9c") && hex(&root).ends_with("17afa01d"));
        let first = v2_sha256(&[1, 2, 3, 4], &root);
        assert_eq!(hex(&first), "e432228522a304ab556d66e6e40979ad05575f28b19b554264dd3c6277aaf073");
        assert_eq!(v2_sha256_64(&first), 16_443_243_144_690_205_867);
        let second = v2_sha256(&[5, 6, 7, 8], &first);
        assert_eq!(v2_sha256_64(&second), 8_460_888_372_051_954_880);
        let roots = [v2_root(Some(1), None), v2_root(None, Some(1)), v2_root(Some(1), Some(1))];
        assert!(roots.iter().all(|other| *other != root) && roots[0] != roots[1]);
    }
}
