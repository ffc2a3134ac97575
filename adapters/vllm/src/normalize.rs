//! From what was sent to what it means, in kvbridge's words.

use kvbridge_adapters_msgpack::{Read, fill_content};
use kvbridge_schemas::{
    ClearCause, Cleared, Event, ExtraKey, Group, GroupKind, Parent, Place, Removed, Scope, Stored,
    Tier, Tokens,
};

use crate::wire::{RawEvent, RawPlace, RawRemoved, RawStored};

/// The event in our words; an unknown tag is given back.
pub(crate) fn event(raw: RawEvent<'_>) -> Read<'_> {
    Read::Event(match raw {
        RawEvent::Stored(raw) => Event::Stored(stored(raw)),
        RawEvent::Removed(raw) => Event::Removed(removed(raw)),
        // It has no tier on the wire. A reset reaches the device alone unless the engine was asked
        // to reset its connectors too, and the event is the same for both.
        RawEvent::Cleared => Event::Cleared(Cleared {
            scope: Scope::Tiers(vec![Tier::Device]),
            cause: ClearCause::Engine,
        }),
        RawEvent::Unknown(tag) => return Read::Unknown(tag),
    })
}

fn stored(mut raw: RawStored<'_>) -> Stored {
    // In a sparse store (0.20 on) masked blocks are left out of the hashes, but not of the tokens.
    fill_content(&raw.tokens, raw.block_size, 0, &mut raw.blocks);
    let parent = match raw.parent.take() {
        Some(hash) => Parent::Block(hash),
        // An offloading connector's note that a known block is somewhere else too (0.11 on): it
        // sends nil because it does not know the parent, not because there is none.
        None if raw.tokens.is_empty() => Parent::Unknown,
        None => Parent::Root,
    };
    let salt = salt(&raw, &parent);
    // The tail of a hybrid model's prompt (0.26 on) is dense in its own, smaller block size; only a
    // block that falls short of what the event itself says is partial.
    let partial = raw.blocks.len() == 1
        && !raw.tokens.is_empty()
        && u32::try_from(raw.tokens.len()).is_ok_and(|count| count < raw.block_size);
    Stored {
        parent,
        block_size: raw.block_size,
        tokens: Tokens(raw.tokens),
        blocks: raw.blocks,
        partial,
        bigram: false,
        place: place(&raw.place),
        lora: raw.lora_name.map(str::to_owned),
        lora_id: raw.lora_id,
        salt,
        extra: raw.extra,
        session: raw.session.map(str::to_owned),
    }
}

fn removed(raw: RawRemoved<'_>) -> Removed {
    Removed { hashes: raw.hashes, place: place(&raw.place) }
}

/// The cache salt, where it can be told from the other bare texts.
///
/// The engine sends extra keys without names: per block the adapter's name, then media items, then,
/// in a sequence's first block only, the salt, then digests. So a text is the salt only when
///
/// - the event starts a sequence (its parent is the root) and the text is in its first entry;
/// - the adapter's name, when there is one, was found there and set aside (once: a salt may equal
///   it);
/// - exactly one bare text is left;
/// - it cannot be a media id: the layout is of a release that sends those as `[id, offset]`, or
///   such an item is in the event, and no later entry has a bare text besides the adapter's name.
///
/// Else the salt stays among the extra keys, where it still keeps foreign blocks apart.
fn salt(raw: &RawStored<'_>, parent: &Parent) -> Option<String> {
    let (first, later) = raw.extra.split_first()?;
    if *parent != Parent::Root {
        return None;
    }
    let item = |key: &ExtraKey| matches!(key, ExtraKey::Item { .. });
    if raw.bare_media && !raw.extra.iter().flatten().any(item) {
        return None;
    }
    let bare = |entry| bare_texts(entry, raw.lora_name);
    if !later.iter().all(|entry| bare(entry).is_some_and(|mut texts| texts.next().is_none())) {
        return None;
    }
    let mut texts = bare(first)?;
    match (texts.next(), texts.next()) {
        (Some(text), None) => Some(text.to_owned()),
        _ => None,
    }
}

/// The bare texts of an entry after the adapter's name; `None` when the name is not where it must
/// be.
fn bare_texts<'e>(
    entry: &'e [ExtraKey],
    lora: Option<&str>,
) -> Option<impl Iterator<Item = &'e str>> {
    let mut texts = entry.iter().filter_map(|key| match key {
        ExtraKey::Text(text) => Some(text.as_str()),
        ExtraKey::Item { .. } | ExtraKey::Bytes(_) => None,
    });
    match lora {
        Some(name) if texts.next() != Some(name) => None,
        _ => Some(texts),
    }
}

fn place(raw: &RawPlace<'_>) -> Place {
    Place {
        tier: tier(raw.medium),
        medium: raw.medium.map(str::to_owned),
        // Without an index the engine has one group (always so to 0.19). A removal tells no kind.
        group: raw.group.map(|index| Group {
            index,
            kind: raw.kind.map(GroupKind::from_name),
            window: raw.window,
        }),
        locality: raw.locality.map(str::to_owned),
        ownership: raw.ownership.map(str::to_owned),
    }
}

/// The tier of a medium, in any case of letters. Releases to 0.10.1.1 send none and mean the GPU.
///
/// A lower-case `cpu` is Mooncake's or LMCache's and is never announced as removed. It is a host
/// tier like `CPU`; who must tell them apart looks at [`Place::medium`], which keeps the word as
/// sent.
fn tier(medium: Option<&str>) -> Tier {
    let Some(medium) = medium else { return Tier::Device };
    let is = |word: &str| medium.eq_ignore_ascii_case(word);
    if is("GPU") {
        Tier::Device
    } else if is("CPU") {
        Tier::Host
    } else if is("STORAGE") || is("FS") || is("DISK") {
        Tier::Disk
    } else if is("OBJ") || is("EXTERNAL") {
        Tier::External
    } else {
        Tier::Other(medium.to_owned())
    }
}
