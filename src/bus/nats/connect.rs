//! A configuration as a connection, and an error as a word that an operator can act on.

use std::{io, path::PathBuf, time::Duration};

use async_nats::{
    Client, ConnectError, ConnectErrorKind, ConnectOptions,
    jetstream::{Context, context::ContextBuilder},
};

use super::super::BusState;
use crate::config::{
    NatsAuth, NatsConfig,
    limits::{BUS_ACK_TIMEOUT, BUS_WINDOW},
};

/// How long one attempt may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A dead peer is noticed after two of these. The client's own default takes minutes.
const PING_EVERY: Duration = Duration::from_secs(5);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectFailure {
    /// A file cannot be read.
    #[error("{what} {}: {source}", path.display())]
    File {
        /// What it is.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The server does not accept our credentials.
    #[error("the server refuses the credentials of [bus]: {}", .0.kind())]
    Credentials(ConnectError),
    /// The certificates do not fit.
    #[error("TLS with the server failed: {}", reason(.0))]
    Tls(ConnectError),
    /// No server answers.
    #[error("no server answers: {}", reason(.0))]
    Away(ConnectError),
}

impl ConnectFailure {
    /// The word for it.
    pub fn state(&self) -> BusState {
        match self {
            ConnectFailure::Credentials(_) => BusState::CredentialsRefused,
            ConnectFailure::File { what: "credentials", .. } => BusState::CredentialsRefused,
            ConnectFailure::Tls(_) | ConnectFailure::File { .. } => BusState::TlsRefused,
            ConnectFailure::Away(_) => BusState::Away,
        }
    }
}

/// An error with what caused it, in one line.
pub(super) fn reason(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

/// Connects once.
pub async fn connect(
    config: &NatsConfig,
    options: ConnectOptions,
) -> Result<Client, ConnectFailure> {
    for (what, path) in files(config) {
        // The client's own error names neither the file nor its purpose.
        tokio::fs::metadata(path).await.map_err(|source| ConnectFailure::File {
            what,
            path: path.clone(),
            source,
        })?;
    }
    let mut options = options
        .name("kvbridge")
        .custom_inbox_prefix(&config.inbox)
        .connection_timeout(CONNECT_TIMEOUT)
        .request_timeout(Some(CONNECT_TIMEOUT))
        .ping_interval(PING_EVERY)
        .require_tls(config.tls.required);
    options = match &config.auth {
        NatsAuth::Open => options,
        NatsAuth::Token(token) => options.token(token.expose().to_owned()),
        NatsAuth::User { name, password } => {
            options.user_and_password(name.clone(), password.expose().to_owned())
        }
        NatsAuth::Nkey(seed) => options.nkey(seed.expose().to_owned()),
        NatsAuth::Creds(path) => options.credentials_file(path).await.map_err(|source| {
            ConnectFailure::File { what: "credentials", path: path.clone(), source }
        })?,
    };
    if let Some(ca) = &config.tls.ca {
        options = options.add_root_certificates(ca.clone());
    }
    if let Some((cert, key)) = &config.tls.client {
        options = options.add_client_certificate(cert.clone(), key.clone());
    }
    options.connect(config.urls.as_slice()).await.map_err(failure)
}

fn files(config: &NatsConfig) -> Vec<(&'static str, &PathBuf)> {
    let mut files = Vec::new();
    files.extend(config.tls.ca.as_ref().map(|path| ("bus.tls_ca", path)));
    if let Some((cert, key)) = &config.tls.client {
        files.extend([("bus.tls_cert", cert), ("bus.tls_key", key)]);
    }
    files
}

fn failure(error: ConnectError) -> ConnectFailure {
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            ConnectFailure::Credentials(error)
        }
        ConnectErrorKind::Tls => ConnectFailure::Tls(error),
        // A handshake that fails on a certificate comes as an I/O error: on the server's when we
        // refuse it, as an alert when the server refuses ours.
        ConnectErrorKind::Io if is_of_tls(&reason(&error)) => ConnectFailure::Tls(error),
        _ => ConnectFailure::Away(error),
    }
}

fn is_of_tls(reason: &str) -> bool {
    ["certificate", "received fatal alert"].iter().any(|sign| reason.contains(sign))
}

/// JetStream over a connection. Acks that are awaited and acks that are not have a timeout each;
/// with only one of them set, a lost ack holds its place in the client's window for half a minute.
pub(super) fn jetstream(client: Client) -> Context {
    ContextBuilder::new()
        .timeout(BUS_ACK_TIMEOUT)
        .ack_timeout(BUS_ACK_TIMEOUT)
        // The window is ours; the client's own only has to be wider.
        .max_ack_inflight(BUS_WINDOW * 8)
        .build(client)
}
