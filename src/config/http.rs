//! `[http]`: where the API listens, who is let in, and how long a slow client is waited for.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use super::{
    file::{HttpFile, TlsFile},
    limits,
    validate::Check,
};

/// The HTTP API beside its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpConfig {
    /// Who may do what; absent = nobody is asked.
    pub tokens_file: Option<PathBuf>,
    /// Encryption; absent = none.
    pub tls: Option<TlsConfig>,
    /// Names that the API is asked by, beside localhost and addresses.
    pub names: Vec<String>,
    /// See [`limits::HTTP_CONNECTION_COUNT_MAX`].
    pub connection_count_max: u32,
    /// See [`limits::HTTP_HEADER_DEADLINE`].
    pub header_deadline: Duration,
    /// See [`limits::HTTP_BODY_DEADLINE`].
    pub body_deadline: Duration,
    /// See [`limits::HTTP_STALL_DEADLINE`].
    pub stall_deadline: Duration,
}

/// Files of the encrypted API, all PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// Our certificate, with the chain to its root.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Clients must show a certificate of this authority.
    pub client_ca: Option<PathBuf>,
}

impl Default for HttpConfig {
    fn default() -> HttpConfig {
        HttpConfig {
            tokens_file: None,
            tls: None,
            names: Vec::new(),
            connection_count_max: limits::HTTP_CONNECTION_COUNT_MAX,
            header_deadline: limits::HTTP_HEADER_DEADLINE,
            body_deadline: limits::HTTP_BODY_DEADLINE,
            stall_deadline: limits::HTTP_STALL_DEADLINE,
        }
    }
}

impl HttpConfig {
    /// Whether everybody is asked who they are.
    pub(super) fn asks(&self) -> bool {
        let of_client = self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        self.tokens_file.is_some() || of_client
    }
}

impl Check<'_> {
    pub(super) fn http(&mut self, listen: SocketAddr, file: HttpFile) -> HttpConfig {
        let base = HttpConfig::default();
        let config = HttpConfig {
            tokens_file: self.path("http.tokens_file", file.tokens_file),
            tls: file.tls.and_then(|tls| self.tls("http.tls", tls)),
            names: self.names(file.names.unwrap_or_default()),
            connection_count_max: self.count(
                "http.connections_max",
                file.connections_max,
                base.connection_count_max,
            ),
            header_deadline: self.span(
                "http.header_deadline",
                file.header_deadline,
                base.header_deadline,
            ),
            body_deadline: self.span("http.body_deadline", file.body_deadline, base.body_deadline),
            stall_deadline: self.span(
                "http.stall_deadline",
                file.stall_deadline,
                base.stall_deadline,
            ),
        };
        if !listen.ip().is_loopback() && !config.asks() && !file.insecure.unwrap_or(false) {
            let message = "is not the loopback, and nobody is asked who they are: set \
                           http.tokens_file or http.tls.client_ca, or say --insecure";
            self.note("http.listen", message);
        }
        config
    }

    /// Without a port: whoever asks by another one has reached us all the same.
    fn names(&mut self, names: Vec<String>) -> Vec<String> {
        let of_a_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        for name in &names {
            if name.is_empty() || !name.bytes().all(of_a_name) {
                let message = format!("expected a name such as kvbridge.example, got {name:?}");
                self.note("http.names", message);
            }
        }
        names
    }

    pub(super) fn tls(&mut self, path: &str, file: TlsFile) -> Option<TlsConfig> {
        let client_ca = self.path(&format!("{path}.client_ca"), file.client_ca);
        let section = path;
        let mut needed = |field: &str, path: Option<String>| {
            let at = format!("{section}.{field}");
            if path.is_none() {
                self.note(&at, "is missing, expected a PEM file");
            }
            self.path(&at, path)
        };
        let (cert, key) = (needed("cert", file.cert), needed("key", file.key));
        Some(TlsConfig { cert: cert?, key: key?, client_ca })
    }

    pub(super) fn path(&mut self, at: &str, path: Option<String>) -> Option<PathBuf> {
        if path.as_deref() == Some("") {
            self.note(at, "must not be empty");
        }
        path.map(PathBuf::from)
    }
}
