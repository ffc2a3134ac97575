//! The two hashes that kvbridge computes itself.

use xxhash_rust::xxh3;

use crate::Digest;

/// Seed of the content hash: the one Dynamo, SMG and Mooncake's RFC use, so that theirs and ours
/// agree.
pub const CONTENT_SEED: u64 = 1337;

/// Tokens hashed from the stack; a larger block goes through the streaming hasher.
const TOKENS_ON_STACK: usize = 64;

/// XXH3-64, seed 1337, over the little-endian u32 token ids of one block.
pub fn content_hash(tokens: &[u32]) -> u64 {
    let mut bytes = [0_u8; TOKENS_ON_STACK * 4];
    match bytes.get_mut(..tokens.len() * 4) {
        Some(used) => {
            for (slot, token) in used.chunks_exact_mut(4).zip(tokens) {
                slot.copy_from_slice(&token.to_le_bytes());
            }
            xxh3::xxh3_64_with_seed(used, CONTENT_SEED)
        }
        None => {
            let mut hasher = xxh3::Xxh3::with_seed(CONTENT_SEED);
            for token in tokens {
                hasher.update(&token.to_le_bytes());
            }
            hasher.digest()
        }
    }
}

/// XXH3-128 of the engine's payload bytes.
pub fn digest(payload: &[u8]) -> Digest {
    Digest(xxh3::xxh3_128(payload).to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stack_and_streaming_paths_agree_at_their_border() {
        for count in [0, 1, 16, 63, 64, 65, 512] {
            let tokens: Vec<u32> = (0..count).map(|i| i * 7919).collect();
            let bytes: Vec<u8> = tokens.iter().flat_map(|t| t.to_le_bytes()).collect();
            assert_eq!(content_hash(&tokens), xxh3::xxh3_64_with_seed(&bytes, CONTENT_SEED));
        }
    }
}
