//! The fleet: context replicas with a queue each, one request at a time, events that come late.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
};

use kvbridge::{
    recovery::Tick,
    schemas::Event,
    slo::{Conversations, Served, Turn as TurnKind},
};

use crate::{
    policy::{Policy, Router},
    pool::Pool,
    work::{Turn, Work},
};

/// What a run is of. docs/experiments.md says where each figure comes from.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub replicas: usize,
    /// Conversations that go on at once.
    pub concurrency: usize,
    /// Mean input of a first turn.
    pub first_tokens: u64,
    /// Mean turns of a conversation.
    pub turns: u64,
    /// Mean answer. It is part of the next turn's input, and was made by another server.
    pub output_tokens: u64,
    /// What a user or a tool adds each turn.
    pub asked_tokens: u64,
    pub block_tokens: u64,
    /// What one replica's cache holds.
    pub pool_tokens: u64,
    /// Tokens that one replica computes in a second.
    pub prefill_tokens_s: u64,
    /// What a request costs beside its tokens.
    pub overhead_us: u64,
    /// Time for one token of an answer.
    pub output_token_us: u64,
    /// How long an event is on its way.
    pub events_late_us: u64,
    /// Requests until the caches are as they will be; not counted.
    pub warm_requests: u64,
    /// Requests that are counted.
    pub requests: u64,
}

/// What came of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Cached part of all input tokens.
    pub hit_rate: f64,
    /// Part of the follow-up turns of which under half was cached.
    pub scatter: f64,
    /// Median and 95 % of the time until the input was computed, seconds.
    pub waited_s: (f64, f64),
    /// Mean input of a request.
    pub input_tokens: f64,
    /// Mean of requests at one replica.
    pub active: f64,
}

struct Job {
    turn: Turn,
    /// Its place in the loop, unless it was recorded.
    place: Option<usize>,
    came_us: u64,
}

#[derive(Default)]
struct Replica {
    queue: VecDeque<Job>,
    running: Option<Job>,
}

enum Happening {
    /// A place in the loop asks again.
    Asks(usize),
    /// A recorded request comes.
    Comes(Box<Turn>),
    /// A replica has computed what it runs.
    Done(usize),
    /// Events of a replica are read.
    Read(usize, Vec<Event>),
}

pub struct World {
    setting: Setting,
    work: Work,
    router: Router,
    replicas: Vec<Replica>,
    pools: Vec<Pool>,
    active: Vec<u32>,
    now_us: u64,
    order: BinaryHeap<Reverse<(u64, u64)>>,
    happenings: BTreeMap<u64, Happening>,
    planned: u64,
    conversations: Conversations,
    tally: Tally,
}

#[derive(Default)]
struct Tally {
    finished: u64,
    requests: u64,
    input: u64,
    cached: u64,
    follow_ups: u64,
    scattered: u64,
    waited_us: Vec<u64>,
    active: u64,
}

impl World {
    pub fn new(setting: Setting, work: Work, policy: Policy, seed: u64) -> World {
        let blocks = usize::try_from(setting.pool_tokens / setting.block_tokens).unwrap_or(0);
        World {
            setting,
            work,
            router: Router::new(policy, setting.replicas, setting.block_tokens, seed),
            replicas: (0..setting.replicas).map(|_| Replica::default()).collect(),
            pools: (0..setting.replicas).map(|_| Pool::new(blocks)).collect(),
            active: vec![0; setting.replicas],
            now_us: 0,
            order: BinaryHeap::new(),
            happenings: BTreeMap::new(),
            planned: 0,
            conversations: Conversations::default(),
            tally: Tally::default(),
        }
    }

    pub fn run(mut self) -> Outcome {
        match &mut self.work {
            Work::Chats(_) => {
                // Spread over the first second.
                let between_us = 1_000_000 / u64::try_from(self.setting.concurrency).unwrap_or(1);
                for place in 0..self.setting.concurrency {
                    self.plan(place as u64 * between_us, Happening::Asks(place));
                }
            }
            Work::Recorded(recorded) => {
                for (at_us, turn) in std::mem::take(&mut recorded.turns) {
                    self.plan(at_us, Happening::Comes(Box::new(turn)));
                }
            }
        }
        let wanted = self.setting.warm_requests + self.setting.requests;
        while self.tally.finished < wanted {
            let Some(Reverse((at_us, number))) = self.order.pop() else { break };
            self.now_us = at_us;
            let happening = self.happenings.remove(&number).expect("planned once");
            self.step(happening);
        }
        self.tally.outcome(self.setting.replicas)
    }

