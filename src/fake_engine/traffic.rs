//! PURE. Requests like a chat service's: few popular system prompts, conversations with turns,
//! twins.

use super::{
    engine::{Request, VOCABULARY},
    rng::{Rng, mix},
};

/// Conversations that may go on; the oldest is forgotten.
const OPEN_MAX: usize = 64;

/// Tokens after which a conversation is not continued.
const CONTEXT_MAX: usize = 1024;

/// The shape of the traffic.
#[derive(Clone, Debug, PartialEq)]
pub struct TrafficSettings {
    /// System prompts, the first ones the most popular.
    pub roots: u64,
    /// Tokens of a system prompt.
    pub root_tokens: u64,
    /// Most tokens of a user's turn.
    pub turn_tokens: u64,
    /// Most tokens generated.
    pub output_tokens: u64,
    /// Of a hundred requests so many are sent twice at once: physical copies.
    pub twins_percent: u64,
    /// Adapters; a conversation has one of these or none.
    pub loras: Vec<String>,
}

impl Default for TrafficSettings {
    fn default() -> TrafficSettings {
        TrafficSettings {
            roots: 8,
            root_tokens: 96,
            turn_tokens: 64,
            output_tokens: 48,
            twins_percent: 10,
            loras: Vec::new(),
        }
    }
}

/// Makes requests; the same seed makes the same ones.
#[derive(Clone, Debug)]
pub struct Traffic {
    settings: TrafficSettings,
    rng: Rng,
    open: Vec<Open>,
    twin: Option<Request>,
}

#[derive(Clone, Debug)]
struct Open {
    id: u64,
    tokens: Vec<u32>,
    lora: Option<String>,
}

impl Traffic {
    /// Traffic of that seed.
    pub fn new(settings: TrafficSettings, seed: u64) -> Traffic {
        Traffic { settings, rng: Rng::new(seed), open: Vec::new(), twin: None }
    }

    /// Seconds to the next request, at that rate on average.
    pub fn gap_s(&mut self, per_second: f64) -> f64 {
        -(1.0 - self.rng.unit()).ln() / per_second
    }

    /// The next request, under that number.
    pub fn request(&mut self, id: u64) -> Request {
        if let Some(twin) = self.twin.take() {
            return Request { id, ..twin };
        }
        let goes_on = !self.open.is_empty() && self.rng.below(3) > 0;
        let (mut tokens, lora) = if goes_on {
            let count = u64::try_from(self.open.len()).unwrap_or(1);
            let index = usize::try_from(self.rng.below(count)).unwrap_or(0);
            let open = self.open.swap_remove(index);
            (open.tokens, open.lora)
        } else {
            (self.root(), self.lora())
        };
        let turn = 1 + self.rng.below(self.settings.turn_tokens);
        tokens.extend((0..turn).map(|_| token(self.rng.draw())));
        let output = 1 + self.rng.below(self.settings.output_tokens);
        let output_tokens = u32::try_from(output).unwrap_or(u32::MAX);
        let request = Request { id, tokens, output_tokens, lora, salt: None };
        if self.rng.below(100) < self.settings.twins_percent {
            self.twin = Some(request.clone());
        }
        if self.open.len() >= OPEN_MAX {
            self.open.remove(0);
        }
        let (tokens, lora) = (request.tokens.clone(), request.lora.clone());
        self.open.push(Open { id, tokens, lora });
        request
    }

    /// A request ended: its conversation goes on from what was generated.
    pub fn finished(&mut self, id: u64, output: &[u32]) {
        if let Some(index) = self.open.iter().position(|open| open.id == id) {
            let open = &mut self.open[index];
            open.tokens.extend_from_slice(output);
            if open.tokens.len() > CONTEXT_MAX {
                self.open.swap_remove(index);
            }
        }
    }

    fn root(&mut self) -> Vec<u32> {
        let root = self.rng.zipf(self.settings.roots);
        (0..self.settings.root_tokens).map(|at| token(mix(root << 32 | at))).collect()
    }

    fn lora(&mut self) -> Option<String> {
        let count = u64::try_from(self.settings.loras.len()).unwrap_or(0);
        let drawn = usize::try_from(self.rng.below(count + 1)).unwrap_or(0);
        self.settings.loras.get(drawn).cloned()
    }
}

fn token(drawn: u64) -> u32 {
    u32::try_from(drawn % VOCABULARY).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_says_everything_and_turns_go_on() {
        let run = |seed| {
            let mut traffic = Traffic::new(TrafficSettings::default(), seed);
            (0..200).map(|id| traffic.request(id)).collect::<Vec<_>>()
        };
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4));
        let requests = run(3);
        let goes_on = |later: &Request| {
            requests.iter().any(|r| r.id < later.id && later.tokens.starts_with(&r.tokens))
        };
        assert!(requests.iter().filter(|request| goes_on(request)).count() > 50);
    }
}
