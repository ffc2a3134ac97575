//! Requests and answers in the indexer's form. Fields that are not known are ignored, as it does.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::GROUP;
use crate::index::{Answer, ReplicaMatch};
use kvbridge_schemas::Tier;

fn group() -> String {
    GROUP.to_owned()
}

// No Debug: token ids and salts are customers' secrets.
#[derive(Deserialize)]
pub(super) struct TokensForm {
    pub(super) token_ids: Vec<u32>,
    pub(super) model_name: String,
    #[serde(default = "group")]
    pub(super) routing_group: String,
    pub(super) lora_name: Option<String>,
    pub(super) cache_salt: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct HashesForm {
    /// The same 64 bits, signed.
    pub(super) block_hashes: Vec<i64>,
    pub(super) model_name: String,
    #[serde(default = "group")]
    pub(super) routing_group: String,
    pub(super) cache_salt: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct RegisterForm {
    pub(super) instance_id: u64,
    pub(super) endpoint: String,
    pub(super) model_name: String,
    #[serde(default = "group")]
    pub(super) routing_group: String,
    pub(super) block_size: u32,
    pub(super) dp_rank: Option<u32>,
    pub(super) replay_endpoint: Option<String>,
    /// Ours: which engine it is.
    pub(super) engine: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct UnregisterForm {
    pub(super) instance_id: u64,
    pub(super) model_name: String,
    pub(super) routing_group: Option<String>,
    pub(super) dp_rank: Option<u32>,
}

/// How many tokens of a prompt each instance holds.
#[derive(Serialize)]
pub(super) struct ScoresJson {
    /// On the device, by rank.
    scores: BTreeMap<String, BTreeMap<String, u32>>,
    /// How many hold each block: never told by the indexer either, unless it has one thread.
    frequencies: [u32; 0],
    instances: BTreeMap<String, InstanceJson>,
}

/// The best of its ranks. Tiers count those before them too.
#[derive(Default, Serialize)]
struct InstanceJson {
    longest_matched: u32,
    gpu: u32,
    dp: BTreeMap<String, u32>,
    cpu: u32,
    disk: u32,
}

impl ScoresJson {
    pub(super) fn of(answer: &Answer) -> ScoresJson {
        let mut scores = BTreeMap::<String, BTreeMap<String, u32>>::new();
        let mut instances = BTreeMap::<String, InstanceJson>::new();
        // One that holds nothing is not named; neither is one of which nothing is proven.
        for found in answer.replicas.iter().filter(|found| found.usable && found.matched_tokens > 0)
        {
            let number = super::instance_number(&found.replica.instance).to_string();
            let rank = found.replica.rank.to_string();
            let (gpu, cpu, disk) = (
                up_to(found, &Tier::Device),
                up_to(found, &Tier::Host),
                up_to(found, &Tier::External),
            );
            if gpu > 0 {
                scores.entry(number.clone()).or_default().insert(rank.clone(), gpu);
            }
            let instance = instances.entry(number).or_default();
            instance.dp.insert(rank, gpu);
            instance.gpu = instance.gpu.max(gpu);
            instance.cpu = instance.cpu.max(cpu);
            instance.disk = instance.disk.max(disk);
            instance.longest_matched = instance.longest_matched.max(disk);
        }
        ScoresJson { scores, frequencies: [], instances }
    }
}

/// Tokens in that tier and those before it.
fn up_to(found: &ReplicaMatch, tier: &Tier) -> u32 {
    let last = found.by_tier.iter().rfind(|entry| entry.tier <= *tier);
    last.map_or(0, |entry| u32::try_from(entry.tokens).unwrap_or(u32::MAX))
}

/// One instance.
#[derive(Serialize)]
pub(super) struct WorkerJson {
    pub(super) instance_id: u64,
    pub(super) source: &'static str,
    pub(super) status: &'static str,
    pub(super) model_name: String,
    pub(super) routing_group: &'static str,
    pub(super) block_size: u32,
    pub(super) endpoints: BTreeMap<u32, String>,
    pub(super) listeners: BTreeMap<u32, ListenerJson>,
    /// Ours: what its number stands for.
    pub(super) instance: String,
}

/// One rank of it.
#[derive(Serialize)]
pub(super) struct ListenerJson {
    pub(super) endpoint: String,
    pub(super) status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_error: Option<String>,
}

/// One event of a dump.
#[derive(Serialize)]
pub(super) struct EventJson<'a> {
    pub(super) worker_id: u64,
    pub(super) storage_tier: &'static str,
    pub(super) residency_domain: &'static str,
    pub(super) event: CacheEventJson<'a>,
}

#[derive(Serialize)]
pub(super) struct CacheEventJson<'a> {
    pub(super) event_id: u64,
    pub(super) data: DataJson<'a>,
    pub(super) dp_rank: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum DataJson<'a> {
    Stored { parent_hash: Option<u64>, start_position: Option<u32>, blocks: &'a [BlockJson] },
}

#[derive(Serialize)]
pub(super) struct BlockJson {
    pub(super) block_hash: u64,
    pub(super) tokens_hash: u64,
    /// Blocks with media are not told.
    pub(super) mm_extra_info: Option<u32>,
}
