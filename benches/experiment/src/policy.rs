//! Who decides where a request goes: four routers of the report, and ours.
//!
//! The score of the report's router is `matched / input - active / constant`, the highest wins,
//! equal ones take turns. Its table is what it learnt: from events, which here never come, or from
//! what it routed itself, which nothing ever takes out again.

use std::collections::BTreeMap;

use kvbridge::{
    api::Removal,
    index::{
        BackfillMode, BackfillTerms, Generation, Index, Prompt, Published, Query, ReplicaSlot,
        SPECULATIVE_BLOCKS_MAX, SPECULATIVE_TTL_MS,
    },
    recovery::Tick,
    route::{self, Candidate},
    schemas::{
        BlockHash, Cursor, Epoch, Event, Parent, Place, Projection, Removed, Replica, Seq, Stored,
        StoredBlock, Tier, TierTrust, Tokens, Trust,
    },
    view::{ORPHANS_MAX, View, ViewSettings},
};

use crate::{
    dice::Dice,
    pool::{Change, Names},
    work::Turn,
};

/// A way to route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Policy {
    /// A conversation stays where its first turn went, to the least busy one.
    Sticky,
    /// The table is empty: what is left of the score is load.
    EmptyTable { constant: u32 },
    /// What was routed is put in the table when it finished.
    RoutedTable { constant: u32 },
    /// Events in an index that is exact, and the choice of `kvbridge::route`.
    Ours { capacity: Option<u32> },
    /// No event ever comes: the same with backfill alone.
    OursBackfill { capacity: Option<u32> },
}

impl Policy {
    /// The report's four, then ours: with the capacity told that an engine says of itself, and
    /// without.
    pub const ALL: [Policy; 8] = [
        Policy::Sticky,
        Policy::EmptyTable { constant: 64 },
        Policy::RoutedTable { constant: 64 },
        Policy::RoutedTable { constant: 512 },
        Policy::Ours { capacity: Some(512) },
        Policy::OursBackfill { capacity: Some(512) },
        Policy::Ours { capacity: None },
        Policy::OursBackfill { capacity: None },
    ];

    pub fn name(self) -> String {
        match self {
            Policy::Sticky => "conversation-sticky".to_owned(),
            Policy::EmptyTable { constant } => format!("empty table, constant {constant}"),
            Policy::RoutedTable { constant } => format!("backfill, constant {constant}"),
            Policy::Ours { capacity } => format!("kvbridge, events{}", told(capacity)),
            Policy::OursBackfill { capacity } => {
                format!("kvbridge, backfill only{}", told(capacity))
            }
        }
    }
}

fn told(capacity: Option<u32>) -> String {
    capacity.map_or_else(|| ", no capacity told".to_owned(), |it| format!(", capacity {it}"))
}

/// The router of one run.
pub struct Router {
    policy: Policy,
    dice: Dice,
    block_size: u32,
    homes: BTreeMap<u64, usize>,
    tables: Vec<Names>,
    turn: usize,
    index: Index,
    mirrors: Vec<Mirror>,
}

/// What kvbridge has of one replica.
struct Mirror {
    replica: Replica,
    slot: ReplicaSlot,
    view: View,
    next_seq: u64,
}

const MODEL: &str = "m";

impl Router {
    pub fn new(policy: Policy, replicas: usize, block_tokens: u64, seed: u64) -> Router {
        let index = Index::new();
        let mirrors = (0..replicas).map(|at| Mirror::new(&index, at)).collect();
        Router {
            policy,
            dice: Dice::new(seed),
            block_size: u32::try_from(block_tokens).expect("a block of a size in use"),
            homes: BTreeMap::new(),
            tables: vec![Names::default(); replicas],
            turn: 0,
            index,
            mirrors,
        }
    }

    /// Where the turn goes. `active` are the requests at each replica.
    pub fn choose(&mut self, now_us: u64, turn: &Turn, active: &[u32]) -> usize {
        match self.policy {
            Policy::Sticky => match self.homes.get(&turn.conversation) {
                Some(home) => *home,
                None => {
                    let home = self.highest(|at| -f64::from(active[at]));
                    self.homes.insert(turn.conversation, home);
                    home
                }
            },
            Policy::EmptyTable { constant } => {
                self.highest(|at| -f64::from(active[at]) / f64::from(constant))
            }
            Policy::RoutedTable { constant } => {
                let tables = std::mem::take(&mut self.tables);
                let total = turn.blocks.len().max(1) as f64;
                let chosen = self.highest(|at| {
                    let known = turn.blocks.iter().take_while(|it| tables[at].contains(it));
                    known.count() as f64 / total - f64::from(active[at]) / f64::from(constant)
                });
                self.tables = tables;
                chosen
            }
            Policy::Ours { capacity } | Policy::OursBackfill { capacity } => {
                self.ours(now_us, turn, active, capacity)
            }
        }
    }

