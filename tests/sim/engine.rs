//! A model engine: a bounded pool with copies, groups and a host tier, a journal, and a memory of
//! everything it ever held. What it holds after each batch is the truth.

use std::collections::{BTreeMap, VecDeque};

use kvbridge::{
    api::{Batch, Loss},
    schemas::{
        BlockHash, ClearCause, Cleared, Digest, Epoch, Event, HashInfo, HashScheme, Parent, Scope,
        Seq, Tier, digest,
    },
};

use crate::{
    events::{payload_of, removed, stored},
    rng::Rng,
};

/// (hash, tier, group) → copies.
pub(crate) type Residency = BTreeMap<(u64, Tier, u32), u32>;

/// What kind of engine a run has.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    pub(crate) epoch_on_wire: bool,
    pub(crate) journal_max: usize,
    pub(crate) host_tier: bool,
    pub(crate) groups: u32,
    pub(crate) pool: usize,
    pub(crate) frozen_clock: bool,
    pub(crate) replay: bool,
    pub(crate) snapshot: bool,
    pub(crate) unproven: bool,
    /// Whoever reads takes away.
    pub(crate) drained: bool,
    /// Its snapshots say how many copies there are.
    pub(crate) counts: bool,
    /// It has a tree and not a pool of copies.
    pub(crate) radix: Option<Radix>,
}

/// What an engine with a tree differs in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Radix {
    /// Live batches name the life.
    pub(crate) named: bool,
    /// Replayed ones too.
    pub(crate) replay_named: bool,
    /// It has one tier and one page a hash, its operator says so, and it answers hashes alone.
    pub(crate) bare: bool,
}

impl Profile {
    /// What its clear empties.
    pub(crate) fn clear_scope(&self) -> Scope {
        let device = Tier::Device;
        Scope::Tiers(if self.radix.is_some() { vec![device, Tier::Host] } else { vec![device] })
    }
}

/// What an operation of the engine does to its stream beside the batch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Quirks {
    pub(crate) burn_seq: bool,
    pub(crate) poison: bool,
    pub(crate) lose_store: bool,
    pub(crate) unknown_tag: bool,
    pub(crate) clear: bool,
    pub(crate) repair: bool,
}

/// The model engine.
pub(crate) struct Engine {
    pub(crate) profile: Profile,
    pub(crate) life: usize,
    pub(crate) next_seq: u64,
    journal: VecDeque<Batch>,
    held: Residency,
    order: VecDeque<(u64, u32)>,
    /// truth[life][seq] = what is held after that batch.
    truth: Vec<Vec<Residency>>,
    /// What each life published, by seq: its bytes in short.
    pub(crate) made: Vec<BTreeMap<Seq, Digest>>,
    /// When each life ended.
    pub(crate) ended_at: Vec<Option<u64>>,
    /// Whether something of this life can never be learnt from its stream.
    pub(crate) spoiled: bool,
    pub(crate) tag_lost: bool,
    pub(crate) replay_work: u64,
    rng: Rng,
    life_seed: u64,
}

const CHAINS: u64 = 6;

fn hash_of(chain: u64, depth: u64) -> u64 {
    chain * 1_000 + depth + 1
}

/// The chain of a hash, and how many come before it there.
pub(crate) fn place_of(hash: u64) -> (u64, u64) {
    ((hash - 1) / 1_000, (hash - 1) % 1_000)
}

impl Engine {
    pub(crate) fn new(profile: Profile, rng: &mut Rng) -> Engine {
        let life_seed = rng.next();
        let mut engine = Engine {
            profile,
            life: 0,
            next_seq: 0,
            journal: VecDeque::new(),
            held: Residency::new(),
            order: VecDeque::new(),
            truth: vec![Vec::new()],
            made: vec![BTreeMap::new()],
            ended_at: vec![None],
            spoiled: false,
            tag_lost: false,
            replay_work: 0,
            rng: Rng::new(life_seed),
            life_seed,
        };
        engine.begin(0);
        engine
    }

    /// A tree says first of all that it is empty. Nobody can have subscribed yet.
    fn begin(&mut self, now: u64) {
        if self.profile.radix.is_some() {
            let clear = self.batch(now, vec![self.cleared()], Loss::Nothing);
            self.remember();
            self.keep(clear);
        }
    }

