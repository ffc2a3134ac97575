//! PURE. The few lines of vLLM's `/metrics` that matter here. Total: what cannot be read is absent.

use std::str::FromStr;

use kvbridge_adapters_api::{
    EngineMetrics,
    prometheus::{PROCESS_STARTED, Sample, add, samples},
};

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
    for sample in samples(text).filter(|sample| sample.is_of(RANK, rank)) {
        match sample.name {
            PROCESS_STARTED => metrics.started_ms = sample.moment_ms(),
            CACHE => {
                metrics.pool_blocks = number(&sample, POOL).or(metrics.pool_blocks);
                metrics.block_size = number(&sample, SIZE).or(metrics.block_size);
            }
            REQUESTS => add(&mut metrics.request_count, &sample),
            QUERIES => add(&mut metrics.queried_tokens, &sample),
            HITS => add(&mut metrics.hit_tokens, &sample),
            _ => (),
        }
    }
    metrics
}

/// The engine says so in a label, or `None` before it knows.
fn number<N: FromStr + PartialOrd + From<u8>>(sample: &Sample<'_>, name: &str) -> Option<N> {
    sample.label(name)?.parse().ok().filter(|number| *number > N::from(0))
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

    /// As a 0.16.0 server wrote them after 21 requests, without its histograms.
    #[test]
    fn a_real_server_says_what_its_answers_said() {
        let text = include_bytes!("../../../tests/fixtures/vllm-0.16.0-metrics.txt");
        let figures = EngineMetrics {
            started_ms: Some(1_796_065_920_059),
            pool_blocks: Some(96),
            block_size: Some(16),
            request_count: Some(21),
            queried_tokens: Some(2_578),
            hit_tokens: Some(1_232),
        };
        assert_eq!(read_metrics(text, 0), figures);
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