    fn plan(&mut self, at_us: u64, happening: Happening) {
        self.planned += 1;
        self.order.push(Reverse((at_us, self.planned)));
        self.happenings.insert(self.planned, happening);
    }

    fn step(&mut self, happening: Happening) {
        match happening {
            Happening::Asks(place) => {
                let Work::Chats(chats) = &mut self.work else { return };
                let turn = chats.next(place);
                self.route(turn, Some(place));
            }
            Happening::Comes(turn) => self.route(*turn, None),
            Happening::Done(at) => self.done(at),
            Happening::Read(at, events) => self.router.read(at, &events),
        }
    }

    fn route(&mut self, turn: Turn, place: Option<usize>) {
        let at = self.router.choose(self.now_us, &turn, &self.active);
        self.active[at] += 1;
        self.replicas[at].queue.push_back(Job { turn, place, came_us: self.now_us });
        self.start(at);
    }

    fn start(&mut self, at: usize) {
        if self.replicas[at].running.is_some() {
            return;
        }
        let Some(job) = self.replicas[at].queue.pop_front() else { return };
        let held = self.pools[at].held(&job.turn.blocks);
        let left = job.turn.input_tokens - held as u64 * self.setting.block_tokens;
        let work_us = left * 1_000_000 / self.setting.prefill_tokens_s;
        self.replicas[at].running = Some(job);
        self.plan(self.now_us + self.setting.overhead_us + work_us, Happening::Done(at));
    }

    fn done(&mut self, at: usize) {
        let job = self.replicas[at].running.take().expect("it ran");
        let change = self.pools[at].compute(&job.turn.blocks);
        let cached = change.held as u64 * self.setting.block_tokens;
        self.note(at, &job, cached);
        self.active[at] -= 1;
        self.router.finished(self.now_us, &job.turn, at);
        if self.router.reads_events() {
            let events = self.router.events(&job.turn, &change);
            self.plan(self.now_us + self.setting.events_late_us, Happening::Read(at, events));
        }
        if let Some(place) = job.place {
            let answer_us = job.turn.output_tokens * self.setting.output_token_us;
            self.plan(self.now_us + answer_us, Happening::Asks(place));
        }
        self.start(at);
    }

    fn note(&mut self, at: usize, job: &Job, cached_tokens: u64) {
        let served = Served {
            replica: at as u64,
            input_tokens: job.turn.input_tokens,
            cached_tokens,
            predicted_tokens: None,
        };
        let now = Tick(self.now_us / 1000);
        let (kind, _) = self.conversations.note(now, "m", job.turn.conversation, served);
        self.tally.finished += 1;
        if self.tally.finished <= self.setting.warm_requests {
            return;
        }
        self.tally.requests += 1;
        self.tally.input += served.input_tokens;
        self.tally.cached += cached_tokens;
        self.tally.follow_ups += u64::from(kind != TurnKind::First);
        self.tally.scattered += u64::from(kind == TurnKind::Scattered);
        self.tally.waited_us.push(self.now_us - job.came_us);
        self.tally.active += self.active.iter().map(|it| u64::from(*it)).sum::<u64>();
    }
}

impl Tally {
    fn outcome(mut self, replicas: usize) -> Outcome {
        self.waited_us.sort_unstable();
        let waited = |part: usize| {
            let at = (self.waited_us.len() * part / 100).min(self.waited_us.len() - 1);
            self.waited_us[at] as f64 / 1e6
        };
        let requests = self.requests as f64;
        Outcome {
            hit_rate: self.cached as f64 / self.input as f64,
            scatter: self.scattered as f64 / self.follow_ups.max(1) as f64,
            waited_s: (waited(50), waited(95)),
            input_tokens: self.input as f64 / requests,
            active: self.active as f64 / requests / replicas as f64,
        }
    }
}
