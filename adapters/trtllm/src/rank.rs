//! From what was sent to what it means: one rank's events in kvbridge's words.
//!
//! Of several attention windows the largest is kept, of several layer groups the lowest: the same
//! blocks are announced for each of them. What is left out still counts as a seq.

use kvbridge_adapters_api::{Batch, Loss};
use kvbridge_schemas::{
    BlockHash, ClearCause, Cleared, Event, ExtraKey, HashInfo, HashScheme, Moved, Parent, Place,
    Removed, Scope, Seq, SnapshotRecord, Stored, StoredBlock, Tier, Tokens, content_hash, digest,
};

use crate::{
    fault::Fault,
    tree::{Full, Gone, Tree},
    wire::{Data, Head, RawBlock, RawStored, ServerInfo, read_data},
};

/// Format of every batch that came as JSON.
pub const FORMAT_JSON: &str = "trtllm.json";

/// How hashes are computed where nothing says it: all that releases without the field know.
const ALGORITHM_DEFAULT: &str = "v1_block_key";

/// Names of algorithms that go into envelopes; any other is unknown.
const ALGORITHMS: [&str; 5] =
    ["v1_block_key", "v2_sha256", "v2_sha256_64", "v2_blake3", "v2_blake3_64"];

/// What the events of one rank are read with.
#[derive(Debug, Default)]
pub(crate) struct Rank {
    focus: Focus,
    tree: Tree,
    block_size: Option<u32>,
    algorithm: Option<String>,
    /// Blocks of a view that was kept, of which it does not say what they hang on.
    loose: Vec<Gone>,
}

/// Which of the announced windows and layer groups is kept.
#[derive(Debug, Default)]
struct Focus {
    window: Option<u64>,
    group: Option<u32>,
    /// The head of the life was seen: it names them all.
    is_told: bool,
    /// Something else than the head came.
    is_closed: bool,
}

/// What one event became.
#[derive(Debug)]
pub(crate) struct Meaning {
    pub(crate) batch: Batch,
    pub(crate) faults: Vec<Fault>,
    /// Blocks of the device, where the event tells.
    pub(crate) pool_blocks: Option<u64>,
}

impl Rank {
    /// What the engine says of itself.
    pub(crate) fn told(&mut self, info: &ServerInfo) {
        self.block_size = info.tokens_per_block.or(self.block_size);
        self.algorithm.clone_from(&info.kv_cache_hash_algo);
    }

    /// A new life: everything is learned anew, but for what the server says.
    pub(crate) fn restart(&mut self) {
        self.forget();
        self.focus = Focus::default();
    }

    /// The view starts over within the life.
    pub(crate) fn forget(&mut self) {
        self.tree = Tree::default();
        self.loose.clear();
    }

    /// Goes on with a view that was kept.
    pub(crate) fn resume(&mut self, records: Vec<SnapshotRecord>) {
        self.forget();
        for record in records {
            if self.tree.get(&record.hash).is_some() {
                continue;
            }
            if record.block_size > 0 && !record.partial {
                self.block_size.get_or_insert(record.block_size);
            }
            let parent = match record.parent {
                Parent::Block(parent) => Some(parent),
                Parent::Root => None,
                Parent::Unknown => {
                    self.loose.push((record.hash.clone(), record.tier.clone()));
                    None
                }
            };
            // A view of more blocks than are remembered was never told to anybody.
            drop(self.tree.insert(&record.hash, parent.as_ref(), &record.tier, record.partial));
        }
    }

    /// An engine that lets blocks go without a word: with what may go whether a block of unknown
    /// place is still there cannot be told.
    pub(crate) fn drop_loose(&mut self, events: &mut Vec<Event>) {
        let loose = std::mem::take(&mut self.loose);
        let gone = loose.into_iter().filter_map(|(hash, _)| self.tree.take(&hash)).collect();
        removals(gone, events);
    }

    /// Reads an event. `text` are its bytes.
    pub(crate) fn read(&mut self, head: &Head<'_>, text: &str) -> Meaning {
        let mut batch = self.batch(head, text);
        if head.layer_group_id.is_none() {
            self.drop_loose(&mut batch.events);
        }
        let mut faults = Vec::new();
        let mut pool_blocks = None;
        match read_data(head.data) {
            Ok(Data::Created(levels)) => {
                self.focus.created(head);
                if self.focus.keeps(head) {
                    pool_blocks = levels.first().copied();
                }
            }
            Ok(data) => {
                if self.focus.narrows(head) {
                    // What was kept so far is of a window that matches no whole prefix.
                    self.forget();
                    let cause = ClearCause::Repair;
                    batch.events.push(Event::Cleared(Cleared { scope: Scope::All, cause }));
                }
                if self.focus.keeps(head) {
                    self.apply(data, &mut batch.events, &mut faults);
                }
            }
            Err(fault) => faults.push(fault),
        }
        batch.loss = faults.iter().map(|fault| fault.loss()).max().unwrap_or(Loss::Nothing);
        batch.hash.block_size = self.block_size.unwrap_or(0);
        Meaning { batch, faults, pool_blocks }
    }

