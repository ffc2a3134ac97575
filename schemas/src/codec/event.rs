//! Events: one flat structure of optional fields on the way in, one structure per type on the way
//! out.
//!
//! Serde's internally tagged enums buffer a whole event before they look at its type and lose on
//! the way whether the format is readable by people; a flat structure reads fields as they come.
//! Its price is a rule for later minor versions: a new event type may not give a known field
//! another type.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{
    CodecError, HASHES_MAX, TOKENS_MAX,
    error::need,
    leaf::{Hash64, parent_is_unknown, parent_unknown},
    wire::{Got, HIDDEN, List, Named, Put, Show, Wire, opt},
};
use crate::{
    BlockHash, ClearCause, Cleared, Event, ExtraKey, Group, Moved, Parent, Place, Removed, Reset,
    Scope, Stored, StoredBlock, Tier, Tokens, Trust, TrustChange,
};

// === in ===

#[derive(Deserialize)]
pub(super) struct EventIn {
    r#type: Option<String>,
    #[serde(default = "parent_unknown")]
    parent: Got<Parent>,
    block_size: Option<u32>,
    tokens: Option<List<u32, TOKENS_MAX>>,
    blocks: Option<List<StoredBlock, HASHES_MAX>>,
    partial: Option<bool>,
    bigram: Option<bool>,
    tier: Option<Got<Tier>>,
    medium: Option<String>,
    group: Option<Got<Group>>,
    locality: Option<String>,
    ownership: Option<String>,
    lora: Option<String>,
    lora_id: Option<i64>,
    salt: Option<String>,
    extra: Option<List<Vec<ExtraKey>, HASHES_MAX>>,
    session: Option<String>,
    hashes: Option<List<BlockHash, HASHES_MAX>>,
    scope: Option<Got<Scope>>,
    cause: Option<String>,
    trust: Option<Got<Trust>>,
    snapshot: Option<String>,
    reason: Option<String>,
    bridge: Option<String>,
    hash: Option<Got<BlockHash>>,
    from: Option<Got<Tier>>,
    to: Option<Got<Tier>>,
}

impl EventIn {
    fn event(self) -> Result<Event, CodecError> {
        let name = need(self.r#type.clone(), "event", "type")?;
        match name.as_str() {
            "stored" => self.stored().map(Event::Stored),
            "removed" => self.removed().map(Event::Removed),
            "cleared" => self.cleared().map(Event::Cleared),
            "reset" => self.reset().map(Event::Reset),
            "moved" => self.moved().map(Event::Moved),
            "trust" => self.trust_change().map(Event::Trust),
            _ => Ok(Event::Unknown(name)),
        }
    }

    fn stored(mut self) -> Result<Stored, CodecError> {
        let place = self.place("stored")?;
        Ok(Stored {
            parent: self.parent.0?,
            block_size: need(self.block_size, "stored", "block_size")?,
            tokens: Tokens(list(self.tokens, "tokens")?),
            blocks: need(self.blocks, "stored", "blocks")?.take("blocks")?,
            partial: self.partial.unwrap_or(false),
            bigram: self.bigram.unwrap_or(false),
            place,
            lora: self.lora,
            lora_id: self.lora_id,
            salt: self.salt,
            extra: list(self.extra, "extra")?,
            session: self.session,
        })
    }

    fn removed(mut self) -> Result<Removed, CodecError> {
        let place = self.place("removed")?;
        Ok(Removed { hashes: need(self.hashes, "removed", "hashes")?.take("hashes")?, place })
    }

    fn cleared(self) -> Result<Cleared, CodecError> {
        Ok(Cleared {
            scope: need(self.scope, "cleared", "scope")?.0?,
            cause: ClearCause::from_name(&need(self.cause, "cleared", "cause")?),
        })
    }

    fn reset(self) -> Result<Reset, CodecError> {
        Ok(Reset {
            cause: need(self.cause, "reset", "cause")?,
            trust: need(self.trust, "reset", "trust")?.0?,
            snapshot: self.snapshot,
        })
    }

    fn moved(self) -> Result<Moved, CodecError> {
        Ok(Moved {
            hash: need(self.hash, "moved", "hash")?.0?,
            from: need(self.from, "moved", "from")?.0?,
            to: need(self.to, "moved", "to")?.0?,
        })
    }

    fn trust_change(self) -> Result<TrustChange, CodecError> {
        Ok(TrustChange {
            trust: need(self.trust, "trust", "trust")?.0?,
            reason: need(self.reason, "trust", "reason")?,
            bridge: need(self.bridge, "trust", "bridge")?,
        })
    }

    fn place(&mut self, of: &'static str) -> Result<Place, CodecError> {
        Ok(Place {
            tier: need(self.tier.take(), of, "tier")?.0?,
            medium: self.medium.take(),
            group: opt(self.group.take())?,
            locality: self.locality.take(),
            ownership: self.ownership.take(),
        })
    }
}

fn list<T, const MAX: usize>(
    list: Option<List<T, MAX>>,
    field: &'static str,
) -> Result<Vec<T>, CodecError> {
    list.map_or_else(|| Ok(Vec::new()), |list| list.take(field))
}

#[derive(Deserialize)]
pub(super) struct BlockIn {
    hash: Option<Got<BlockHash>>,
    content: Option<Got<Hash64>>,
}

// === out ===

#[derive(Serialize)]
struct BlockOut<'a> {
    hash: Put<'a, BlockHash>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Put<'a, Hash64>>,
}

