//! PURE. The few lines of vLLM's `/metrics` that matter here. Total: what cannot be read is absent.

use std::{str::FromStr, time::Duration};

use kvbridge_adapters_api::EngineMetrics;

/// Start of the process that answers, of Prometheus clients in every language.
const STARTED: &str = "process_start_time_seconds";

/// The cache's layout, in labels.
const CACHE: &str = "vllm:cache_config_info";

/// Blocks of the device, and tokens per block.
const POOL: &str = "num_gpu_blocks";
const SIZE: &str = "block_size";

/// Requests that ended, by reason.
const REQUESTS: &str = "vllm:request_success_total";

/// Tokens looked up in the prefix cache, and those found.
const QUERIES: &str = "vllm:prefix_cache_queries_total";
const HITS: &str = "vllm:prefix_cache_hits_total";

/// Which data-parallel rank a line is of. Releases with one rank leave it out.
const RANK: &str = "engine";

/// The figures of one rank in a Prometheus text. Memory does not depend on what the text says.
pub fn read_metrics(text: &[u8], rank: u32) -> EngineMetrics {
    let mut metrics = EngineMetrics::default();
    for line in text.split(|byte| *byte == b'\n') {
        let Some(sample) = std::str::from_utf8(line).ok().and_then(sample) else { continue };
        if !sample.is_of(rank) {
            continue;
        }
        match sample.name {
            STARTED => metrics.started_ms = sample.span().and_then(millis),
            CACHE => {
                metrics.pool_blocks = number(sample.labels, POOL).or(metrics.pool_blocks);
                metrics.block_size = number(sample.labels, SIZE).or(metrics.block_size);
            }
            REQUESTS => add(&mut metrics.request_count, &sample),
            QUERIES => add(&mut metrics.queried_tokens, &sample),
            HITS => add(&mut metrics.hit_tokens, &sample),
            _ => (),
        }
    }
    metrics
}

fn add(sum: &mut Option<u64>, sample: &Sample<'_>) {
    if let Some(count) = sample.span() {
        *sum = Some(sum.unwrap_or(0).saturating_add(count.as_secs()));
    }
}

/// One line: `name{labels} value [time]`.
struct Sample<'a> {
    name: &'a str,
    labels: &'a str,
    value: &'a str,
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let (name, rest) = match line.find(['{', ' ']) {
        Some(at) => line.split_at_checked(at)?,
        None => return None,
    };
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => rest.split_at_checked(labels_end(rest)?)?,
        None => ("", rest),
    };
    let value = rest.trim_start_matches('}').split_ascii_whitespace().next()?;
    Some(Sample { name, labels, value })
}

/// Where the labels end: a brace outside of quotes.
fn labels_end(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    text.char_indices().find_map(|(at, c)| {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '}' if !quoted => return Some(at),
            _ => (),
        }
        None
    })
}

impl Sample<'_> {
    fn is_of(&self, rank: u32) -> bool {
        label(self.labels, RANK).is_none_or(|of| of.parse() == Ok(rank))
    }

    /// The value as a span of seconds: whole numbers and times without a cast from a float, and
    /// nothing below 0, not a number or beyond all bounds.
    fn span(&self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.value.parse().ok()?).ok()
    }
}

fn millis(span: Duration) -> Option<u64> {
    u64::try_from(span.as_millis()).ok().filter(|ms| *ms > 0)
}

/// The engine says so in a label, or `None` before it knows.
fn number<N: FromStr + PartialOrd + From<u8>>(labels: &str, name: &str) -> Option<N> {
    label(labels, name)?.parse().ok().filter(|number| *number > N::from(0))
}

/// A label's value as it is written. Those read here have no escapes.
fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = labels;
    loop {
        let (key, after) = rest.split_once("=\"")?;
        let (value, after) = after.split_at_checked(value_end(after)?)?;
        if key.trim_start_matches([',', ' ']) == name {
            return Some(value);
        }
        rest = after.strip_prefix('"')?;
    }
}

fn value_end(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().find_map(|(at, c)| {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(at),
            _ => (),
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="7543",model="a\"},b"} 1.0
vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="7000"} 1.0
vllm:request_success_total{engine="0",finished_reason="stop",model_name="x}y"} 1.2e+03
vllm:request_success_total{engine="0",finished_reason="length",model_name="x"} 34.0 1700000000000
vllm:request_success_total{engine="1",finished_reason="stop",model_name="x"} 5.0
vllm:prefix_cache_queries_total{engine="0",model_name="x"} 2.5e+06
vllm:prefix_cache_hits_total{engine="0",model_name="x"} 2000016.0
process_start_time_seconds 1.70000000025e+09
"#;

    #[test]
    fn each_rank_has_its_own_figures_and_the_process_one_start() {
        let started_ms = Some(1_700_000_000_250);
        let first = EngineMetrics {
            started_ms,
            pool_blocks: Some(7543),
            block_size: Some(16),
            request_count: Some(1234),
            queried_tokens: Some(2_500_000),
            hit_tokens: Some(2_000_016),
        };
        assert_eq!(read_metrics(TEXT.as_bytes(), 0), first);
        let second = EngineMetrics {
            started_ms,
            pool_blocks: Some(7000),
            block_size: Some(16),
            request_count: Some(5),
            ..EngineMetrics::default()
        };
        assert_eq!(read_metrics(TEXT.as_bytes(), 1), second);
        let other = EngineMetrics { started_ms, ..EngineMetrics::default() };
        assert_eq!(read_metrics(TEXT.as_bytes(), 2), other);
    }

    #[test]
    fn a_text_without_ranks_is_of_any() {
        let text = "vllm:cache_config_info{num_gpu_blocks=\"9\"} 1\nvllm:request_success_total 3\n";
        let figures = EngineMetrics {
            pool_blocks: Some(9),
            request_count: Some(3),
            ..EngineMetrics::default()
        };
        assert_eq!(read_metrics(text.as_bytes(), 5), figures);
    }

    #[test]
    fn what_makes_no_sense_is_not_there() {
        for text in [
            "process_start_time_seconds",
            "process_start_time_seconds ",
            "process_start_time_seconds NaN",
            "process_start_time_seconds -1",
            "process_start_time_seconds 1e300",
            "process_start_time_seconds 0",
            "process_start_time_seconds{x=\"y 5",
            "vllm:cache_config_info{num_gpu_blocks=\"None\"} 1",
            "vllm:cache_config_info{num_gpu_blocks=\"99999999999999999999\"} 1",
            "vllm:cache_config_info{num_gpu_blocks=\"7",
            "vllm:request_success_total{engine=\"0\"} inf",
            "{} 1",
            "{{{{\"\"\"",
        ] {
            assert_eq!(read_metrics(text.as_bytes(), 0), EngineMetrics::default(), "{text}");
        }
    }

    #[test]
    fn a_cut_or_spoilt_text_never_panics() {
        for at in 0..TEXT.len() {
            read_metrics(&TEXT.as_bytes()[..at], 0);
            for byte in [b'"', b'{', b'}', b'\\', 0xff] {
                let mut spoilt = TEXT.as_bytes().to_vec();
                spoilt[at] = byte;
                read_metrics(&spoilt, 0);
            }
        }
    }
}
