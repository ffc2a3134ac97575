//! `GET /server_info`: what an engine says of itself before its events.

use kvbridge_adapters_api::{EventSources, SourcesFault, Streams};

/// What is of use of it. Older servers tell less, or have no such path.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
pub struct ServerInfo {
    /// Tokens per block.
    #[serde(default)]
    pub tokens_per_block: Option<u32>,
    /// How block hashes are computed.
    #[serde(default)]
    pub kv_cache_hash_algo: Option<String>,
}

impl ServerInfo {
    /// Reads an answer. One that cannot be read tells nothing.
    pub fn read(body: &[u8]) -> ServerInfo {
        let mut info: ServerInfo = serde_json::from_slice(body).unwrap_or_default();
        info.tokens_per_block = info.tokens_per_block.filter(|size| *size > 0);
        info
    }
}

/// Reads an answer for whether there is an engine to be drained. It tells neither ranks nor model.
pub fn read_sources(body: &[u8]) -> Result<EventSources, SourcesFault> {
    match ServerInfo::read(body) {
        ServerInfo { tokens_per_block: None, kv_cache_hash_algo: None } => {
            Err(SourcesFault::Foreign)
        }
        ServerInfo { tokens_per_block: block_size, kv_cache_hash_algo: algorithm } => {
            Ok(EventSources { model: None, block_size, algorithm, streams: Streams::Drained })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_known_by_its_own_fields() {
        let drained = |block_size, algorithm: Option<&str>| {
            let algorithm = algorithm.map(str::to_owned);
            Ok(EventSources { model: None, block_size, algorithm, streams: Streams::Drained })
        };
        let size = br#"{"tokens_per_block": 32}"#;
        assert_eq!(read_sources(size), drained(Some(32), None));
        let algorithm = br#"{"kv_cache_hash_algo": "v1_block_key"}"#;
        assert_eq!(read_sources(algorithm), drained(None, Some("v1_block_key")));
        for body in ["{}", r#"{"kv_events": null, "page_size": 16}"#, "nothing"] {
            assert_eq!(read_sources(body.as_bytes()), Err(SourcesFault::Foreign), "{body}");
        }
    }
}