    fn batch(&self, head: &Head<'_>, text: &str) -> Batch {
        let algorithm = head.hash_algo.as_deref().or(self.algorithm.as_deref());
        let algorithm = algorithm.unwrap_or(ALGORITHM_DEFAULT);
        let scheme = if ALGORITHMS.contains(&algorithm) {
            HashScheme::Named(format!("trtllm.{algorithm}"))
        } else {
            HashScheme::Unknown
        };
        Batch {
            epoch: None,
            incarnation: None,
            seq: Seq(head.event_id),
            span: 1,
            digest: digest(text.as_bytes()),
            ts: 0,
            format: FORMAT_JSON,
            hash: HashInfo { scheme, block_size: 0 },
            rank: head.attention_dp_rank,
            events: Vec::new(),
            loss: Loss::Nothing,
            bytes: u32::try_from(text.len()).unwrap_or(u32::MAX),
        }
    }

    fn apply(&mut self, data: Data, events: &mut Vec<Event>, faults: &mut Vec<Fault>) {
        match data {
            Data::Created(_) => (),
            Data::Stored(stored) => self.stored(stored, events, faults),
            Data::Removed(hashes) => {
                let mut gone = Vec::new();
                hashes.0.iter().for_each(|hash| self.tree.remove(hash, &mut gone));
                removals(gone, events);
            }
            Data::Updated { hash, level } => {
                let Some(to) = level.map(|level| tier(level.new_value)) else { return };
                if let Some(from) = self.tree.relocate(&hash.0, &to) {
                    events.push(Event::Moved(Moved { hash: hash.0, from, to }));
                }
            }
        }
    }

    fn stored(&mut self, raw: RawStored, events: &mut Vec<Event>, faults: &mut Vec<Fault>) {
        let size = self.block_size_of(&raw.blocks);
        let mut parent = raw.parent.map(|hash| hash.0);
        let mut runs = Runs { events, open: None };
        for block in raw.blocks {
            let count = u32::try_from(block.tokens.len()).unwrap_or(u32::MAX);
            if let Some(block_size) = size.filter(|size| count > *size) {
                faults.push(Fault::LongBlock { block_size });
                break;
            }
            let told = told(&block, parent.as_ref(), size.unwrap_or(0));
            if let Err(Full) = self.insert(&block.block_hash.0, parent.as_ref(), told, &mut runs) {
                faults.push(Fault::TooManyBlocks);
                break;
            }
            parent = Some(block.block_hash.0);
        }
        runs.end();
    }

    fn insert(
        &mut self,
        hash: &BlockHash,
        parent: Option<&BlockHash>,
        told: Stored,
        runs: &mut Runs<'_>,
    ) -> Result<(), Full> {
        if let Some(known) = self.tree.get(hash) {
            // What was there already says nothing new.
            runs.end();
            if known.tier == told.place.tier && known.parent.as_ref() == parent {
                return Ok(());
            }
            removals(self.tree.take(hash).into_iter().collect(), runs.events);
        }
        let forgotten = self.tree.insert(hash, parent, &told.place.tier, told.partial)?;
        if let Some(gone) = forgotten {
            runs.end();
            removals(vec![gone], runs.events);
        }
        runs.say(told);
        Ok(())
    }

    /// Tokens per block, as the server says it, or as a chain shows it: only its last block may be
    /// shorter.
    fn block_size_of(&mut self, blocks: &[RawBlock]) -> Option<u32> {
        if let (None, [first, _, ..]) = (self.block_size, blocks) {
            self.block_size = u32::try_from(first.tokens.len()).ok().filter(|size| *size > 0);
        }
        self.block_size
    }
}

impl Focus {
    fn created(&mut self, head: &Head<'_>) {
        if self.is_closed {
            return;
        }
        let larger = head.window_size > self.window;
        let lower = head.window_size == self.window
            && head.layer_group_id.is_some_and(|group| self.group.is_none_or(|own| group < own));
        if !self.is_told || larger || lower {
            self.window = head.window_size;
            self.group = head.layer_group_id;
        }
        self.is_told = true;
    }

