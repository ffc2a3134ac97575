//! The messages: a store of 64 blocks of 16 tokens each, none of them twice.

use std::sync::Arc;

use async_nats::HeaderMap;
use kvbridge::schemas::{
    BlockHash, Engine, EngineKind, Envelope, Epoch, Event, HashInfo, HashScheme, Parent, Place,
    Replica, SCHEMA_VERSION, Seq, Stored, StoredBlock, Tier, Tokens, Trust, content_hash, digest,
    subject,
};

use crate::Replicas;

pub const MODEL: &str = "bench";
pub const BLOCKS: u64 = 64;
pub const EPOCH: Epoch = Epoch(1_796_006_936_000);
const BLOCK_SIZE: usize = 16;

/// One that is replayed, and one for each round of publishing: the server knows ids again.
pub fn replicas(rounds: usize) -> Replicas {
    let name = |at| format!("publish-{at}");
    let all = (0..=rounds).map(name).chain(["replay".to_owned()]);
    all.map(|instance| (instance.clone(), replica(&instance))).collect()
}

pub fn replica(instance: &str) -> Replica {
    Replica { model: MODEL.to_owned(), instance: instance.to_owned(), rank: 0 }
}

fn mixed(of: u64) -> u64 {
    let of = (of ^ of >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (of ^ of >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

pub fn envelope(replica: &Replica, seq: u64) -> Arc<Envelope> {
    let first = seq * BLOCKS;
    let tokens: Vec<u32> = (0..BLOCKS * BLOCK_SIZE as u64)
        .map(|at| (mixed(first * BLOCK_SIZE as u64 + at) % 128_000) as u32)
        .collect();
    let blocks = tokens.chunks(BLOCK_SIZE).enumerate().map(|(at, own)| StoredBlock {
        hash: BlockHash::from_u64(mixed(first + at as u64)),
        content: Some(content_hash(own)),
    });
    let stored = Stored {
        parent: Parent::Root,
        block_size: BLOCK_SIZE as u32,
        blocks: blocks.collect(),
        tokens: Tokens(tokens),
        partial: false,
        bigram: false,
        place: Place::of(Tier::Device),
        lora: None,
        lora_id: None,
        salt: None,
        extra: Vec::new(),
        session: None,
    };
    Arc::new(Envelope {
        replica: replica.clone(),
        epoch: EPOCH,
        incarnation: None,
        seq: Seq(seq),
        span: 1,
        digest: digest(&seq.to_be_bytes()),
        trust: Trust::Exact,
        ts: EPOCH.0 * 1000 + seq,
        engine: Engine { kind: EngineKind::Vllm, format: "vllm.map".to_owned() },
        hash: HashInfo { scheme: HashScheme::Unknown, block_size: BLOCK_SIZE as u32 },
        events: vec![Event::Stored(stored)],
    })
}

pub fn id(envelope: &Envelope) -> String {
    subject::message_id(&envelope.replica.key(), envelope.epoch, envelope.seq)
}

/// As the bus writes them.
pub fn headers(envelope: &Envelope, id: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(async_nats::header::NATS_MESSAGE_ID, id);
    headers.insert("Kvbridge-Schema", SCHEMA_VERSION.to_string());
    headers.insert("Kvbridge-Epoch", envelope.epoch.to_string());
    headers.insert("Kvbridge-Seq", envelope.seq.to_string());
    headers
}
