//! How a subcommand speaks to a running kvbridge: certificate authority, token, refusals.

use std::path::Path;

use tokio_rustls::rustls::crypto::ring;

use super::TailError;
use crate::config::Secret;

/// Most bytes of a refusal that are read.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;

/// A client that believes the given authority, or those of the system.
pub(super) fn client(ca: Option<&Path>, url: &str) -> Result<reqwest::Client, TailError> {
    // The first in the process wins; both would be this one.
    drop(ring::default_provider().install_default());
    // No proxy: the address is meant as typed, and only `main` reads the environment.
    let mut builder = reqwest::Client::builder().no_proxy();
    if let Some(path) = ca {
        let wrong = |message: String| TailError::File { path: path.to_owned(), message };
        let pem = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
        let certificates = reqwest::Certificate::from_pem_bundle(&pem)
            .map_err(|_| wrong("expected certificates as PEM".to_owned()))?;
        if certificates.is_empty() {
            return Err(wrong("holds no certificate".to_owned()));
        }
        builder = builder.tls_certs_only(certificates);
    }
    builder.build().map_err(|source| TailError::Request { url: url.to_owned(), source })
}

/// The token in a file: its one line.
pub(super) fn token(path: &Path) -> Result<Secret, TailError> {
    let wrong = |message: String| TailError::File { path: path.to_owned(), message };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let token = text.trim();
    if token.is_empty() || token.contains(|c: char| !c.is_ascii_graphic()) {
        return Err(wrong("expected one token and nothing else".to_owned()));
    }
    Ok(Secret::new(token))
}

/// Why a kvbridge refused, after a space; empty when it does not say.
pub(super) async fn reason(response: reqwest::Response) -> String {
    if response.content_length().is_none_or(|length| length > REFUSAL_BYTES_MAX as u64) {
        return String::new();
    }
    let Ok(body) = response.bytes().await else { return String::new() };
    let value: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    match (value["reason"].as_str(), value["detail"].as_str()) {
        (Some(reason), Some(detail)) => format!(" {reason}: {detail}"),
        _ => String::new(),
    }
}
