//! `GET /server_info`: what an engine says of itself before its events.

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
