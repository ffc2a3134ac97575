//! What the program itself says, mostly its command line, to be laid over the file.

use super::{BusFile, SourceFile};
use crate::adapters::Adapters;

/// What the program says about the configuration.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--listen`.
    pub listen: Option<String>,
    /// `--insecure`.
    pub insecure: bool,
    /// Sources; none = those of the file.
    pub sources: Vec<SourceFile>,
    /// Which server of a bus to go to, and how: address, credentials, certificates.
    pub server: BusFile,
    /// Engines that the program reads beside those which are built in.
    pub adapters: Adapters,
}

/// Lays the server that flags name over that of the file. Whoever says who they are does so as a
/// whole: a file's token beside a flag's name would be two identities.
pub(super) fn lay_over(file: &mut BusFile, flags: BusFile) {
    let BusFile { url, token, user, password, nkey, creds, tls_ca, tls_cert, tls_key, .. } = flags;
    let BusFile { stream, shards, models, .. } = flags;
    if url.is_some() {
        file.kind = Some("nats".to_owned());
        file.url = url;
    }
    if token.is_some() || user.is_some() || nkey.is_some() || creds.is_some() {
        (file.token, file.user, file.password) = (token, user, password);
        (file.nkey, file.creds) = (nkey, creds);
    }
    file.stream = stream.or(file.stream.take());
    file.shards = shards.or(file.shards.take());
    file.models = models.or(file.models.take());
    file.tls_ca = tls_ca.or(file.tls_ca.take());
    if tls_cert.is_some() {
        (file.tls_cert, file.tls_key) = (tls_cert, tls_key);
    }
}