impl Wire for StoredBlock {
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Result<Self, CodecError>, D::Error> {
        let Named(wire) = Named::<BlockIn>::deserialize(from)?;
        Ok(need(wire.hash, "block", "hash").and_then(|hash| {
            let content = opt(wire.content)?.map(|hash| hash.0);
            Ok(StoredBlock { hash: hash.0?, content })
        }))
    }

    fn write<S: Serializer>(&self, show: Show, to: S) -> Result<S::Ok, S::Error> {
        let content = self.content.map(Hash64);
        let content = content.as_ref().map(|content| Put(content, show));
        BlockOut { hash: Put(&self.hash, show), content }.serialize(to)
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum TokensOut<'a> {
    Ids(&'a [u32]),
    Redacted { count: usize },
}

impl TokensOut<'_> {
    fn is_empty(&self) -> bool {
        matches!(self, TokensOut::Ids([]) | TokensOut::Redacted { count: 0 })
    }
}

#[derive(Serialize)]
struct StoredOut<'a> {
    r#type: &'static str,
    #[serde(skip_serializing_if = "parent_is_unknown")]
    parent: Put<'a, Parent>,
    block_size: u32,
    #[serde(skip_serializing_if = "TokensOut::is_empty")]
    tokens: TokensOut<'a>,
    blocks: Put<'a, [StoredBlock]>,
    #[serde(skip_serializing_if = "is_false")]
    partial: bool,
    #[serde(skip_serializing_if = "is_false")]
    bigram: bool,
    tier: Put<'a, Tier>,
    #[serde(skip_serializing_if = "Option::is_none")]
    medium: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<Put<'a, Group>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    locality: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ownership: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lora: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lora_id: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    salt: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra: Option<Put<'a, [Vec<ExtraKey>]>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<&'a str>,
}

pub(super) fn is_false(flag: &bool) -> bool {
    !flag
}

/// A secret text, or what stands in its place.
pub(super) fn secret(text: Option<&str>, show: Show) -> Option<&str> {
    match show {
        Show::All => text,
        Show::Redacted => text.map(|_| HIDDEN),
    }
}

