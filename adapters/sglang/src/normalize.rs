//! From what was sent to what it means, in kvbridge's words.

use kvbridge_adapters_msgpack::{Read, fill_content};
use kvbridge_schemas::{
    ClearCause, Cleared, Event, Parent, Place, Removed, Scope, Stored, Tier, Tokens,
};

use crate::wire::{RawEvent, RawRemoved, RawStored};

/// What a reset of the tree empties: device and host pool. What storage backends hold stays, and is
/// never announced.
pub(crate) fn clear_scope() -> Scope {
    Scope::Tiers(vec![Tier::Device, Tier::Host])
}

/// The event in our words; an unknown tag is given back.
pub(crate) fn event(raw: RawEvent<'_>) -> Read<'_> {
    Read::Event(match raw {
        RawEvent::Stored(raw) => Event::Stored(stored(raw)),
        RawEvent::Removed(raw) => Event::Removed(removed(raw)),
        RawEvent::Cleared => {
            Event::Cleared(Cleared { scope: clear_scope(), cause: ClearCause::Engine })
        }
        RawEvent::Unknown(tag) => return Read::Unknown(tag),
    })
}

fn stored(mut raw: RawStored<'_>) -> Stored {
    // A page of pairs covers one token more than it has pairs.
    let overlap = usize::from(raw.bigram);
    fill_content(&raw.tokens, raw.block_size, overlap, &mut raw.blocks);
    let covered = raw.tokens.len().saturating_sub(overlap);
    let partial = raw.blocks.len() == 1
        && covered > 0
        && u32::try_from(covered).is_ok_and(|count| count < raw.block_size);
    Stored {
        // The engine always knows the parent: nil is the root of its tree.
        parent: raw.parent.map_or(Parent::Root, Parent::Block),
        block_size: raw.block_size,
        tokens: Tokens(raw.tokens),
        blocks: raw.blocks,
        partial,
        bigram: raw.bigram,
        place: place(raw.medium),
        lora: raw.lora_name.map(str::to_owned),
        lora_id: raw.lora_id,
        salt: raw.salt.map(str::to_owned),
        extra: Vec::new(),
        session: raw.session.map(str::to_owned),
    }
}

fn removed(raw: RawRemoved<'_>) -> Removed {
    Removed { hashes: raw.hashes, place: place(raw.medium) }
}

fn place(medium: Option<&str>) -> Place {
    Place { medium: medium.map(str::to_owned), ..Place::of(tier(medium)) }
}

/// The tier of a medium, in any case of letters. Releases before 0.5.9 send none and mean the GPU;
/// `CPU_TIER1` and `CPU_TIER2` are names of a draft for what became `CPU_PINNED`.
fn tier(medium: Option<&str>) -> Tier {
    let Some(medium) = medium else { return Tier::Device };
    let is = |word: &str| medium.eq_ignore_ascii_case(word);
    if is("GPU") {
        Tier::Device
    } else if is("CPU_PINNED") || is("CPU") || is("CPU_TIER1") || is("CPU_TIER2") {
        Tier::Host
    } else if is("DISK") {
        Tier::Disk
    } else if is("EXTERNAL") {
        Tier::External
    } else {
        Tier::Other(medium.to_owned())
    }
}
