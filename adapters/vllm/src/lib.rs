//! vLLM KV-cache events: every wire form from 0.9.0 on, decoded and normalised.