    /// That first batch, for whoever kept a connection to what stands before the engine.
    pub(crate) fn start_clear(&self) -> Option<Batch> {
        self.profile.radix.and_then(|_| self.journal.front().cloned())
    }

    fn cleared(&self) -> Event {
        Event::Cleared(Cleared { scope: self.profile.clear_scope(), cause: ClearCause::Engine })
    }

    /// A new process: empty cache, seq from 0, empty journal.
    pub(crate) fn restart(&mut self, now: u64) {
        self.ended_at[self.life] = Some(now);
        self.ended_at.push(None);
        self.truth.push(Vec::new());
        self.made.push(BTreeMap::new());
        self.life += 1;
        self.next_seq = 0;
        self.journal.clear();
        self.held.clear();
        self.order.clear();
        self.spoiled = false;
        self.tag_lost = false;
        // With a clock that stands still and the same prompts, lives begin with equal batches.
        self.rng = Rng::new(if self.profile.frozen_clock {
            self.life_seed
        } else {
            self.life_seed ^ self.life as u64
        });
        self.begin(now);
    }

    /// What a life held when its `next_seq` was this.
    pub(crate) fn truth(&self, life: usize, next_seq: u64) -> Option<Residency> {
        let Some(last) = next_seq.checked_sub(1) else { return Some(Residency::new()) };
        self.truth[life].get(usize::try_from(last).unwrap()).cloned()
    }

    /// One step of the scheduler: a prompt comes, blocks are stored, others make room.
    pub(crate) fn step(&mut self, now: u64, quirks: Quirks) -> Option<Batch> {
        // After a few equal steps even a frozen life goes its own way.
        if self.next_seq == 6 {
            self.rng = Rng::new(self.life_seed ^ (self.life as u64) << 32 ^ 1);
        }
        let mut events = Vec::new();
        if quirks.repair && self.profile.epoch_on_wire {
            // A bridge between the engine and us lost history: it clears, the engine does not.
            events.push(Event::Cleared(Cleared { scope: Scope::All, cause: ClearCause::Repair }));
            self.spoiled = true;
        }
        if quirks.clear {
            let scope = self.profile.clear_scope();
            self.held.retain(|(_, tier, _), _| !scope.contains(tier));
            self.order.clear();
            events.push(self.cleared());
        }
        self.serve_prompt(&mut events);
        let lost_index = quirks
            .lose_store
            .then(|| events.iter().position(|event| matches!(event, Event::Stored(_))));
        let mut loss = Loss::Nothing;
        if let Some(Some(index)) = lost_index {
            events.remove(index);
            loss = Loss::Stores;
            self.spoiled = true;
        }
        if quirks.unknown_tag {
            loss = Loss::MayRemove;
            self.spoiled = true;
            self.tag_lost = true;
        }
        if quirks.poison {
            events.clear();
            loss = Loss::Body;
            self.spoiled = true;
        }
        if quirks.clear && loss == Loss::Nothing && !quirks.burn_seq {
            self.tag_lost = false;
        }
        let batch = self.batch(now, events, loss);
        self.remember();
        if quirks.burn_seq {
            // The publisher took the number and could not encode: neither sent nor kept.
            self.spoiled = true;
            return None;
        }
        self.keep(batch.clone());
        Some(batch)
    }

    /// An empty batch: the marker that proves a snapshot's cut.
    pub(crate) fn barrier(&mut self, now: u64) -> Batch {
        let mut batch = self.batch(now, Vec::new(), Loss::Nothing);
        // It is empty, and behind a snapshot it may be all that is known of a life: only its time
        // tells it from the next life's. With a clock that stands still nobody could.
        batch.digest = digest(format!("barrier {now} {}", self.life).as_bytes());
        self.remember();
        self.keep(batch.clone());
        batch
    }

    pub(crate) fn state(&self) -> Residency {
        self.held.clone()
    }

    /// The journal from `start` on. Serving it pauses the live stream, so the work is counted.
    pub(crate) fn replay(&mut self, start: Seq) -> Vec<Batch> {
        let mut batches: Vec<Batch> =
            self.journal.iter().filter(|batch| batch.seq >= start).cloned().collect();
        if self.profile.radix.is_some_and(|radix| !radix.replay_named) {
            batches.iter_mut().for_each(|batch| batch.incarnation = None);
        }
        self.replay_work += batches.len() as u64;
        batches
    }

