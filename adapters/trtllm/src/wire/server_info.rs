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
        ServerInfo { .. } => Ok(EventSources { model: None, streams: Streams::Drained }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_known_by_its_own_fields() {
        let drained = EventSources { model: None, streams: Streams::Drained };
        for body in [r#"{"tokens_per_block": 32}"#, r#"{"kv_cache_hash_algo": "v1_block_key"}"#] {
            assert_eq!(read_sources(body.as_bytes()), Ok(drained.clone()), "{body}");
        }
        for body in ["{}", r#"{"kv_events": null, "page_size": 16}"#, "nothing"] {
            assert_eq!(read_sources(body.as_bytes()), Err(SourcesFault::Foreign), "{body}");
        }
    }
}
