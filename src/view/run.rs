//! Blocks in a row: what one store or one removal does to many blocks alike is accounted for once.
//!
//! It does what `plain` does, for blocks that come one after the other and surprise in nothing. It
//! stops before the first one that does.

use kvbridge_adapters_api::Removal;
use kvbridge_schemas::{BlockHash, StoredBlock, Tier};

use super::{
    View,
    block::{Block, Plain, Spot, count_down_by, count_up_by},
    fold::Output,
    kinds::Kind,
    link::{Delta, LinkParent, NodeId},
    plain::Run,
};

/// Plain blocks of one kind that a removal took away and that are not accounted for yet.
#[derive(Default)]
pub(super) struct Gone {
    kind: Option<GoneKind>,
    blocks: u64,
    copies: u64,
}

struct GoneKind {
    number: u16,
    /// Of their links, if they have any.
    block_size: Option<u32>,
    /// Prefix matching saw them.
    shown: bool,
    partial: bool,
    hint: bool,
}

impl View {
    /// Stores blocks that are new, or one more copy of blocks that are told as before, each with
    /// the one before it as its parent. Returns how many it took, from the first on.
    pub(super) fn store_run(
        &mut self,
        blocks: &[StoredBlock],
        parent: LinkParent,
        run: &mut Run,
        out: &mut Output<'_>,
    ) -> usize {
        let LinkParent::Block(parent) = parent else { return 0 };
        let is_ready = run.ready == Some(parent.key) || self.is_ready(parent);
        if !is_ready || !self.is_simple() {
            return 0;
        }
        let Some(number) = self.number(run) else { return 0 };
        let Kind { spot, link, .. } = &run.kind;
        let Some(link) = link else { return 0 };
        let (block_size, bigram) = (link.block_size, link.bigram);
        self.blocks.reserve(blocks.len());
        out.deltas.reserve(blocks.len());
        let (mut before, mut new_count, mut again_count) = (parent.key, 0_u64, 0_u64);
        for block in blocks {
            let Some(key) = self.short_key(&block.hash) else { break };
            let Some(content) = block.content.filter(|_| key != before) else { break };
            let new = Plain { parent: before, content, count: 1, kind: number, parked: false };
            match self.blocks.seek(key) {
                Err(at) => {
                    self.blocks.fill(at, (key, Block::Plain(new)));
                    out.deltas.push(Delta::Linked {
                        node: NodeId { key, block_size },
                        parent: LinkParent::Block(NodeId { key: before, block_size }),
                        content,
                        bigram,
                        tier: spot.tier.clone(),
                    });
                    new_count += 1;
                }
                Ok(at) => match self.blocks.at_mut(at) {
                    Some((_, Block::Plain(plain))) if plain.is_again(&new) => {
                        plain.count += 1;
                        again_count += 1;
                    }
                    Some((_, Block::Plain(_) | Block::Full(_))) | None => break,
                },
            }
            before = key;
        }
        run.ready = (new_count + again_count > 0).then_some(before).or(run.ready);
        self.kinds.hold_more(number, new_count);
        self.enter_run(run, new_count, again_count);
        usize::try_from(new_count + again_count).unwrap_or(usize::MAX)
    }

    /// Whether nothing waits, and all that is known of a block is beside its key.
    fn is_simple(&self) -> bool {
        self.bare.is_empty() && self.hashes.is_empty() && self.parking.count() == 0
    }

    /// The key of a hash that says no more than the key does.
    fn short_key(&self, hash: &BlockHash) -> Option<u64> {
        let bytes = <[u8; size_of::<u64>()]>::try_from(hash.as_bytes()).ok()?;
        Some(u64::from_be_bytes(bytes)) // of eight bytes, each projection is all
    }

    /// Accounts for blocks of a run's kind: new ones, and others that were there once at least.
    fn enter_run(&mut self, run: &Run, new: u64, again: u64) {
        let Kind { spot, partial, hint, link } = &run.kind;
        if spot.tier == Tier::Device && !partial {
            self.totals.device_copies += new + again;
        }
        if new == 0 {
            return;
        }
        if spot.tier == Tier::Host && *hint {
            self.totals.host_hint_spots += new;
        }
        self.groups.hold_more(spot.group, new);
        count_up_by(&mut self.totals.blocks, &spot.tier, new);
        if let Some(link) = link {
            count_up_by(&mut self.totals.links, &link.block_size, new);
        }
    }

    /// Takes a plain block away, of which this was the last copy and for which nothing is kept
    /// elsewhere. `false` = nothing was done. The caller ends with [`View::end_gone`], and calls it
    /// before it does anything else to the view.
    pub(super) fn drop_next(
        &mut self,
        hash: &BlockHash,
        spot: &Spot,
        gone: &mut Gone,
        out: &mut Output<'_>,
    ) -> bool {
        if !self.is_simple() {
            return false;
        }
        let key = self.settings.projection.apply(hash);
        let Ok(at) = self.blocks.seek(key) else { return false };
        let Some((_, Block::Plain(plain))) = self.blocks.at(at) else { return false };
        if plain.count > 1 && self.settings.removal == Removal::PerCopy {
            return false;
        }
        let (number, copies) = (plain.kind, u64::from(plain.count));
        if gone.kind.as_ref().is_none_or(|kind| kind.number != number) {
            self.end_gone(spot, gone);
            gone.kind = self.gone_kind(number, spot);
        }
        let Some(kind) = &gone.kind else { return false };
        (gone.blocks, gone.copies) = (gone.blocks + 1, gone.copies + copies);
        if let (true, Some(block_size)) = (kind.shown, kind.block_size) {
            let node = NodeId { key, block_size };
            out.deltas.push(Delta::Unlinked { node, tier: spot.tier.clone() });
        }
        self.blocks.take(at);
        true
    }

    /// What the blocks of a kind have in common that go from a spot; `None` if they lie elsewhere.
    fn gone_kind(&self, number: u16, spot: &Spot) -> Option<GoneKind> {
        let kind = self.kinds.get(number).filter(|kind| kind.spot == *spot)?;
        Some(GoneKind {
            number,
            block_size: kind.link.as_ref().map(|link| link.block_size),
            shown: self.groups.match_prefixes(spot.group),
            partial: kind.partial,
            hint: kind.hint,
        })
    }

    /// Accounts for what is gone.
    pub(super) fn end_gone(&mut self, spot: &Spot, gone: &mut Gone) {
        let Gone { kind, blocks, copies } = std::mem::take(gone);
        let Some(kind) = kind.filter(|_| blocks > 0) else { return };
        if spot.tier == Tier::Device && !kind.partial {
            self.totals.device_copies -= copies;
        }
        if spot.tier == Tier::Host && kind.hint {
            self.totals.host_hint_spots -= blocks;
        }
        count_down_by(&mut self.totals.blocks, &spot.tier, blocks);
        if let Some(block_size) = kind.block_size {
            count_down_by(&mut self.totals.links, &block_size, blocks);
        }
        self.groups.release_more(spot.group, blocks);
        self.kinds.release_more(kind.number, blocks);
    }
}
