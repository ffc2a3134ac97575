//! The engine's own hashes, computed from what a store tells. Pure; nothing here decides what a
//! difference means.
//!
//! `sha256` hashes a pickle and `sha256_cbor` canonical CBOR of (parent, tokens, extra keys). Only
//! blocks without extra keys are computed: what stands in them differs from release to release.

use kvbridge_adapters_api::{HashBlock, HashFunction, Link};
use kvbridge_schemas::Projection;
use sha2::{Digest as _, Sha256};

/// What first blocks are hashed below where nothing is set; 0.29.0 and later. Before, it is 32
/// random bytes of each process.
const SEED_DEFAULT: &str = "vllm-none-hash";

/// The function of that name, with the value of `PYTHONHASHSEED`, if there is one.
pub fn hash_function(scheme: &str, seed: Option<&str>) -> Option<HashFunction> {
    let seed = seed.unwrap_or(SEED_DEFAULT);
    let (scheme, root, block): (_, Link, HashBlock) = match scheme {
        "sha256" => ("vllm.sha256", sha256(&pickle_of_text(seed)), pickle_block),
        "sha256_cbor" => ("vllm.sha256_cbor", sha256(&cbor_of_text(seed)), cbor_block),
        _ => return None,
    };
    let projection = Projection::Last8;
    // Salts are told from 0.17 on, media items of stores by connectors never.
    let (root, tells_all) = (Some(root), false);
    Some(HashFunction { scheme, projection, root, block, whole_bytes: 32, tells_all })
}

/// The function of that name, or where none is told all that it may be.
pub fn hash_functions(scheme: Option<&str>, seed: Option<&str>) -> Vec<HashFunction> {
    let all = HASH_SCHEMES.into_iter().filter(|known| scheme.is_none_or(|told| told == *known));
    all.filter_map(|known| hash_function(known, seed)).collect()
}

/// The functions that an engine may use without a word about it.
pub const HASH_SCHEMES: [&str; 2] = ["sha256", "sha256_cbor"];

fn sha256(bytes: &[u8]) -> Link {
    Sha256::digest(bytes).into()
}

fn cbor_block(parent: Option<&Link>, tokens: &[u32]) -> Link {
    const NULL: u8 = 0xf6;
    let parent = parent.copied().unwrap_or_default();
    let mut bytes = Vec::with_capacity(48 + tokens.len() * 5);
    cbor_head(&mut bytes, 4, 3);
    cbor_head(&mut bytes, 2, 32);
    bytes.extend(parent);
    cbor_head(&mut bytes, 4, u64::try_from(tokens.len()).unwrap_or(u64::MAX));
    for token in tokens {
        cbor_head(&mut bytes, 0, u64::from(*token));
    }
    bytes.push(NULL);
    sha256(&bytes)
}

fn cbor_of_text(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    cbor_head(&mut bytes, 3, u64::try_from(text.len()).unwrap_or(u64::MAX));
    bytes.extend(text.as_bytes());
    bytes
}

/// A major type with the shortest form of a number, as canonical CBOR wants it.
fn cbor_head(bytes: &mut Vec<u8>, major: u8, number: u64) {
    let of = |low: u8| major << 5 | low;
    if let Ok(small) = u8::try_from(number) {
        if small < 24 {
            return bytes.push(of(small));
        }
        bytes.extend([of(24), small]);
    } else if let Ok(number) = u16::try_from(number) {
        bytes.push(of(25));
        bytes.extend(number.to_be_bytes());
    } else if let Ok(number) = u32::try_from(number) {
        bytes.push(of(26));
        bytes.extend(number.to_be_bytes());
    } else {
        bytes.push(of(27));
        bytes.extend(number.to_be_bytes());
    }
}

/// Opcodes of pickle's protocol 5, as Python writes a tuple of bytes, a tuple of integers and None.
mod opcode {
    pub(super) const MEMOIZE: u8 = 0x94;
    pub(super) const MARK: u8 = b'(';
    pub(super) const NONE: u8 = b'N';
    pub(super) const TUPLE: u8 = b't';
    /// Of one, two and three items.
    pub(super) const TUPLES: [u8; 3] = [0x85, 0x86, 0x87];
    pub(super) const EMPTY_TUPLE: u8 = b')';
    pub(super) const SHORT_BYTES: u8 = b'C';
    pub(super) const SHORT_TEXT: u8 = 0x8c;
    pub(super) const INT_1: u8 = b'K';
    pub(super) const INT_2: u8 = b'M';
    pub(super) const INT_4: u8 = b'J';
    pub(super) const LONG_1: u8 = 0x8a;
}

