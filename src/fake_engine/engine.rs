//! PURE. One replica: requests that wait and run, one step at a time, and the events of each step.
//!
//! As in the engine, events leave only with a step, and there is no step without a request.

use std::collections::VecDeque;

use kvbridge_schemas::Event;

use super::{
    cache::{Full, Resident},
    hash::int_of,
    model::Store,
    rng::mix,
    sequence::{Chain, Namespace, Sequence},
};

/// Largest token id of the modelled vocabulary.
pub const VOCABULARY: u64 = 32_000;

/// Requests that run at a time; an engine's `max_num_seqs`.
const RUNNING_MAX: usize = 8;

/// What to complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Told apart by the caller.
    pub id: u64,
    /// Prompt.
    pub tokens: Vec<u32>,
    /// Tokens to generate; at least one is.
    pub output_tokens: u32,
    /// Adapter name.
    pub lora: Option<String>,
    /// Cache salt.
    pub salt: Option<String>,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The caller's number.
    pub id: u64,
    /// Length of the prompt.
    pub prompt_tokens: usize,
    /// How many of them were a hit.
    pub cached_tokens: usize,
    /// What was generated; empty when the prompt does not fit in the cache.
    pub output: Vec<u32>,
}

/// What one step did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// In the order they happened.
    pub events: Vec<Event>,
    /// Requests that ended.
    pub finished: Vec<Finished>,
}

/// Sums since the start of a life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Prompt tokens looked up.
    pub queries: u64,
    /// Of these found.
    pub hits: u64,
    /// Tokens generated.
    pub generated: u64,
    /// Requests ended.
    pub finished: u64,
    /// Requests put back because the pool was full.
    pub preempted: u64,
}

/// One replica's engine.
#[derive(Clone, Debug)]
pub struct Engine {
    cache: Store,
    chain: Chain,
    tagged: bool,
    waiting: VecDeque<Request>,
    running: Vec<Running>,
    adapters: Vec<String>,
    /// Sums.
    pub counts: Counts,
}

#[derive(Clone, Debug)]
struct Running {
    request: Request,
    sequence: Sequence,
    cached_tokens: usize,
}

impl Engine {
    /// An empty engine.
    pub fn new(cache: impl Into<Store>, chain: impl Into<Chain>, tagged: bool) -> Engine {
        Engine {
            cache: cache.into(),
            chain: chain.into(),
            tagged,
            waiting: VecDeque::new(),
            running: Vec::new(),
            adapters: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Puts a request in the queue.
    pub fn add(&mut self, request: Request) {
        self.waiting.push_back(request);
    }

    /// Nothing waits and nothing runs.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// Requests that run and that wait.
    pub fn load(&self) -> (usize, usize) {
        (self.running.len(), self.waiting.len())
    }

    /// Its cache.
    pub fn cache(&self) -> &Store {
        &self.cache
    }

    /// What is really resident.
    pub fn truth(&self) -> Vec<Resident> {
        self.cache.truth()
    }

    /// Empties the device cache. Refused while a request runs, unless they are put back first.
    pub fn reset(&mut self, put_back_running: bool) -> bool {
        if put_back_running {
            while self.preempt() {}
        }
        self.cache.clear()
    }

    /// Runs everything once.
    pub fn step(&mut self) -> Step {
        self.decode();
        let mut finished = self.admit();
        let done = |run: &Running| {
            run.sequence.len() >= run.request.tokens.len() + output_len(&run.request)
        };
        let (ended, running) = std::mem::take(&mut self.running).into_iter().partition(done);
        self.running = running;
        finished.extend(Vec::into_iter(ended).map(|run| self.finish(run)));
        Step { events: self.cache.take_events(), finished }
    }

    /// Ends the step without running anything: what a clear queued leaves.
    pub fn flush(&mut self) -> Vec<Event> {
        self.cache.take_events()
    }

    /// Whether events wait for a step.
    pub fn has_events(&self) -> bool {
        self.cache.has_events()
    }

    fn decode(&mut self) {
        let mut index = 0;
        while let Some(run) = self.running.get_mut(index) {
            let token = next_token(&run.sequence);
            run.sequence.push(token);
            match self.cache.grow(&mut run.sequence) {
                Ok(()) => {
                    self.counts.generated += 1;
                    index += 1;
                }
                // The youngest goes back to the queue, which may be this one.
                Err(Full) => {
                    run.sequence.pop();
                    self.preempt();
                }
            }
        }
    }

    fn preempt(&mut self) -> bool {
        let Some(mut last) = self.running.pop() else { return false };
        self.cache.release(&mut last.sequence);
        self.counts.preempted += 1;
        self.waiting.push_front(last.request);
        true
    }

    fn admit(&mut self) -> Vec<Finished> {
        let mut refused = Vec::new();
        while self.running.len() < RUNNING_MAX
            && let Some(request) = self.waiting.pop_front()
        {
            if !self.cache.fits(request.tokens.len() + output_len(&request)) {
                refused.push(refusal(&request));
                continue;
            }
            let namespace = self.namespace(&request);
            let size = self.cache.block_size();
            let mut sequence = Sequence::new(self.chain, size, namespace, &request.tokens);
            match self.cache.admit(&mut sequence) {
                Ok(cached_tokens) => {
                    self.counts.queries += count(request.tokens.len());
                    self.counts.hits += count(cached_tokens);
                    self.running.push(Running { request, sequence, cached_tokens });
                }
                Err(Full) => {
                    self.waiting.push_front(request);
                    break;
                }
            }
        }
        refused
    }

    fn finish(&mut self, mut run: Running) -> Finished {
        self.cache.release(&mut run.sequence);
        self.counts.finished += 1;
        Finished {
            id: run.request.id,
            prompt_tokens: run.request.tokens.len(),
            cached_tokens: run.cached_tokens,
            output: run.sequence.tokens()[run.request.tokens.len()..].to_vec(),
        }
    }

    fn namespace(&mut self, request: &Request) -> Namespace {
        let lora_id = request.lora.as_ref().map(|name| {
            let known = self.adapters.iter().position(|adapter| adapter == name);
            let index = known.unwrap_or_else(|| {
                self.adapters.push(name.clone());
                self.adapters.len() - 1
            });
            i64::try_from(index + 1).unwrap_or(i64::MAX)
        });
        Namespace {
            lora: request.lora.clone(),
            lora_id,
            salt: request.salt.clone(),
            tagged: self.tagged,
        }
    }
}

/// A prompt that the whole pool could not hold.
fn refusal(request: &Request) -> Finished {
    let prompt_tokens = request.tokens.len();
    Finished { id: request.id, prompt_tokens, cached_tokens: 0, output: Vec::new() }
}

fn output_len(request: &Request) -> usize {
    usize::try_from(request.output_tokens).unwrap_or(usize::MAX).max(1)
}

/// Greedy decoding: the same text goes on the same way.
fn next_token(sequence: &Sequence) -> u32 {
    let chain = sequence.hashes().last().map_or(0, int_of);
    let last = sequence.tokens().last().copied().unwrap_or(0);
    let drawn = mix(chain ^ u64::from(last) ^ count(sequence.len()) << 32) % VOCABULARY;
    u32::try_from(drawn).unwrap_or(0)
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
