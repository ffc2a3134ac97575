//! A view that was made up, and all that its line says of it: each kind of event, a withdrawal, a
//! reader that comes late and one that lost some.

use kvbridge_schemas::{
    BlockHash, ClearCause, Cleared, Event, ExtraKey, Parent, Place, Projection, Removed, Replica,
    Scope, Stored, StoredBlock, Tier, TierTrust, Tokens, Trust, content_hash,
};

use super::{Checker, Verdict};
use crate::{
    api::Removal,
    recovery::Tick,
    sink_line::{
        Change, Line, LineSettings, Moment, Needs, Numbered, Numbers, Preset, Sizes, Told, topic_of,
    },
    view::{View, ViewSettings},
};

/// Tokens of a block.
const BLOCK_SIZE: u32 = 16;
/// Between two steps; trust is away for longer than the grace, and silence lasts a heartbeat.
const STEP_MS: u64 = 100;
const GRACE_MS: u64 = 1_000;
const HEARTBEAT_MS: u64 = 1_500;
/// Smaller than the script, so that a late reader is answered out of the view.
const JOURNAL_BATCHES: usize = 4;
/// Far beyond what any count of messages reaches in a step.
const RENUMBER_AFTER: u64 = u64::MAX;

/// What a reader sees or does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// A live batch.
    Live(Numbered),
    /// Another reader comes, or one lost something: it asks from here on.
    Asks(u64),
    /// Part of its answer.
    Replayed(Numbered),
    /// The end marker.
    End,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Specimen {
    /// Whose line it is.
    pub replica: Replica,
    /// Its topic.
    pub topic: String,
    /// What happens, in order.
    pub happenings: Vec<Happening>,
}

/// How a message came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Live.
    Live,
    /// In an answer to a request for the past.
    Answer,
}

impl Kind {
    /// The word shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Live => "live",
            Kind::Answer => "answer",
        }
    }
}

/// A message, and what its reader makes of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Message<'a> {
    /// How it came.
    pub kind: Kind,
    /// Under which topic.
    pub topic: &'a [u8],
    /// Length of its payload.
    pub bytes: usize,
    /// What the reader makes of it.
    pub verdict: Verdict,
}

/// What readers make of a happening.
#[derive(Clone, Debug, PartialEq)]
pub enum Judged<'a> {
    /// One of them asks from here on.
    Asks(u64),
    /// One of them hears something.
    Message(Message<'a>),
}

impl Specimen {
    /// What readers who want that make of it: one follows, others come late or lost some.
    pub fn judged(&self, needs: Needs) -> impl Iterator<Item = Judged<'_>> {
        let topic = self.topic.as_bytes();
        let (mut follower, mut asker) = (Checker::new(needs), Checker::new(needs));
        self.happenings.iter().map(move |happening| match happening {
            Happening::Live(batch) => {
                let verdict = follower.live(&[topic, &batch.seq.to_be_bytes(), &batch.payload]);
                let bytes = batch.payload.len();
                Judged::Message(Message { kind: Kind::Live, topic, bytes, verdict })
            }
            Happening::Asks(start) => {
                asker = Checker::new(needs);
                asker.asks(*start);
                Judged::Asks(*start)
            }
            Happening::Replayed(batch) => {
                let verdict = asker.replayed(topic, &batch.seq.to_be_bytes(), &batch.payload);
                let bytes = batch.payload.len();
                Judged::Message(Message { kind: Kind::Answer, topic, bytes, verdict })
            }
            Happening::End => {
                let verdict = asker.ended(true);
                Judged::Message(Message { kind: Kind::Answer, topic: b"", bytes: 0, verdict })
            }
        })
    }
}

/// A line in the form of a preset, until `count` messages were said.
pub fn specimen(preset: Preset, count: usize, unix_ms: u64) -> Specimen {
    let replica =
        Replica { model: "specimen".to_owned(), instance: "10.0.0.7:8000".to_owned(), rank: 0 };
    let mut world = World::new(preset, unix_ms);
    let mut round = 0;
    while world.messages < count {
        world.round(round);
        round += 1;
    }
    let mut messages = 0;
    let within = |happening: &Happening| {
        messages += usize::from(!matches!(happening, Happening::Asks(_)));
        messages <= count
    };
    let happenings = world.said.into_iter().take_while(within).collect();
    Specimen { topic: topic_of(preset.profile().topic, &replica), replica, happenings }
}

struct World {
    view: View,
    line: Line,
    trust: TierTrust,
    at: Moment,
    said: Vec<Happening>,
    messages: usize,
    /// Answers have no end.
    streamed: bool,
}

/// The blocks of a chain, from one to the other.
struct Chain {
    number: u32,
    adapter: Option<&'static str>,
    salt: Option<&'static str>,
}

