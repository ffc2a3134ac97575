//! Block hashes as vLLM's `sha256_cbor` computes them: a chain over (parent, tokens, extra keys).

use kvbridge_schemas::BlockHash;
use sha2::{Digest as _, Sha256};

/// The text whose hash starts every chain from 0.29 on, when no seed is set.
pub const SEED_DEFAULT: &str = "vllm-none-hash";

/// 32 bytes of a block's hash.
pub type Hash = [u8; 32];

/// One item that is hashed with a block beside its tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashKey {
    /// A bare text: adapter name or salt, to 0.30.
    Text(String),
    /// A tagged tuple of texts: from 0.31 on.
    Tuple(Vec<String>),
}

/// The start of every chain: what stands for the parent of a first block.
pub fn none_hash(seed: &str) -> Hash {
    let mut cbor = Vec::new();
    text(&mut cbor, seed);
    Sha256::digest(&cbor).into()
}

/// A block's hash.
pub fn block_hash(parent: &Hash, tokens: &[u32], keys: &[HashKey]) -> Hash {
    let mut cbor = vec![0x83, 0x58, 0x20];
    cbor.extend_from_slice(parent);
    head(&mut cbor, 0x80, tokens.len());
    for token in tokens {
        head(&mut cbor, 0x00, usize::try_from(*token).unwrap_or(usize::MAX));
    }
    if keys.is_empty() {
        cbor.push(0xf6);
    } else {
        head(&mut cbor, 0x80, keys.len());
        for key in keys {
            match key {
                HashKey::Text(one) => text(&mut cbor, one),
                HashKey::Tuple(parts) => {
                    head(&mut cbor, 0x80, parts.len());
                    parts.iter().for_each(|part| text(&mut cbor, part));
                }
            }
        }
    }
    Sha256::digest(&cbor).into()
}

/// The hash as events carry it: the last 8 bytes as a number.
pub fn int_of(hash: &Hash) -> u64 {
    hash.last_chunk::<8>().map_or(0, |tail| u64::from_be_bytes(*tail))
}

/// The hash as the model keeps it, whole.
pub fn whole(hash: &Hash) -> BlockHash {
    BlockHash::from_bytes(hash).expect("32 bytes are a valid length")
}

fn text(cbor: &mut Vec<u8>, value: &str) {
    head(cbor, 0x60, value.len());
    cbor.extend_from_slice(value.as_bytes());
}

/// A major type and its number in the shortest form, as canonical CBOR wants it.
fn head(cbor: &mut Vec<u8>, major: u8, number: usize) {
    let bytes = u64::try_from(number).unwrap_or(u64::MAX).to_be_bytes();
    match number {
        0..=23 => cbor.push(major | bytes[7]),
        24..=0xff => cbor.extend([major | 24, bytes[7]]),
        0x100..=0xffff => cbor.extend([major | 25, bytes[6], bytes[7]]),
        0x1_0000..=0xffff_ffff => {
            cbor.push(major | 26);
            cbor.extend_from_slice(&bytes[4..]);
        }
        _ => {
            cbor.push(major | 27);
            cbor.extend_from_slice(&bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(seed: &str) -> [String; 3] {
        let none = none_hash(seed);
        let first = block_hash(&none, &(1..=16).collect::<Vec<_>>(), &[]);
        let second = block_hash(&first, &(100_000..=100_015).collect::<Vec<_>>(), &[]);
        [none, first, second].map(hex::encode)
    }

    /// From the real engine's functions, see docs of the wire: tokens 1..16, then 100000..100015.
    #[test]
    fn chains_are_those_of_the_engine() {
        assert_eq!(
            chain(SEED_DEFAULT),
            [
                "9bd96a485ad84efdafb72ee48a1d7a69bcead0f8f0433173941b276b9581eef0",
                "cd7c51bc5a8fc8643f383a2b9e01522fba7473c669e9270c7b0bf7bf7fd01682",
                "fab60e3bebad6e3f897ee302394986ae3ecde0b37a81558f014d054af21bcf29",
            ]
        );
        assert_eq!(
            chain("0"),
            [
                "4e1195df020de59e0d65a33a4279f1183e7ae4e5d980e309f8b55adff2e61c3e",
                "202da172482d928bbc42ab25b0151e2b895f13f41002e27b2ceabcfae6d332ea",
                "04a40fb7e3961dc493d594f68c072d205f6e2ad75469133939801add113f5911",
            ]
        );
    }

    #[test]
    fn the_number_is_the_tail() {
        let first = block_hash(&none_hash(SEED_DEFAULT), &(1..=16).collect::<Vec<_>>(), &[]);
        assert_eq!(int_of(&first), 8_866_452_693_264_111_234);
    }

    #[test]
    fn extra_keys_change_the_hash() {
        let none = none_hash(SEED_DEFAULT);
        let name = |text: &str| [HashKey::Text(text.to_owned())];
        let tagged = [HashKey::Tuple(vec!["lora".into(), "a".into(), "/a".into()])];
        let all = [
            block_hash(&none, &[1], &[]),
            block_hash(&none, &[1], &name("a")),
            block_hash(&none, &[1], &name("b")),
            block_hash(&none, &[1], &tagged),
        ];
        assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), 4);
    }
}