impl<'a> StoredOut<'a> {
    fn of(stored: &'a Stored, show: Show) -> StoredOut<'a> {
        let Stored { parent, block_size, tokens, blocks, partial, bigram, .. } = stored;
        StoredOut {
            r#type: "stored",
            parent: Put(parent, show),
            block_size: *block_size,
            tokens: match show {
                Show::All => TokensOut::Ids(&tokens.0),
                Show::Redacted => TokensOut::Redacted { count: tokens.0.len() },
            },
            blocks: Put(blocks, show),
            partial: *partial,
            bigram: *bigram,
            tier: Put(&stored.place.tier, show),
            medium: stored.place.medium.as_deref(),
            group: stored.place.group.as_ref().map(|group| Put(group, show)),
            locality: stored.place.locality.as_deref(),
            ownership: stored.place.ownership.as_deref(),
            lora: stored.lora.as_deref(),
            lora_id: stored.lora_id,
            salt: secret(stored.salt.as_deref(), show),
            extra: (!stored.extra.is_empty()).then_some(Put(&stored.extra, show)),
            session: secret(stored.session.as_deref(), show),
        }
    }
}

#[derive(Serialize)]
struct RemovedOut<'a> {
    r#type: &'static str,
    hashes: Put<'a, [BlockHash]>,
    tier: Put<'a, Tier>,
    #[serde(skip_serializing_if = "Option::is_none")]
    medium: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<Put<'a, Group>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    locality: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ownership: Option<&'a str>,
}

impl<'a> RemovedOut<'a> {
    fn of(removed: &'a Removed, show: Show) -> RemovedOut<'a> {
        RemovedOut {
            r#type: "removed",
            hashes: Put(&removed.hashes, show),
            tier: Put(&removed.place.tier, show),
            medium: removed.place.medium.as_deref(),
            group: removed.place.group.as_ref().map(|group| Put(group, show)),
            locality: removed.place.locality.as_deref(),
            ownership: removed.place.ownership.as_deref(),
        }
    }
}

#[derive(Serialize)]
struct ClearedOut<'a> {
    r#type: &'static str,
    scope: Put<'a, Scope>,
    cause: Put<'a, ClearCause>,
}

#[derive(Serialize)]
struct ResetOut<'a> {
    r#type: &'static str,
    cause: &'a str,
    trust: Put<'a, Trust>,
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<&'a str>,
}

#[derive(Serialize)]
struct MovedOut<'a> {
    r#type: &'static str,
    hash: Put<'a, BlockHash>,
    from: Put<'a, Tier>,
    to: Put<'a, Tier>,
}

#[derive(Serialize)]
struct TrustOut<'a> {
    r#type: &'static str,
    trust: Put<'a, Trust>,
    reason: &'a str,
    bridge: &'a str,
}

#[derive(Serialize)]
struct UnknownOut<'a> {
    r#type: &'a str,
}

impl Wire for Event {
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Result<Self, CodecError>, D::Error> {
        Named::<EventIn>::deserialize(from).map(|wire| wire.0.event())
    }

    fn write<S: Serializer>(&self, show: Show, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Event::Stored(stored) => StoredOut::of(stored, show).serialize(to),
            Event::Removed(removed) => RemovedOut::of(removed, show).serialize(to),
            Event::Cleared(Cleared { scope, cause }) => {
                let (scope, cause) = (Put(scope, show), Put(cause, show));
                ClearedOut { r#type: "cleared", scope, cause }.serialize(to)
            }
            Event::Reset(Reset { cause, trust, snapshot }) => {
                let (trust, snapshot) = (Put(trust, show), snapshot.as_deref());
                ResetOut { r#type: "reset", cause, trust, snapshot }.serialize(to)
            }
            Event::Moved(Moved { hash, from, to: target }) => {
                let (hash, from, target) = (Put(hash, show), Put(from, show), Put(target, show));
                MovedOut { r#type: "moved", hash, from, to: target }.serialize(to)
            }
            Event::Trust(TrustChange { trust, reason, bridge }) => {
                TrustOut { r#type: "trust", trust: Put(trust, show), reason, bridge }.serialize(to)
            }
            Event::Unknown(name) => UnknownOut { r#type: name }.serialize(to),
        }
    }

    fn weight(&self) -> usize {
        match self {
            Event::Stored(stored) => {
                stored.blocks.len() + stored.extra.iter().map(Wire::weight).sum::<usize>()
            }
            Event::Removed(removed) => removed.hashes.len(),
            Event::Cleared(Cleared { scope: Scope::Tiers(tiers), .. }) => tiers.len(),
            Event::Cleared(_)
            | Event::Reset(_)
            | Event::Moved(_)
            | Event::Trust(_)
            | Event::Unknown(_) => 1,
        }
    }
}