impl World {
    fn new(preset: Preset, unix_ms: u64) -> World {
        let settings = ViewSettings::of(Projection::Last8, Removal::PerCopy, 16);
        let profile = preset.profile();
        let at = Moment { now: Tick(0), unix_ms };
        let first_seq = match profile.numbers {
            Numbers::FromZero => 0,
            Numbers::FromClock => unix_ms.saturating_mul(1000),
        };
        let line = LineSettings {
            profile,
            rank: 0,
            tiers: vec![Tier::Device, Tier::Host],
            sizes: Sizes::Own(None),
            grace_ms: GRACE_MS,
            heartbeat_ms: HEARTBEAT_MS,
            journal_batches_max: JOURNAL_BATCHES,
            journal_bytes_max: usize::MAX,
            renumber_after: RENUMBER_AFTER,
        };
        World {
            view: View::new(ViewSettings { describes: true, ..settings }),
            line: Line::new(line, first_seq, at.now),
            trust: TierTrust { device: Trust::Exact, host: Trust::Exact },
            at,
            said: Vec::new(),
            messages: 0,
            streamed: profile.encoding.is_streamed(),
        }
    }

    /// Something of everything; later rounds add chains.
    fn round(&mut self, round: u32) {
        let plain = Chain { number: 2 * round, adapter: None, salt: None };
        let named = Chain { number: 2 * round + 1, adapter: Some("adapter"), salt: Some("pepper") };
        self.step(&[]);
        self.step(&[plain.stores(0, 3, Tier::Device)]);
        self.step(&[named.stores(0, 2, Tier::Device)]);
        self.step(&[plain.stores(3, 5, Tier::Device), plain.stores(0, 1, Tier::Host)]);
        self.step(&[plain.removes(5)]);
        // What is behind it goes before it, and comes back behind it.
        self.step(&[plain.removes(2)]);
        self.step(&[plain.stores(1, 2, Tier::Device)]);
        self.pass(HEARTBEAT_MS);
        let trusted = std::mem::take(&mut self.trust);
        self.step(&[]);
        self.pass(GRACE_MS);
        self.trust = trusted;
        self.step(&[]);
        // A reader that comes now, and one that lost the newest.
        self.ask(0);
        self.ask(self.line.next_seq() - 1);
        let scope = Scope::Tiers(vec![Tier::Device, Tier::Host]);
        self.step(&[Event::Cleared(Cleared { scope, cause: ClearCause::Engine })]);
    }

    fn step(&mut self, events: &[Event]) {
        self.at.now = self.at.now.plus(STEP_MS);
        self.at.unix_ms = self.at.unix_ms.saturating_add(STEP_MS);
        let mut deltas = Vec::new();
        self.view.apply(events, &mut deltas, &mut Vec::new());
        let changes: Vec<Change> =
            deltas.iter().filter_map(|d| Change::of(d, &self.view)).collect();
        let mut out = Vec::new();
        let told = Told { whole: false, changes: &changes, trust: self.trust };
        self.line.told(self.at, told, &mut out);
        self.live(out);
    }

    fn pass(&mut self, ms: u64) {
        self.at.now = self.at.now.plus(ms);
        self.at.unix_ms = self.at.unix_ms.saturating_add(ms);
        let mut out = Vec::new();
        self.line.due(self.at, &mut out);
        self.live(out);
    }

    fn live(&mut self, out: Vec<Numbered>) {
        self.messages += out.len();
        self.said.extend(out.into_iter().map(Happening::Live));
    }

    fn ask(&mut self, start: u64) {
        let batches: Vec<Numbered> = self.line.replay(self.at, start).1.collect();
        self.messages += batches.len();
        self.said.push(Happening::Asks(start));
        self.said.extend(batches.into_iter().map(Happening::Replayed));
        // A stream goes on with what is live.
        if !self.streamed {
            self.messages += 1;
            self.said.push(Happening::End);
        }
    }
}

impl Chain {
    /// The token ids of its first `count` blocks.
    fn tokens(&self, count: u32) -> Vec<u32> {
        (0..count * BLOCK_SIZE).map(|at| self.number * 1000 + at).collect()
    }

    fn hash(&self, count: u32) -> BlockHash {
        BlockHash::from_u64(content_hash(&self.tokens(count)))
    }

    /// Its blocks from `from` to `to`, the first of them number 1.
    fn stores(&self, from: u32, to: u32, tier: Tier) -> Event {
        let all = self.tokens(to);
        let skipped = usize::try_from(from * BLOCK_SIZE).unwrap_or(usize::MAX);
        let tokens = all.get(skipped..).unwrap_or_default();
        let size = usize::try_from(BLOCK_SIZE).unwrap_or(usize::MAX);
        let contents = tokens.chunks_exact(size).map(content_hash);
        let blocks = (from + 1..=to)
            .zip(contents)
            .map(|(at, content)| StoredBlock { hash: self.hash(at), content: Some(content) })
            .collect();
        let extra = (from..to).map(|at| self.extra(at == 0)).collect();
        Event::Stored(Stored {
            parent: if from == 0 { Parent::Root } else { Parent::Block(self.hash(from)) },
            block_size: BLOCK_SIZE,
            tokens: Tokens(tokens.to_vec()),
            blocks,
            partial: false,
            bigram: false,
            place: Place::of(tier),
            lora: self.adapter.map(str::to_owned),
            lora_id: None,
            salt: self.salt.map(str::to_owned),
            extra,
            session: None,
        })
    }

    fn extra(&self, first: bool) -> Vec<ExtraKey> {
        let salt = self.salt.filter(|_| first);
        self.adapter.into_iter().chain(salt).map(|key| ExtraKey::Text(key.to_owned())).collect()
    }

    fn removes(&self, at: u32) -> Event {
        Event::Removed(Removed { hashes: vec![self.hash(at)], place: Place::of(Tier::Device) })
    }
}