    pub(crate) fn journal_is_whole(&self) -> bool {
        self.journal.len() as u64 == self.next_seq
    }

    fn keep(&mut self, batch: Batch) {
        self.made[self.life].insert(batch.seq, batch.digest);
        self.journal.push_back(batch);
        while self.journal.len() > self.profile.journal_max {
            self.journal.pop_front();
        }
    }

    fn remember(&mut self) {
        self.truth[self.life].push(self.held.clone());
        self.next_seq += 1;
    }

    fn batch(&self, now: u64, events: Vec<Event>, loss: Loss) -> Batch {
        let ts = if self.profile.frozen_clock { 1 } else { now * 1_000 + self.life as u64 };
        let payload = payload_of(ts, loss, &events);
        Batch {
            epoch: self.profile.epoch_on_wire.then_some(Epoch(1_000 + self.life as u64)),
            incarnation: self
                .profile
                .radix
                .filter(|radix| radix.named)
                .map(|_| format!("life {}", self.life)),
            seq: Seq(self.next_seq),
            span: 1,
            digest: digest(&payload),
            ts,
            format: "model",
            hash: HashInfo { scheme: HashScheme::Unknown, block_size: 2 },
            rank: None,
            events,
            loss,
            bytes: 100,
        }
    }

    fn serve_prompt(&mut self, events: &mut Vec<Event>) {
        let chain = self.rng.below(CHAINS);
        let length = 1 + self.rng.below(6);
        let group = u32::try_from(self.rng.below(u64::from(self.profile.groups))).unwrap();
        // Sometimes two requests compute the same prefix at once: a second physical copy.
        let copy = self.rng.hit(1_500) && !self.profile.radix.is_some_and(|radix| radix.bare);
        let mut run = Vec::new();
        for depth in 0..length {
            let hash = hash_of(chain, depth);
            let known = self.held.contains_key(&(hash, Tier::Device, group));
            if known && !copy {
                self.flush_run(&mut run, (chain, depth), group, events);
                continue;
            }
            while self.order.len() >= self.profile.pool {
                self.flush_run(&mut run, (chain, depth), group, events);
                self.evict(events);
            }
            *self.held.entry((hash, Tier::Device, group)).or_default() += 1;
            self.order.push_back((hash, group));
            run.push(hash);
        }
        self.flush_run(&mut run, (chain, length), group, events);
        if self.profile.host_tier && self.rng.hit(3_000) {
            self.offload(events);
        }
    }

    /// Says what a run of stores was that ends ahead of `(chain, depth)`.
    fn flush_run(
        &self,
        run: &mut Vec<u64>,
        (chain, end): (u64, u64),
        group: u32,
        out: &mut Vec<Event>,
    ) {
        if run.is_empty() {
            return;
        }
        let first = end - run.len() as u64;
        let parent = match first {
            0 => Parent::Root,
            depth => Parent::Block(BlockHash::from_u64(hash_of(chain, depth - 1))),
        };
        let blocks = run.drain(..);
        out.push(stored(parent, blocks.collect(), Tier::Device, group, self.profile.groups));
    }

    fn evict(&mut self, events: &mut Vec<Event>) {
        let Some((hash, group)) = self.order.pop_front() else { return };
        take(&mut self.held, &(hash, Tier::Device, group));
        events.push(removed(hash, Tier::Device, group, self.profile.groups));
    }

    fn offload(&mut self, events: &mut Vec<Event>) {
        let host: Vec<_> =
            self.held.keys().filter(|(_, tier, _)| *tier == Tier::Host).cloned().collect();
        if host.len() > 8 {
            let key = host[usize::try_from(self.rng.below(host.len() as u64)).unwrap()].clone();
            take(&mut self.held, &key);
            events.push(removed(key.0, Tier::Host, key.2, self.profile.groups));
        }
        let Some((hash, group)) = self.order.back().copied() else { return };
        *self.held.entry((hash, Tier::Host, group)).or_default() += 1;
        let groups = self.profile.groups;
        events.push(stored(Parent::Unknown, vec![hash], Tier::Host, group, groups));
    }
}

fn take(held: &mut Residency, key: &(u64, Tier, u32)) {
    if let Some(count) = held.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            held.remove(key);
        }
    }
}
