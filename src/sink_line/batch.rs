//! Facts for routers, and their bytes: the batches of engines that publish msgpack.
//!
//! `[ts, events, rank]`, three elements always, `ts` a fraction of 8 bytes: readers want both. A
//! hash is a number of 9 bytes whatever its value, because some readers know no shorter form. What
//! is a stream of protobuf instead is written in `smg`.

use std::sync::Arc;

use kvbridge_schemas::{ExtraKey, Tier, msgpack::Pen};

use super::{
    Payload,
    preset::{Encoding, Form, Profile},
};
use crate::view::Described;

/// Blocks of one batch. Smaller: more frames for a view. Larger: a frame of 16-token blocks passes
/// half a megabyte, and a reader is that long without another.
const BLOCKS_MAX: usize = 4096;

/// Token ids of one batch, but for those of its first block. Smaller: more frames for a view of
/// large blocks. Larger: a message of gRPC passes the 4 MiB that its readers take.
const TOKENS_MAX: usize = 256 * 1024;

/// Bytes of a batch and of a block beside its tokens, to reserve.
const BATCH_BYTES: usize = 64;
const BLOCK_BYTES: usize = 16;

#[derive(Debug)]
pub(super) enum Fact {
    Stored { key: u64, parent: Option<u64>, tier: Tier, described: Arc<Described> },
    Removed { key: u64, tier: Tier },
    Cleared,
}

/// What happened, in order.
#[derive(Debug, Default)]
pub(super) struct Facts(Vec<Fact>);

impl Facts {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn stored(
        &mut self,
        key: u64,
        parent: Option<u64>,
        tier: Tier,
        described: Arc<Described>,
    ) {
        self.0.push(Fact::Stored { key, parent, tier, described });
    }

    pub(super) fn removed(&mut self, key: u64, tier: Tier) {
        self.0.push(Fact::Removed { key, tier });
    }

    pub(super) fn cleared(&mut self) {
        self.0.push(Fact::Cleared);
    }

    pub(super) fn into_facts(self) -> Vec<Fact> {
        self.0
    }

    /// The blocks that are in a removal, children first, and those in a store, parents first.
    pub(super) fn keys(&self) -> (Vec<u64>, Vec<u64>) {
        let (mut removed, mut stored) = (Vec::new(), Vec::new());
        for fact in &self.0 {
            match fact {
                Fact::Stored { key, .. } => stored.push(*key),
                Fact::Removed { key, .. } => removed.push(*key),
                Fact::Cleared => (),
            }
        }
        (removed, stored)
    }

    /// As batches of a bounded size; one without events if there are none.
    pub(super) fn batches(&self, profile: &Profile, rank: u32, unix_ms: u64) -> Vec<Payload> {
        if self.0.is_empty() {
            return vec![batch(&[], profile, rank, unix_ms)];
        }
        self.pieces().into_iter().map(|facts| batch(facts, profile, rank, unix_ms)).collect()
    }

    /// What goes into one batch each.
    pub(super) fn pieces(&self) -> Vec<&[Fact]> {
        let (mut pieces, mut rest, mut tokens) = (Vec::new(), self.0.as_slice(), 0);
        let mut count = 0;
        for fact in &self.0 {
            let more = fact.token_count();
            if count == BLOCKS_MAX || (count > 0 && tokens + more > TOKENS_MAX) {
                let (piece, behind) = rest.split_at(count);
                pieces.push(piece);
                (rest, count, tokens) = (behind, 0, 0);
            }
            (count, tokens) = (count + 1, tokens + more);
        }
        pieces.push(rest);
        pieces
    }

    /// As one batch, however large.
    pub(super) fn one_batch(&self, profile: &Profile, rank: u32, unix_ms: u64) -> Payload {
        batch(&self.0, profile, rank, unix_ms)
    }
}

impl Fact {
    fn token_count(&self) -> usize {
        match self {
            Fact::Stored { described, .. } => described.tokens.0.len(),
            Fact::Removed { .. } | Fact::Cleared => 0,
        }
    }
}

fn batch(facts: &[Fact], profile: &Profile, rank: u32, unix_ms: u64) -> Payload {
    match profile.encoding {
        Encoding::Msgpack => msgpack(facts, profile, rank, unix_ms),
        #[cfg(feature = "sink-smg")]
        Encoding::Protobuf => super::smg::batch(facts, unix_ms, None),
    }
}

fn msgpack(facts: &[Fact], profile: &Profile, rank: u32, unix_ms: u64) -> Payload {
    let tokens: usize = facts.iter().map(|fact| fact.token_count() * 5 + BLOCK_BYTES).sum();
    let mut pen = Pen::new(BATCH_BYTES + tokens);
    pen.array(3);
    pen.float(std::time::Duration::from_millis(unix_ms).as_secs_f64());
    let events: Vec<&[Fact]> =
        facts.chunk_by(|one, next| !profile.one_block_per_event && continues(one, next)).collect();
    pen.array(events.len());
    for event in events {
        write_event(&mut pen, event, profile.form, profile.salt_tag);
    }
    pen.uint(u64::from(rank));
    Payload::from(pen.into_bytes())
}

/// Whether two facts are one event.
pub(super) fn continues(one: &Fact, next: &Fact) -> bool {
    match (one, next) {
        (
            Fact::Stored { key, tier, described, .. },
            Fact::Stored { parent, tier: next_tier, described: next_described, .. },
        ) => {
            let (a, b) = (described, next_described);
            *parent == Some(*key)
                && tier == next_tier
                && (&a.lora, a.lora_id) == (&b.lora, b.lora_id)
                && a.tokens.0.len() == b.tokens.0.len()
        }
        (Fact::Removed { tier, .. }, Fact::Removed { tier: next_tier, .. }) => tier == next_tier,
        _ => false,
    }
}