fn pickle_block(parent: Option<&Link>, tokens: &[u32]) -> Link {
    let mut body = Vec::with_capacity(64 + tokens.len() * 6);
    body.extend([opcode::SHORT_BYTES, 32]);
    body.extend(parent.copied().unwrap_or_default());
    body.push(opcode::MEMOIZE);
    match tokens.len() {
        0 => body.push(opcode::EMPTY_TUPLE),
        count => {
            let short = opcode::TUPLES.get(count - 1);
            if short.is_none() {
                body.push(opcode::MARK);
            }
            tokens.iter().for_each(|token| pickle_number(&mut body, *token));
            body.extend([*short.unwrap_or(&opcode::TUPLE), opcode::MEMOIZE]);
        }
    }
    body.extend([opcode::NONE, opcode::TUPLES[2], opcode::MEMOIZE, b'.']);
    sha256(&framed(&body))
}

fn pickle_number(body: &mut Vec<u8>, number: u32) {
    if let Ok(number) = u8::try_from(number) {
        body.extend([opcode::INT_1, number]);
    } else if let Ok(number) = u16::try_from(number) {
        body.push(opcode::INT_2);
        body.extend(number.to_le_bytes());
    } else if i32::try_from(number).is_ok() {
        body.push(opcode::INT_4);
        body.extend(number.to_le_bytes());
    } else {
        // Signed and as short as it can be: the fifth byte keeps it positive.
        body.extend([opcode::LONG_1, 5]);
        body.extend(number.to_le_bytes());
        body.push(0);
    }
}

fn pickle_of_text(text: &str) -> Vec<u8> {
    let mut body = vec![opcode::SHORT_TEXT, u8::try_from(text.len()).unwrap_or(u8::MAX)];
    body.extend(text.as_bytes());
    body.extend([opcode::MEMOIZE, b'.']);
    framed(&body)
}

/// Protocol, then everything in one frame: Python begins another one past 64 KiB, which no block
/// fills.
fn framed(body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x80, 5, 0x95];
    bytes.extend(u64::try_from(body.len()).unwrap_or(u64::MAX).to_le_bytes());
    bytes.extend(body);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn first_two(scheme: &str, seed: Option<&str>) -> [String; 3] {
        let function = hash_function(scheme, seed).unwrap();
        let first = (function.block)(function.root.as_ref(), &(1..=16).collect::<Vec<_>>());
        let second = (function.block)(Some(&first), &(100_000..=100_015).collect::<Vec<_>>());
        [hex(&function.root.unwrap()), hex(&first), hex(&second)]
    }

    /// Values that vLLM's own functions gave.
    #[test]
    fn hashes_are_what_the_engine_computes() {
        assert_eq!(
            first_two("sha256_cbor", None),
            [
                "9bd96a485ad84efdafb72ee48a1d7a69bcead0f8f0433173941b276b9581eef0",
                "cd7c51bc5a8fc8643f383a2b9e01522fba7473c669e9270c7b0bf7bf7fd01682",
                "fab60e3bebad6e3f897ee302394986ae3ecde0b37a81558f014d054af21bcf29",
            ]
        );
        assert_eq!(
            first_two("sha256_cbor", Some("0")),
            [
                "4e1195df020de59e0d65a33a4279f1183e7ae4e5d980e309f8b55adff2e61c3e",
                "202da172482d928bbc42ab25b0151e2b895f13f41002e27b2ceabcfae6d332ea",
                "04a40fb7e3961dc493d594f68c072d205f6e2ad75469133939801add113f5911",
            ]
        );
        assert_eq!(
            first_two("sha256", None),
            [
                "066b1e8987e027138e98701c46128929378935f9b6cd1549105ae6b4f0d71198",
                "7b255da405e1d722823892e4fef187b4d8ac78215d7f0dd2137bb037547f4caf",
                "bec4bb14400cd3f73af1aea14e4be6b2840557c27b44e0e5eb49f0469f08c7b0",
            ]
        );
        assert_eq!(
            first_two("sha256", Some("0")),
            [
                "1973e23848344dc43a988a9b478663803cfffe1243480253f9a3cf004b14aa7c",
                "bea72b7d33de03c1aa715efbb492d0e0d3801f00c1f985756896072ae8b31325",
                "65af7f7b0c53cb3355b16879a0f1b3e13d0ce7251e555ba2575470eb1333238d",
            ]
        );
        assert!(hash_function("xxhash", None).is_none(), "its seed is random");
    }

    /// What Python 3.13 writes of numbers at the bounds of each form, and of short tuples.
    #[test]
    fn numbers_and_tuples_have_pythons_shortest_form() {
        let number = |number| {
            let mut body = Vec::new();
            pickle_number(&mut body, number);
            hex(&body)
        };
        assert_eq!(
            [0, 255, 256, 65_535, 65_536, 0x7fff_ffff, 0x8000_0000, u32::MAX].map(number),
            [
                "4b00",
                "4bff",
                "4d0001",
                "4dffff",
                "4a00000100",
                "4affffff7f",
                "8a050000008000",
                "8a05ffffffff00"
            ]
        );
    }
}
