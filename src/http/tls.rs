//! TLS of a listener: certificate, key and the authority of client certificates, read once when
//! it begins.

use std::{fmt::Display, path::Path, sync::Arc};

use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
        server::WebPkiClientVerifier,
    },
};

use crate::config::{Problems, TlsConfig};

/// Reads the files that are configured `at` a place, or says all that is wrong with them. Clients
/// are offered that protocol.
pub(crate) fn acceptor(
    at: &str,
    config: &TlsConfig,
    protocol: &[u8],
) -> Result<TlsAcceptor, Problems> {
    let mut problems = Problems::default();
    let cert = certificates(&format!("{at}.cert"), &config.cert, &mut problems);
    let key = PrivateKeyDer::from_pem_file(&config.key)
        .map_err(|error| note(&mut problems, &format!("{at}.key"), &config.key, &error))
        .ok();
    let client_ca = config
        .client_ca
        .as_ref()
        .map(|path| (path, certificates(&format!("{at}.client_ca"), path, &mut problems)));
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| note(&mut problems, at, &config.cert, &error));
    let (Ok(builder), Some(key), true) = (builder, key, problems.0.is_empty()) else {
        return Err(problems);
    };
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some((path, certificates)) => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(certificates);
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            match verifier.build() {
                Ok(verifier) => builder.with_client_cert_verifier(verifier),
                Err(error) => {
                    note(&mut problems, &format!("{at}.client_ca"), path, &error);
                    return Err(problems);
                }
            }
        }
    };
    match builder.with_single_cert(cert, key) {
        Ok(mut server) => {
            server.alpn_protocols = vec![protocol.to_vec()];
            Ok(TlsAcceptor::from(Arc::new(server)))
        }
        Err(error) => {
            note(&mut problems, &format!("{at}.key"), &config.key, &error);
            Err(problems)
        }
    }
}

fn certificates(at: &str, path: &Path, problems: &mut Problems) -> Vec<CertificateDer<'static>> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    match read {
        Ok(certificates) if Vec::is_empty(&certificates) => {
            note(problems, at, path, &"holds no certificate");
            Vec::new()
        }
        Ok(certificates) => certificates,
        Err(error) => {
            note(problems, at, path, &error);
            Vec::new()
        }
    }
}

fn note(problems: &mut Problems, at: &str, path: &Path, error: &dyn Display) {
    problems.add_from(at, Some(path.display().to_string()), error.to_string());
}