fn write_event(pen: &mut Pen, facts: &[Fact], form: Form, salt_tag: &str) {
    let mut event = EventPen { pen, form };
    match facts {
        [Fact::Stored { parent, tier, described, .. }, ..] => {
            let blocks: Vec<(u64, &Described)> = facts
                .iter()
                .filter_map(|fact| match fact {
                    Fact::Stored { key, described, .. } => Some((*key, described.as_ref())),
                    Fact::Removed { .. } | Fact::Cleared => None,
                })
                .collect();
            event.stored((*parent, tier), described, &blocks, salt_tag);
        }
        [Fact::Removed { tier, .. }, ..] => {
            let keys: Vec<u64> = facts
                .iter()
                .filter_map(|fact| match fact {
                    Fact::Removed { key, .. } => Some(*key),
                    Fact::Stored { .. } | Fact::Cleared => None,
                })
                .collect();
            event.removed(&keys, tier);
        }
        [Fact::Cleared, ..] | [] => event.open("AllBlocksCleared", 0),
    }
}

/// Writes one event, by name or by position.
struct EventPen<'a> {
    pen: &'a mut Pen,
    form: Form,
}

impl EventPen<'_> {
    fn open(&mut self, tag: &str, field_count: usize) {
        match self.form {
            Form::Maps => {
                self.pen.map(field_count + 1);
                self.pen.text("type");
            }
            Form::Arrays => self.pen.array(field_count + 1),
        }
        self.pen.text(tag);
    }

    fn key(&mut self, name: &str) {
        if self.form == Form::Maps {
            self.pen.text(name);
        }
    }

    fn hashes(&mut self, keys: impl ExactSizeIterator<Item = u64>) {
        self.key("block_hashes");
        self.pen.array(keys.len());
        keys.for_each(|key| self.pen.wide_uint(key));
    }

    fn medium(&mut self, tier: &Tier) {
        self.key("medium");
        self.pen.text(match tier {
            Tier::Device => "GPU",
            Tier::Host => "CPU",
            Tier::Disk => "DISK",
            Tier::External => "OBJ",
            Tier::Other(medium) => medium,
        });
    }

    fn stored(
        &mut self,
        (parent, tier): (Option<u64>, &Tier),
        first: &Described,
        blocks: &[(u64, &Described)],
        salt_tag: &str,
    ) {
        let extra: Vec<Vec<Extra<'_>>> = blocks
            .iter()
            .enumerate()
            .map(|(at, (_, block))| extra_keys(block, at == 0 && parent.is_none(), salt_tag))
            .collect();
        let has_extra = extra.iter().any(|keys| !keys.is_empty());
        self.open("BlockStored", 7 + usize::from(has_extra || self.form == Form::Arrays));
        self.hashes(blocks.iter().map(|(key, _)| *key));
        self.key("parent_block_hash");
        match parent {
            Some(parent) => self.pen.wide_uint(parent),
            None => self.pen.nil(),
        }
        self.key("token_ids");
        self.pen.array(blocks.iter().map(|(_, block)| block.tokens.0.len()).sum());
        blocks.iter().for_each(|(_, block)| self.pen.ids(&block.tokens.0));
        self.key("block_size");
        self.pen.uint(u64::try_from(first.tokens.0.len()).unwrap_or(u64::MAX));
        self.key("lora_id");
        match first.lora_id {
            Some(id) => self.pen.int(id),
            None => self.pen.nil(),
        }
        self.medium(tier);
        self.key("lora_name");
        match &first.lora {
            Some(name) => self.pen.text(name),
            None => self.pen.nil(),
        }
        if has_extra {
            self.key("extra_keys");
            self.pen.array(extra.len());
            extra.iter().for_each(|keys| self.extra(keys));
        } else if self.form == Form::Arrays {
            self.pen.nil();
        }
    }

    fn extra(&mut self, keys: &[Extra<'_>]) {
        if keys.is_empty() {
            return self.pen.nil();
        }
        self.pen.array(keys.len());
        for key in keys {
            match key {
                Extra::Salt(text) => self.pen.text(text),
                Extra::Key(ExtraKey::Text(text)) => self.pen.text(text),
                Extra::Key(ExtraKey::Item { id, offset }) => {
                    self.pen.array(2);
                    self.pen.text(id);
                    self.pen.int(*offset);
                }
                Extra::Key(ExtraKey::Bytes(digest)) => self.pen.bin(digest),
            }
        }
    }

    fn removed(&mut self, keys: &[u64], tier: &Tier) {
        self.open("BlockRemoved", 2);
        self.hashes(keys.iter().copied());
        self.medium(tier);
    }
}

/// An extra key as it goes out.
enum Extra<'a> {
    Key(&'a ExtraKey),
    Salt(String),
}

/// The extra keys of a block, its salt under the reader's tag. Only the block that starts a
/// sequence carries it: the others have it through their parents.
fn extra_keys<'a>(block: &'a Described, starts: bool, salt_tag: &str) -> Vec<Extra<'a>> {
    let salt = block.salt.as_deref().filter(|salt| starts && !salt.is_empty());
    let mut keys: Vec<Extra<'a>> = block.extra.iter().map(Extra::Key).collect();
    let Some(salt) = salt else { return keys };
    let tagged = Extra::Salt(format!("{salt_tag}{salt}"));
    // The last of them: the adapter's name comes first, and may be the same text.
    let bare = ExtraKey::Text(salt.to_owned());
    let is_salt = |key: &Extra<'_>| matches!(key, Extra::Key(key) if **key == bare);
    match keys.iter().rposition(is_salt).and_then(|at| keys.get_mut(at)) {
        Some(key) => *key = tagged,
        None => keys.push(tagged),
    }
    keys
}
