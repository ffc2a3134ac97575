//! PURE. The few lines of SGLang's `/metrics` (`--enable-metrics`) that matter here. Total: what
//! cannot be read is absent.
//!
//! Two processes write them: the scheduler of each rank, and the server for all ranks together.
//! `dp_rank` stands on the schedulers' lines where attention or requests are data-parallel, and
//! then what the server counts belongs to no rank: the schedulers' own count of prefilled tokens is
//! read instead.

use kvbridge_adapters_api::{
    EngineMetrics,
    prometheus::{PROCESS_STARTED, Sample, add, samples},
};

/// Pages of the rank's pool and tokens in one: gauges from 0.5.11 on, labels before.
const PAGES: &str = "sglang:num_pages";
const PAGE: &str = "sglang:page_size";
const CACHE: &str = "sglang:cache_config_info";

/// Tokens that the pool holds.
const POOL_TOKENS: &str = "sglang:max_total_num_tokens";

/// By the server: requests that ended, tokens of their prompts, and those that a cache had,
/// wherever (`cache_source`).
const REQUESTS: &str = "sglang:num_requests_total";
const PROMPTS: &str = "sglang:prompt_tokens_total";
const CACHED: &str = "sglang:cached_tokens_total";

/// By each scheduler: tokens of prompts that it computed, and those that it had, by `mode`.
const PREFILLED: &str = "sglang:realtime_tokens_total";
const COMPUTED: &str = "prefill_compute";
const HAD: &str = "prefill_cache";

/// Whose a scheduler's line is.
const RANK: &str = "dp_rank";

/// The members of a rank, which say the same.
const MEMBERS: [&str; 2] = ["tp_rank", "pp_rank"];

/// The figures of one rank in a Prometheus text. Memory does not depend on what the text says.
pub fn read_metrics(text: &[u8], rank: u32) -> EngineMetrics {
    let (mut served, mut prefilled) = (EngineMetrics::default(), EngineMetrics::default());
    let (mut pool, mut started_ms, mut has_ranks) = (Pool::default(), None, false);
    for sample in samples(text) {
        has_ranks |= sample.label(RANK).is_some();
        if !sample.is_of(RANK, rank) || !MEMBERS.iter().all(|member| sample.is_of(member, 0)) {
            continue;
        }
        match sample.name {
            PROCESS_STARTED => started_ms = sample.moment_ms(),
            PAGES | PAGE | CACHE | POOL_TOKENS => pool.take(&sample),
            REQUESTS => add(&mut served.request_count, &sample),
            PROMPTS => add(&mut served.queried_tokens, &sample),
            CACHED => add(&mut served.hit_tokens, &sample),
            PREFILLED => match sample.label("mode") {
                Some(COMPUTED) => add(&mut prefilled.queried_tokens, &sample),
                Some(HAD) => {
                    add(&mut prefilled.queried_tokens, &sample);
                    add(&mut prefilled.hit_tokens, &sample);
                }
                Some(_) | None => (),
            },
            _ => (),
        }
    }
    let counts = if has_ranks { prefilled } else { served };
    let (pool_blocks, block_size) = (pool.pages(), pool.page_size());
    EngineMetrics { started_ms, pool_blocks, block_size, ..counts }
}

/// What is said of a rank's pool.
#[derive(Default)]
struct Pool {
    pages: Option<u64>,
    page: Option<u64>,
    tokens: Option<u64>,
}

impl Pool {
    fn take(&mut self, sample: &Sample<'_>) {
        let label = |name| sample.label(name).and_then(|text| text.parse().ok());
        match sample.name {
            PAGES => self.pages = sample.count(),
            PAGE => self.page = sample.count(),
            POOL_TOKENS => self.tokens = sample.count(),
            _ => {
                self.pages = label("num_pages").or(self.pages);
                self.page = label("page_size").or(self.page);
            }
        }
    }

    fn page_size(&self) -> Option<u32> {
        self.page.and_then(|page| u32::try_from(page).ok()).filter(|page| *page > 0)
    }

