//! PURE. What the HTTP side reads and writes: a completion's request, metrics, lines of truth.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{
    control::{Cut, Stats},
    engine::{Counts, Request, VOCABULARY},
    hash::whole,
    model::Model,
    rng::mix,
    settings::FakeSettings,
};

/// Tokens generated when the caller does not say; the API's default.
const OUTPUT_TOKENS: u64 = 16;

/// An OpenAI-like completion: the prompt as token ids, or as text whose words become ids. A model
/// that is not the served one is an adapter.
pub(super) fn completion_request(asked: &Value, served: &str) -> Result<Request, String> {
    let tokens = match &asked["prompt"] {
        Value::String(text) => text.split_whitespace().map(token_of).collect(),
        Value::Array(ids) => {
            let ids = ids.iter().map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok()));
            ids.collect::<Option<Vec<u32>>>().ok_or("prompt holds something else than token ids")?
        }
        _ => return Err("prompt is neither text nor token ids".to_owned()),
    };
    if tokens.is_empty() {
        return Err("prompt is empty".to_owned());
    }
    let output_tokens = match &asked["max_tokens"] {
        Value::Null => OUTPUT_TOKENS,
        value => value.as_u64().ok_or("max_tokens is no number")?,
    };
    Ok(Request {
        id: 0,
        tokens,
        output_tokens: u32::try_from(output_tokens).map_err(|_| "max_tokens is too large")?,
        lora: asked["model"].as_str().filter(|model| *model != served).map(str::to_owned),
        salt: asked["cache_salt"].as_str().map(str::to_owned),
    })
}

/// A word's id: no tokeniser, but the same word is the same id.
fn token_of(word: &str) -> u32 {
    let folded = word.bytes().fold(0, |folded, byte| mix(folded ^ u64::from(byte)));
    u32::try_from(folded % VOCABULARY).unwrap_or(0)
}

/// One header, one line a resident (block, tier, group), one end.
pub(super) fn truth_lines(out: &mut String, rank: usize, cut: &Cut, settings: &FakeSettings) {
    let blocks = cut.resident.len();
    let Cut { next_seq, life, pending, .. } = cut;
    let head = json!({
        "rank": rank, "next_seq": next_seq, "life": life, "pending": pending, "blocks": blocks,
    });
    let mut line = |value: &Value| writeln!(out, "{value}").expect("a String can be written");
    line(&head);
    for resident in &cut.resident {
        let hash = settings.wire_hash(&whole(&resident.hash), &resident.tier);
        let group = resident.group.filter(|_| settings.engine.group());
        line(&json!({
            "hash": hex::encode(hash.as_bytes()),
            "tier": resident.tier.as_str(),
            "group": group,
            "count": resident.count,
        }));
    }
    line(&json!({"end": true, "blocks": blocks}));
}

/// A metric: name, kind, how a rank's value is read.
type Metric = (&'static str, &'static str, fn(&Stats) -> u64);

/// The engine's own names.
const METRICS: [Metric; 8] = [
    ("vllm:num_requests_running", "gauge", |stats| count(stats.running)),
    ("vllm:num_requests_waiting", "gauge", |stats| count(stats.waiting)),
    ("vllm:prefix_cache_queries_total", "counter", |stats| stats.counts.queries),
    ("vllm:prefix_cache_hits_total", "counter", |stats| stats.counts.hits),
    ("vllm:prompt_tokens_total", "counter", |stats| stats.counts.queries),
    ("vllm:generation_tokens_total", "counter", |stats| stats.counts.generated),
    ("vllm:num_preemptions_total", "counter", |stats| stats.counts.preempted),
    ("vllm:request_success_total", "counter", |stats| stats.counts.finished),
];

pub(super) fn metrics_text(ranks: &[Stats], settings: &FakeSettings) -> String {
    let mut out = String::new();
    let written = match settings.engine {
        Model::Radix(_) => write_radix_metrics(&mut out, ranks, settings),
        Model::Paged(_) | Model::Drained(_) | Model::Native(_) => {
            write_metrics(&mut out, ranks, settings)
        }
    };
    written.expect("a String can be written");
    out
}

