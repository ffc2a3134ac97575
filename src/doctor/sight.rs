//! What was seen of an engine, as plain data.

use kvbridge_adapters_api::Knobs;

use super::{DrainSight, ReplaySight, StreamSight};

/// What was seen of one engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineSight {
    /// What its HTTP server said.
    pub server: ServerSight,
    /// What an operator sets at it, where it is known which engine it is.
    pub knobs: Option<&'static Knobs>,
    /// Tokens per block, as the engine says.
    pub block_size: Option<u32>,
    /// How block hashes are computed, as the engine says.
    pub algorithm: Option<String>,
    /// What became of a completion of our own.
    pub probe: ProbeSight,
    /// Requests that the engine served while it was listened to; absent = it does not tell.
    pub requests: Option<u64>,
    /// How long that was.
    pub listened_ms: u64,
    /// Its ranks, in order.
    pub ranks: Vec<RankSight>,
    /// How its events are taken, where it publishes none.
    pub drain: DrainLook,
}

/// What an engine's HTTP server said of where its events are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerSight {
    /// It was not asked: the event endpoint was given.
    NotAsked,
    /// No answer, and why.
    Unreachable(String),
    /// An answer from which nothing follows, and why.
    Untold(String),
    /// It says that it publishes no events.
    NotPublishing,
    /// It told, in words for people.
    Told(String),
}

/// What became of completions that were sent to make events flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeSight {
    /// None was to be sent.
    NotAsked,
    /// So many were served.
    Served(u64),
    /// None was, and why.
    Failed(String),
}

/// One rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankSight {
    /// Its number.
    pub rank: u32,
    /// Where it publishes.
    pub endpoint: String,
    /// What was heard.
    pub stream: StreamSight,
    /// What its journal answered.
    pub replay: ReplaySight,
}

/// How the events of an engine were taken that publishes none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DrainLook {
    /// The engine publishes.
    Published,
    /// They were left where they are, because whoever reads them would lose them.
    NotTaken,
    /// They were taken.
    Taken(DrainSight),
}

impl EngineSight {
    /// Requests that are known to have been served meanwhile.
    pub fn served(&self) -> u64 {
        let probes = match self.probe {
            ProbeSight::Served(count) => count,
            ProbeSight::NotAsked | ProbeSight::Failed(_) => 0,
        };
        self.requests.unwrap_or(0).max(probes)
    }
}