    /// Whether an event shows that another window or group should have been kept: only where the
    /// head of the life, which names all, was missed.
    fn narrows(&mut self, head: &Head<'_>) -> bool {
        let first = !std::mem::replace(&mut self.is_closed, true);
        if self.is_told {
            if self.group.is_none() && head.window_size == self.window {
                self.group = head.layer_group_id;
            }
            return false;
        }
        let larger = head.window_size > self.window;
        let lower = head.window_size == self.window
            && head.layer_group_id.is_some()
            && head.layer_group_id < self.group.or(Some(u32::MAX));
        if first || larger || lower {
            self.window = head.window_size;
            self.group = head.layer_group_id;
        }
        !first && (larger || lower)
    }

    fn keeps(&self, head: &Head<'_>) -> bool {
        let window = head.window_size.is_none() || head.window_size == self.window;
        window && (head.layer_group_id.is_none() || head.layer_group_id == self.group)
    }
}

/// 0 is the device, 1 the host, 2 the disk of the newer cache manager.
fn tier(level: u32) -> Tier {
    match level {
        0 => Tier::Device,
        1 => Tier::Host,
        2 => Tier::Disk,
        level => Tier::Other(format!("level_{level}")),
    }
}

/// One removal for each run of blocks of a tier.
fn removals(gone: Vec<Gone>, events: &mut Vec<Event>) {
    let first = events.len();
    for (hash, tier) in gone {
        let own = events.len() > first;
        match events.last_mut().filter(|_| own) {
            Some(Event::Removed(last)) if last.place.tier == tier => last.hashes.push(hash),
            _ => {
                events.push(Event::Removed(Removed { hashes: vec![hash], place: Place::of(tier) }))
            }
        }
    }
}

/// One block as a store of its own.
fn told(block: &RawBlock, parent: Option<&BlockHash>, size: u32) -> Stored {
    let count = u32::try_from(block.tokens.len()).unwrap_or(u32::MAX);
    // Of a size that nobody told, a block by itself may be a part of one.
    let partial = size == 0 || count < size;
    // A media digest stands for a token that nobody can ask for.
    let is_plain = block.tokens.digest_count == 0;
    let content = (is_plain && !partial).then(|| content_hash(&block.tokens.ids));
    let extra = extra(block);
    Stored {
        parent: parent.map_or(Parent::Root, |hash| Parent::Block(hash.clone())),
        block_size: size,
        tokens: Tokens(if is_plain { block.tokens.ids.clone() } else { Vec::new() }),
        blocks: vec![StoredBlock { hash: block.block_hash.0.clone(), content }],
        partial,
        bigram: false,
        place: Place::of(tier(block.cache_level)),
        lora: None,
        lora_id: None,
        salt: block.cache_salt.clone(),
        extra: if extra.is_empty() { Vec::new() } else { vec![extra] },
        session: None,
    }
}

/// What went into the hash beside tokens and salt.
fn extra(block: &RawBlock) -> Vec<ExtraKey> {
    let media = block.mm_keys.iter().flatten();
    let media = media.map(|key| ExtraKey::Item { id: key.hash.clone(), offset: key.start_offset });
    let ids = &block.tokens.extra_ids;
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    media.chain((!bytes.is_empty()).then_some(ExtraKey::Bytes(bytes))).collect()
}

/// Stores on their way out: neighbours of a chain that are alike become one.
struct Runs<'a> {
    events: &'a mut Vec<Event>,
    open: Option<Stored>,
}

impl Runs<'_> {
    fn end(&mut self) {
        self.events.extend(self.open.take().map(Event::Stored));
    }

    fn say(&mut self, mut next: Stored) {
        if let Some(run) = &mut self.open
            && is_alike(run, &next)
        {
            run.tokens.0.append(&mut next.tokens.0);
            run.blocks.append(&mut next.blocks);
            return;
        }
        self.end();
        self.open = Some(next);
    }
}

/// Whether one store can say both.
fn is_alike(run: &Stored, next: &Stored) -> bool {
    let is_plain = |stored: &Stored| {
        stored.extra.is_empty() && stored.blocks.iter().all(|block| block.content.is_some())
    };
    let place = (&run.place, &run.salt, run.partial) == (&next.place, &next.salt, next.partial);
    place && is_plain(run) && is_plain(next)
}