/// As the engine with a tree says it: each scheduler of itself, and the server of all together. Its
/// processes share what they count, so none tells when it started.
fn write_radix_metrics(
    out: &mut String,
    ranks: &[Stats],
    settings: &FakeSettings,
) -> Result<(), std::fmt::Error> {
    let (model, pages, page) = (&settings.model, settings.blocks, settings.block_size);
    for (rank, stats) in ranks.iter().enumerate() {
        let dp = if ranks.len() > 1 { format!("dp_rank=\"{rank}\",") } else { String::new() };
        let labels = format!(
            "{dp}engine_type=\"unified\",model_name=\"{model}\",pp_rank=\"0\",tp_rank=\"0\""
        );
        let tokens = u64::from(pages) * u64::from(page);
        let gauges = [
            ("num_running_reqs", count(stats.running)),
            ("num_queue_reqs", count(stats.waiting)),
            ("max_total_num_tokens", tokens),
            ("page_size", u64::from(page)),
            ("num_pages", u64::from(pages)),
        ];
        for (name, value) in gauges {
            writeln!(out, "sglang:{name}{{{labels}}} {value}.0")?;
        }
        let Counts { queries, hits, generated, .. } = stats.counts;
        let computed = queries.saturating_sub(hits);
        let modes = [("prefill_compute", computed), ("prefill_cache", hits), ("decode", generated)];
        for (mode, value) in modes {
            writeln!(out, "sglang:realtime_tokens_total{{{labels},mode=\"{mode}\"}} {value}.0")?;
        }
    }
    let sum = |of: fn(&Stats) -> u64| ranks.iter().map(of).sum::<u64>();
    let labels = format!("model_name=\"{model}\"");
    let counters = [
        ("num_requests_total", "", sum(|stats| stats.counts.finished)),
        ("prompt_tokens_total", "", sum(|stats| stats.counts.queries)),
        ("generation_tokens_total", "", sum(|stats| stats.counts.generated)),
        ("cached_tokens_total", ",cache_source=\"device\"", sum(|stats| stats.counts.hits)),
    ];
    for (name, more, value) in counters {
        writeln!(out, "sglang:{name}{{{labels}{more}}} {value}.0")?;
    }
    Ok(())
}

fn write_metrics(
    out: &mut String,
    ranks: &[Stats],
    settings: &FakeSettings,
) -> Result<(), std::fmt::Error> {
    let model = &settings.model;
    for (name, kind, read) in METRICS {
        let family = name.strip_suffix("_total").filter(|_| kind == "counter").unwrap_or(name);
        writeln!(out, "# TYPE {family} {kind}")?;
        for (rank, stats) in ranks.iter().enumerate() {
            let labels = format!("engine=\"{rank}\",model_name=\"{model}\"");
            writeln!(out, "{name}{{{labels}}} {}", read(stats))?;
        }
    }
    writeln!(out, "# TYPE vllm:kv_cache_usage_perc gauge")?;
    for (rank, stats) in ranks.iter().enumerate() {
        let used = f64::from(u32::try_from(stats.used_blocks).unwrap_or(u32::MAX));
        let share = used / f64::from(settings.blocks.saturating_sub(1).max(1));
        let labels = format!("engine=\"{rank}\",model_name=\"{model}\"");
        writeln!(out, "vllm:kv_cache_usage_perc{{{labels}}} {share}")?;
    }
    writeln!(out, "# TYPE vllm:cache_config_info gauge")?;
    for rank in 0..ranks.len() {
        writeln!(
            out,
            "vllm:cache_config_info{{block_size=\"{}\",enable_prefix_caching=\"True\",\
             engine=\"{rank}\",num_gpu_blocks=\"{}\",prefix_caching_hash_algo=\"sha256_cbor\"}} 1.0",
            settings.told_block_size(),
            settings.blocks,
        )?;
    }
    let leader = ranks.first().and_then(|stats| stats.started_ms.first());
    out.push_str(&start_text(leader.copied().unwrap_or(0)));
    writeln!(out, "# TYPE fake_engine_member_start_time_seconds gauge")?;
    for (rank, stats) in ranks.iter().enumerate() {
        for (member, started_ms) in stats.started_ms.iter().enumerate() {
            let labels = format!("engine=\"{rank}\",tp_rank=\"{member}\"");
            let at = seconds(*started_ms);
            writeln!(out, "fake_engine_member_start_time_seconds{{{labels}}} {at}")?;
        }
    }
    Ok(())
}

/// When a process started, as every Prometheus client says it.
pub(super) fn start_text(started_ms: u64) -> String {
    let at = seconds(started_ms);
    format!("# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds {at}\n")
}

fn seconds(unix_ms: u64) -> f64 {
    std::time::Duration::from_millis(unix_ms).as_secs_f64()
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