    /// The highest score; equal ones take turns.
    fn highest(&mut self, score: impl Fn(usize) -> f64) -> usize {
        let count = self.tables.len().max(self.mirrors.len());
        self.turn += 1;
        let order = (0..count).map(|step| (self.turn + step) % count);
        order.reduce(|best, at| if score(at) > score(best) { at } else { best }).unwrap_or(0)
    }

    fn ours(&mut self, now_us: u64, turn: &Turn, active: &[u32], capacity: Option<u32>) -> usize {
        let query = query(turn, self.block_size);
        let mut answer = self.index.query(&query).expect("the replicas are registered");
        self.index.speculate(&query, &mut answer, BackfillMode::Auto, tick(now_us));
        let found = self.mirrors.iter().zip(active);
        let candidates: Vec<Candidate> = found
            .map(|(it, active)| Candidate::found(&answer, &it.replica.key(), *active, capacity))
            .collect();
        let decision = route::choose(&candidates, turn.input_tokens, self.dice.roll());
        decision.expect("there are replicas").chosen
    }

    /// A request is done: the router learns of it from itself.
    pub fn finished(&mut self, now_us: u64, turn: &Turn, at: usize) {
        match self.policy {
            Policy::RoutedTable { .. } => self.tables[at].extend(&turn.blocks),
            Policy::OursBackfill { .. } => {
                let (mode, blocks_max) = (BackfillMode::Auto, SPECULATIVE_BLOCKS_MAX);
                let terms = BackfillTerms {
                    mode,
                    blocks_max,
                    ttl_ms: SPECULATIVE_TTL_MS,
                    now: tick(now_us),
                };
                let query = query(turn, self.block_size);
                let told = self.index.backfill(&self.mirrors[at].replica.key(), &query, terms);
                told.expect("the replica is registered");
            }
            Policy::Sticky | Policy::EmptyTable { .. } | Policy::Ours { .. } => (),
        }
    }

    /// Whether it wants an engine's events.
    pub fn reads_events(&self) -> bool {
        matches!(self.policy, Policy::Ours { .. })
    }

    /// What a replica announces of a turn.
    pub fn events(&self, turn: &Turn, change: &Change) -> Vec<Event> {
        let mut events = Vec::new();
        if let Some(new) = turn.blocks.get(change.held..).filter(|new| !new.is_empty()) {
            let before = change.held.checked_sub(1).map(|last| turn.blocks[last]);
            let parent = before.map_or(Parent::Root, |it| Parent::Block(BlockHash::from_u64(it)));
            events.push(stored(parent, new, self.block_size));
        }
        if !change.evicted.is_empty() {
            let hashes = change.evicted.iter().map(|block| BlockHash::from_u64(*block)).collect();
            events.push(Event::Removed(Removed { hashes, place: Place::of(Tier::Device) }));
        }
        events
    }

    /// A replica's events came.
    pub fn read(&mut self, at: usize, events: &[Event]) {
        self.mirrors[at].read(&self.index, events);
    }
}

impl Mirror {
    fn new(index: &Index, at: usize) -> Mirror {
        let replica = Replica { model: MODEL.into(), instance: format!("replica-{at}"), rank: 0 };
        let slot = index.register(replica.clone());
        let projection = Projection::Last8;
        let (removal, orphans_max) = (Removal::LastCopy, ORPHANS_MAX);
        let view = View::new(ViewSettings::of(projection, removal, orphans_max));
        Mirror { replica, slot, view, next_seq: 0 }
    }

    fn read(&mut self, index: &Index, events: &[Event]) {
        let (mut deltas, mut findings) = (Vec::new(), Vec::new());
        self.view.apply(events, &mut deltas, &mut findings);
        assert!(findings.is_empty(), "a view contradicts the pool: {findings:?}");
        self.next_seq += 1;
        let published = Published {
            cursor: Cursor { epoch: Epoch(1), next_seq: Seq(self.next_seq) },
            trust: TierTrust::all(Trust::Exact),
            reason: "contiguous",
            generation: Generation::default(),
            ..Published::nothing()
        };
        index.apply(self.slot, &deltas, published);
    }
}

fn stored(parent: Parent, blocks: &[u64], block_size: u32) -> Event {
    let block = |name: &u64| StoredBlock { hash: BlockHash::from_u64(*name), content: Some(*name) };
    let blocks: Vec<StoredBlock> = blocks.iter().map(block).collect();
    // A view asks the tokens for their number alone.
    let tokens = Tokens(vec![0; blocks.len() * block_size as usize]);
    Event::Stored(Stored {
        parent,
        block_size,
        tokens,
        blocks,
        partial: false,
        bigram: false,
        place: Place::of(Tier::Device),
        lora: None,
        lora_id: None,
        salt: None,
        extra: Vec::new(),
        session: None,
    })
}

fn query(turn: &Turn, block_size: u32) -> Query<'_> {
    Query {
        model: MODEL,
        prompt: Prompt::Content { hashes: &turn.blocks, block_size },
        lora: None,
        salt: None,
        accept: Trust::Exact,
        hints: false,
    }
}

fn tick(now_us: u64) -> Tick {
    Tick(now_us / 1000)
}
