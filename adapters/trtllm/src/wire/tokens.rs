//! The tokens of a block, without a value for each: ids, extra ids where any is used, and whether a
//! media digest stands in the place of an id.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Tokens of one block.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Tokens {
    pub(crate) ids: Vec<u32>,
    /// One for each id, or none where all are 0.
    pub(crate) extra_ids: Vec<u64>,
    /// How many of them are the digest of a media item and no number.
    pub(crate) digest_count: usize,
}

impl Tokens {
    /// How many tokens, digests included.
    pub(crate) fn len(&self) -> usize {
        self.ids.len() + self.digest_count
    }
}

struct Token {
    /// Absent: a digest.
    id: Option<u32>,
    extra_id: u64,
}

impl<'de> Deserialize<'de> for Tokens {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tokens, D::Error> {
        deserializer.deserialize_seq(TokensVisitor)
    }
}

struct TokensVisitor;

impl<'de> Visitor<'de> for TokensVisitor {
    type Value = Tokens;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tokens")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Tokens, A::Error> {
        let mut tokens = Tokens::default();
        let mut uses_extra = false;
        while let Some(Token { id, extra_id }) = seq.next_element()? {
            let Some(id) = id else {
                tokens.digest_count += 1;
                continue;
            };
            if extra_id != 0 && !uses_extra {
                uses_extra = true;
                tokens.extra_ids = vec![0; tokens.ids.len()];
            }
            if uses_extra {
                tokens.extra_ids.push(extra_id);
            }
            tokens.ids.push(id);
        }
        Ok(tokens)
    }
}

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Token, D::Error> {
        deserializer.deserialize_map(TokenVisitor)
    }
}

struct TokenVisitor;

impl<'de> Visitor<'de> for TokenVisitor {
    type Value = Token;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a token")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Token, A::Error> {
        let mut token = Token { id: None, extra_id: 0 };
        let mut told = false;
        while let Some(key) = map.next_key::<TokenKey>()? {
            match key {
                TokenKey::Id => {
                    token.id = map.next_value::<TokenId>()?.0;
                    told = true;
                }
                TokenKey::ExtraId => token.extra_id = map.next_value::<Option<u64>>()?.unwrap_or(0),
                TokenKey::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        if told { Ok(token) } else { Err(A::Error::missing_field("token_id")) }
    }
}

#[derive(serde::Deserialize)]
enum TokenKey {
    #[serde(rename = "token_id")]
    Id,
    #[serde(rename = "token_extra_id")]
    ExtraId,
    #[serde(other)]
    Other,
}

struct TokenId(Option<u32>);

impl<'de> Deserialize<'de> for TokenId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TokenId, D::Error> {
        deserializer.deserialize_any(IdVisitor)
    }
}

struct IdVisitor;

impl Visitor<'_> for IdVisitor {
    type Value = TokenId;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a token id")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<TokenId, E> {
        u32::try_from(value).map(|id| TokenId(Some(id))).map_err(|_| E::custom("range"))
    }

    /// The engine keeps ids in 32 bits: -1 is hashed like the largest number.
    fn visit_i64<E: Error>(self, value: i64) -> Result<TokenId, E> {
        let id = i32::try_from(value).map_err(|_| E::custom("range"))?;
        Ok(TokenId(Some(id.cast_unsigned())))
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<TokenId, E> {
        Ok(TokenId(None))
    }
}
