//! How a fake engine is set up.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use kvbridge_adapters_zmq::{Faults, Framing, ServeSettings};
use kvbridge_schemas::{BlockHash, Tier};

use super::{
    cache::CacheSettings,
    drained::{Buffer, DrainedRelease},
    encode::Encoder,
    engine::Engine,
    hash::{SEED_DEFAULT, none_hash},
    model::{Model, Writer},
    native::{NativeEncoder, Sink},
    radix::{RadixSettings, encode::RadixEncoder},
    release::Release,
    sequence::Chain,
    traffic::TrafficSettings,
};

/// Everything that does not change while it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct FakeSettings {
    /// What is modelled.
    pub engine: Model,
    /// Hashes are whole bytes on the wire.
    pub bytes: bool,
    /// Text that the chain of hashes starts from; none = as the release does by itself.
    pub hash_seed: Option<String>,
    /// Blocks of each rank's pool, the null block counted.
    pub blocks: u32,
    /// Tokens per block.
    pub block_size: u32,
    /// Window of a second, sliding group.
    pub window: Option<u32>,
    /// Blocks of each rank's host tier; 0 = none.
    pub host_blocks: u32,
    /// Data-parallel ranks.
    pub dp: u32,
    /// Tensor-parallel members of each rank.
    pub tp: u32,
    /// Address of publishers and replay sockets.
    pub host: IpAddr,
    /// Port of rank 0's publisher; rank r has port + r; 0 = any free ones.
    pub publish_port: u16,
    /// Port of rank 0's replay socket.
    pub replay_port: u16,
    /// Port of rank 0's snapshot socket, of an engine with a tree; then topics name the life.
    pub snapshot_port: Option<u16>,
    /// Address of the HTTP server.
    pub http: SocketAddr,
    /// Topic.
    pub topic: String,
    /// Served model.
    pub model: String,
    /// Batches kept for replay, or events that wait to be taken.
    pub buffer_steps: usize,
    /// Stored blocks of a step above which the native stream leaves stores out.
    pub entries_max: usize,
    /// How long an answer waits for another event before it ends.
    pub drain_wait: Duration,
    /// Requests a second that each rank makes up; 0 = none.
    pub rps: f64,
    /// Time of one step.
    pub step: Duration,
    /// Seed of everything random.
    pub seed: u64,
    /// What the made-up requests look like.
    pub traffic: TrafficSettings,
    /// What its server says of itself.
    pub told: ToldSettings,
}

/// What a fake engine's server says of itself, where that is not the truth or not all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToldSettings {
    /// That there are no events; then there are none.
    pub is_mute: bool,
    /// Nothing of its journal.
    pub hides_replay: bool,
    /// Another number of tokens per block.
    pub block_size: Option<u32>,
    /// Another hash algorithm.
    pub algorithm: Option<String>,
}

impl Default for FakeSettings {
    fn default() -> FakeSettings {
        FakeSettings {
            engine: Model::Paged(Release::NEWEST),
            bytes: false,
            hash_seed: None,
            blocks: 1024,
            block_size: 16,
            window: None,
            host_blocks: 0,
            dp: 1,
            tp: 1,
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            publish_port: 0,
            replay_port: 0,
            snapshot_port: None,
            http: SocketAddr::from(([127, 0, 0, 1], 0)),
            topic: String::new(),
            model: "fake".to_owned(),
            buffer_steps: 10_000,
            entries_max: 50_000,
            drain_wait: Duration::from_secs(2),
            rps: 0.0,
            step: Duration::from_millis(5),
            seed: 0,
            traffic: TrafficSettings::default(),
            told: ToldSettings::default(),
        }
    }
}

impl FakeSettings {
    /// Tokens per block, as its server says.
    pub(super) fn told_block_size(&self) -> u32 {
        self.told.block_size.unwrap_or(self.block_size)
    }

    /// How batches are written; nothing is where they are taken instead.
    pub(super) fn writer(&self) -> Option<Writer> {
        match self.engine {
            Model::Paged(release) => Some(Writer::Paged(Encoder { release, bytes: self.bytes })),
            Model::Radix(release) => Some(Writer::Radix(RadixEncoder { release })),
            Model::Native(sink) => Some(Writer::Native(NativeEncoder { sink })),
            Model::Drained(_) => None,
        }
    }

    /// What a rank's native stream leaves out.
    pub(super) fn sink(&self) -> Option<Sink> {
        let Model::Native(kind) = self.engine else { return None };
        Some(Sink::new(kind, self.entries_max))
    }

    /// What waits to be taken of a rank.
    pub(super) fn buffer(&self, rank: u32) -> Option<Buffer> {
        let Model::Drained(release) = self.engine else { return None };
        let rank = (self.dp > 1).then_some(rank);
        Some(Buffer::new(release, rank, self.blocks, self.buffer_steps))
    }

    /// A hash of the model as it goes out in an event of `tier`.
    pub(super) fn wire_hash(&self, hash: &BlockHash, tier: &Tier) -> BlockHash {
        match (self.engine, self.writer()) {
            (Model::Drained(release), _) => release.wire_hash(hash),
            (_, Some(writer)) => writer.wire_hash(hash, tier),
            (_, None) => hash.clone(),
        }
    }

    /// Where a rank's socket is, by rank 0's port.
    fn endpoint(&self, port: u16, rank: u32) -> String {
        let offset = if port == 0 { 0 } else { rank };
        let host = match self.host {
            IpAddr::V4(host) => host.to_string(),
            IpAddr::V6(host) => format!("[{host}]"),
        };
        format!("tcp://{host}:{}", u32::from(port) + offset)
    }

    /// Where a rank is asked for what it holds.
    pub(super) fn snapshot(&self, rank: u32) -> Option<String> {
        let Model::Radix(_) = self.engine else { return None };
        self.snapshot_port.map(|port| self.endpoint(port, rank))
    }

    /// The sockets of a rank.
    pub(super) fn serve(&self, rank: u32) -> ServeSettings {
        ServeSettings {
            live: self.endpoint(self.publish_port, rank),
            replay: self.endpoint(self.replay_port, rank),
            topic: self.topic.clone(),
            framing: if self.engine.replay_topic() { Framing::WithTopic } else { Framing::Plain },
            journal_count_max: self.buffer_steps,
            faults: Faults::default(),
        }
    }

    /// The engine of a life.
    pub(super) fn engine(&self, life: u64) -> Engine {
        let mut pages =
            RadixSettings { pages: self.blocks, page_size: self.block_size, host_pages: 0 };
        let release = match self.engine {
            Model::Paged(release) => release,
            Model::Radix(release) => {
                // Older ones have such a tier and do not speak of it.
                pages.host_pages = if release.host() { self.host_blocks } else { 0 };
                return Engine::new(pages, Chain::Plain { salted: release.salt() }, false);
            }
            Model::Drained(release) => return Engine::new(pages, release.chain(), false),
            // Whatever the release, what is published is hashed so.
            Model::Native(_) => return Engine::new(pages, DrainedRelease::Newer.chain(), false),
        };
        let seed = match &self.hash_seed {
            Some(seed) => seed.clone(),
            None if release.constant_seed() => SEED_DEFAULT.to_owned(),
            // Random in each process: the same prompt has other hashes after a restart.
            None => format!("life {life} of {}", self.seed),
        };
        let cache = CacheSettings {
            blocks: self.blocks,
            block_size: self.block_size,
            window: self.window,
            host_blocks: self.host_blocks,
            host_block_size_is_zero: release.host_block_size_is_zero(),
            host_group: release.maps(),
        };
        Engine::new(cache, none_hash(&seed), release.tagged_keys())
    }
}
