//! What a store says of all its blocks alike.

use std::sync::Arc;

use kvbridge_schemas::{ExtraKey, Stored, Tier, Tokens};

use super::{
    block::Spot,
    kinds::{Kind, LinkKind},
    link::{Described, Link, LinkParent, extra_hash, namespace},
};

/// The medium of Mooncake's store and of LMCache, whatever they store in. Neither announces
/// removals.
const MEDIUM_WITHOUT_REMOVALS: &str = "cpu";

#[derive(Clone, Copy)]
pub(super) struct Flags {
    pub(super) partial: bool,
    pub(super) hint: bool,
}

/// One store, read once.
pub(super) struct Told {
    pub(super) flags: Flags,
    /// Every block comes with its tokens, in a group that prefix matching uses.
    pub(super) dense: bool,
    /// The tier's engine announces removals.
    pub(super) proven: bool,
    lora: Option<Arc<str>>,
    salt: Option<Arc<str>>,
}

impl Told {
    pub(super) fn of(stored: &Stored, usable_group: bool) -> Told {
        let medium = stored.place.medium.as_deref();
        let hint = stored.place.tier == Tier::Host && medium == Some(MEDIUM_WITHOUT_REMOVALS);
        Told {
            flags: Flags { partial: stored.partial, hint },
            dense: usable_group
                && !stored.partial
                && stored.block_size > 0
                && stored.blocks.iter().all(|block| block.content.is_some()),
            proven: !hint && !stored.place.tier.is_hint(),
            lora: stored.lora.as_deref().map(Arc::from),
            salt: stored.salt.as_deref().map(Arc::from),
        }
    }

    /// The kind of the store's blocks that follow another one.
    pub(super) fn kind(&self, spot: &Spot, stored: &Stored) -> Kind {
        let (block_size, bigram) = (stored.block_size, stored.bigram);
        let (lora, salt) = (self.lora.clone(), self.salt.clone());
        let link = self.dense.then_some(LinkKind { block_size, root: false, bigram, lora, salt });
        let Flags { partial, hint } = self.flags;
        Kind { spot: spot.clone(), partial, hint, link }
    }

    pub(super) fn namespace(&self) -> u64 {
        namespace(self.lora.as_deref(), self.salt.as_deref())
    }

    pub(super) fn extra(&self, stored: &Stored, i: usize) -> Option<u64> {
        let keys = stored.extra.get(i)?;
        extra_hash(keys, self.lora.as_deref(), self.salt.as_deref())
    }

    /// Whether nothing but adapter and salt went into the blocks beside their tokens.
    pub(super) fn has_no_extra(&self, stored: &Stored) -> bool {
        let is_plain = |keys: &Vec<ExtraKey>| {
            keys.is_empty()
                || extra_hash(keys, self.lora.as_deref(), self.salt.as_deref()).is_none()
        };
        stored.extra.iter().all(is_plain)
    }

    pub(super) fn link(
        &self,
        parent: LinkParent,
        content: u64,
        extra: Option<u64>,
        bigram: bool,
    ) -> Link {
        let (lora, salt) = (self.lora.clone(), self.salt.clone());
        Link { parent, content, extra, bigram, lora, salt, parked: false, described: None }
    }

    /// The block for other routers. None of them knows pairs.
    pub(super) fn describe(&self, stored: &Stored, i: usize) -> Option<Arc<Described>> {
        let size = usize::try_from(stored.block_size).ok().filter(|_| !stored.bigram)?;
        let tokens = stored.tokens.0.chunks_exact(size.max(1)).nth(i)?;
        Some(Arc::new(Described {
            tokens: Tokens(tokens.to_vec()),
            lora: self.lora.clone(),
            lora_id: stored.lora_id,
            salt: self.salt.clone(),
            extra: stored.extra.get(i).cloned().unwrap_or_default(),
        }))
    }
}