    fn pages(&self) -> Option<u64> {
        let told = self.pages.filter(|pages| *pages > 0);
        let pages = told.or_else(|| self.tokens?.checked_div(self.page?));
        pages.filter(|pages| *pages > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = r#"
# TYPE sglang:num_pages gauge
sglang:max_total_num_tokens{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 160000.0
sglang:page_size{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 16.0
sglang:num_pages{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 10000.0
sglang:num_pages{engine_type="unified",model_name="m",pp_rank="0",tp_rank="1"} 9999.0
sglang:realtime_tokens_total{mode="prefill_compute",model_name="m",tp_rank="0"} 7.0
sglang:num_requests_total{model_name="m"} 12.0
sglang:prompt_tokens_total{model_name="m",priority=""} 8.128902e+06
sglang:cached_tokens_total{cache_source="device",model_name="m"} 2.0e+06
sglang:cached_tokens_total{cache_source="host",model_name="m"} 16.0
"#;

    #[test]
    fn one_rank_has_what_the_server_counts() {
        let figures = EngineMetrics {
            started_ms: None,
            pool_blocks: Some(10_000),
            block_size: Some(16),
            request_count: Some(12),
            queried_tokens: Some(8_128_902),
            hit_tokens: Some(2_000_016),
        };
        assert_eq!(read_metrics(ONE.as_bytes(), 0), figures);
        let started = format!("{ONE}process_start_time_seconds 1.70000000025e+09\n");
        let started_ms = Some(1_700_000_000_250);
        assert_eq!(read_metrics(started.as_bytes(), 0), EngineMetrics { started_ms, ..figures });
    }

    /// As a 0.5.23 server wrote them after 21 requests, without its histograms.
    #[test]
    fn a_real_server_says_what_its_answers_said() {
        let text = include_bytes!("../../../tests/fixtures/sglang-0.5.23-metrics.txt");
        let figures = EngineMetrics {
            started_ms: None,
            pool_blocks: Some(96),
            block_size: Some(16),
            request_count: Some(21),
            queried_tokens: Some(2_578),
            hit_tokens: Some(1_232),
        };
        assert_eq!(read_metrics(text, 0), figures);
    }

    #[test]
    fn of_several_ranks_each_has_what_its_scheduler_counts() {
        let text = r#"
sglang:cache_config_info{dp_rank="0",page_size="64",num_pages="625",tp_rank="0"} 1.0
sglang:cache_config_info{dp_rank="1",page_size="64",tp_rank="0"} 1.0
sglang:max_total_num_tokens{dp_rank="1",tp_rank="0"} 40000.0
sglang:realtime_tokens_total{dp_rank="0",mode="prefill_compute",tp_rank="0"} 100.0
sglang:realtime_tokens_total{dp_rank="0",mode="prefill_cache",tp_rank="0"} 300.0
sglang:realtime_tokens_total{dp_rank="0",mode="prefill_cache",tp_rank="1"} 300.0
sglang:realtime_tokens_total{dp_rank="0",mode="decode",tp_rank="0"} 77.0
sglang:num_requests_total{model_name="m"} 12.0
sglang:prompt_tokens_total{model_name="m"} 900.0
sglang:cached_tokens_total{model_name="m"} 500.0
"#;
        let first = EngineMetrics {
            pool_blocks: Some(625),
            block_size: Some(64),
            queried_tokens: Some(400),
            hit_tokens: Some(300),
            ..EngineMetrics::default()
        };
        assert_eq!(read_metrics(text.as_bytes(), 0), first);
        let (pool_blocks, block_size) = (Some(625), Some(64));
        let second = EngineMetrics { pool_blocks, block_size, ..EngineMetrics::default() };
        assert_eq!(read_metrics(text.as_bytes(), 1), second);
        assert_eq!(read_metrics(text.as_bytes(), 2), EngineMetrics::default());
    }

    #[test]
    fn a_pool_that_makes_no_sense_is_none() {
        for text in [
            "sglang:max_total_num_tokens 1000\n",
            "sglang:max_total_num_tokens 1000\nsglang:page_size 0\n",
            "sglang:num_pages 0\n",
            "sglang:num_pages NaN\n",
            "sglang:cache_config_info{num_pages=\"-1\",page_size=\"x\"} 1\n",
        ] {
            assert_eq!(read_metrics(text.as_bytes(), 0), EngineMetrics::default(), "{text}");
        }
    }

    #[test]
    fn a_cut_or_spoilt_text_never_panics() {
        for at in 0..ONE.len() {
            read_metrics(&ONE.as_bytes()[..at], 0);
            for byte in [b'"', b'{', b'}', b'\\', 0xff] {
                let mut spoilt = ONE.as_bytes().to_vec();
                spoilt[at] = byte;
                read_metrics(&spoilt, 0);
            }
        }
    }
}
