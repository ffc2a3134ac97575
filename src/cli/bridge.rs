//! How a subcommand speaks to a running kvbridge: certificates, token, refusals.

use std::path::{Path, PathBuf};

use super::{AccessArgs, Exit};
use crate::{config::Secret, web_client};

/// Most bytes of an answer that is not a stream.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// Whom to believe, and who we are.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct TlsArgs {
    /// The authority of the server's certificate, PEM [default: those of the system]
    #[arg(long, value_name = "FILE")]
    pub(super) ca: Option<PathBuf>,
    /// Our certificate, PEM, for a server that wants one
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(super) cert: Option<PathBuf>,
    /// The key of our certificate, PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(super) key: Option<PathBuf>,
}

/// Why a kvbridge could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    /// A file with a token or a certificate cannot be used.
    #[error("{}: {message}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        message: String,
    },
    /// The kvbridge cannot be reached, or the connection broke.
    #[error("cannot read {url}: {}{advice}", chain(source))]
    Request {
        /// Which address.
        url: String,
        /// Why.
        source: reqwest::Error,
        /// What may help, after a semicolon.
        advice: &'static str,
    },
    /// What came is no answer of a kvbridge.
    #[error("{url} does not answer as a kvbridge does")]
    NotOurs {
        /// Which address.
        url: String,
    },
    /// It answered with something else.
    #[error("{url} answered {status}{reason}")]
    Refused {
        /// Which address.
        url: String,
        /// Its status.
        status: u16,
        /// Its reason, after a space.
        reason: String,
    },
}

impl TlsArgs {
    /// A request to `url` that got no answer. A server that wants a certificate says so in an alert
    /// after the handshake, and a connection that ends first loses it: all that is left to tell is
    /// "connection was not ready".
    pub(super) fn no_answer(&self, url: &str, source: reqwest::Error) -> BridgeError {
        let ended = source.is_request() && !source.is_connect() && !source.is_timeout();
        let advice = if ended && self.cert.is_none() && url.starts_with("https:") {
            "; if the server wants a certificate of ours: --cert and --key"
        } else {
            ""
        };
        BridgeError::Request { url: url.to_owned(), source, advice }
    }
}

impl BridgeError {
    pub(super) fn exit(&self) -> Exit {
        match self {
            BridgeError::File { .. } => Exit::BadInput,
            BridgeError::Request { .. }
            | BridgeError::NotOurs { .. }
            | BridgeError::Refused { .. } => Exit::Failed,
        }
    }
}

/// A client for that address.
pub(super) fn client(tls: &TlsArgs, url: &str) -> Result<reqwest::Client, BridgeError> {
    let mut builder = web_client::builder([url]);
    if let Some(path) = &tls.ca {
        let certificates = reqwest::Certificate::from_pem_bundle(&read(path)?)
            .map_err(|_| wrong(path, "expected certificates as PEM"))?;
        if certificates.is_empty() {
            return Err(wrong(path, "holds no certificate"));
        }
        builder = builder.tls_certs_only(certificates);
    }
    if let (Some(cert), Some(key)) = (&tls.cert, &tls.key) {
        let mut pem = read(key)?;
        pem.push(b'\n');
        pem.extend(read(cert)?);
        let identity = reqwest::Identity::from_pem(&pem)
            .map_err(|_| wrong(cert, "expected a certificate, and its key in the file of --key"))?;
        builder = builder.identity(identity);
    }
    builder.build().map_err(|source| tls.no_answer(url, source))
}

fn read(path: &Path) -> Result<Vec<u8>, BridgeError> {
    std::fs::read(path).map_err(|error| wrong(path, error.to_string()))
}

fn wrong(path: &Path, message: impl Into<String>) -> BridgeError {
    BridgeError::File { path: path.to_owned(), message: message.into() }
}

/// A path as the configuration has it.
pub(super) fn path_text(path: &Path) -> Result<String, BridgeError> {
    path.to_str().map(str::to_owned).ok_or_else(|| wrong(path, "is no text"))
}

/// The secret in a file: its one line.
pub(super) fn one_line(path: &Path) -> Result<Secret, BridgeError> {
    let text = String::from_utf8(read(path)?);
    let text = text.as_deref().unwrap_or_default();
    let token = text.trim();
    if token.is_empty() || token.contains(|c: char| !c.is_ascii_graphic()) {
        return Err(wrong(path, "expected one line, and nothing else"));
    }
    Ok(Secret::new(token))
}

/// What an answer says, if it is of a size that people read.
pub(super) async fn text(response: reqwest::Response) -> Option<String> {
    text_up_to(response, ANSWER_BYTES_MAX).await
}

/// What an answer says, if it is no longer than that.
pub(super) async fn text_up_to(response: reqwest::Response, bytes_max: u64) -> Option<String> {
    if response.content_length().is_none_or(|length| length > bytes_max) {
        return None;
    }
    response.text().await.ok()
}

/// The JSON that a kvbridge answers a GET with.
pub(super) async fn json(access: &AccessArgs, url: &str) -> Result<serde_json::Value, BridgeError> {
    let failed = |source| access.tls.no_answer(url, source);
    let mut request = client(&access.tls, url)?.get(url);
    if let Some(path) = &access.token_file {
        request = request.bearer_auth(one_line(path)?.expose());
    }
    let response = request.send().await.map_err(failed)?;
    if !response.status().is_success() {
        return Err(refusal(response, url.to_owned()).await);
    }
    let text = text(response).await.unwrap_or_default();
    serde_json::from_str(&text).map_err(|_| BridgeError::NotOurs { url: url.to_owned() })
}

/// A refusal with its reason, if it gives one.
pub(super) async fn refusal(response: reqwest::Response, url: String) -> BridgeError {
    let status = response.status().as_u16();
    let text = text(response).await.unwrap_or_default();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let reason = match (value["reason"].as_str(), value["detail"].as_str()) {
        (Some(reason), Some(detail)) => format!(" {reason}: {detail}"),
        _ => String::new(),
    };
    BridgeError::Refused { url, status, reason }
}

/// An error with what caused it: without the chain a wrong certificate is "error sending request".
fn chain(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
