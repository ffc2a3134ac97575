//! The only place that names engines: which are built in, and how one of their sources is opened.

/// The engines of this build, by the name that configuration, flags and envelopes use.
pub fn engine_names() -> impl Iterator<Item = &'static str> {
    ENGINES.iter().copied()
}

const ENGINES: &[&str] = &[
    #[cfg(feature = "vllm")]
    "vllm",
];
