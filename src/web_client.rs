//! SHELL. How this program asks others over HTTP.

use tokio_rustls::rustls::crypto::ring;

/// A client for these addresses that goes nowhere else than it was sent: no proxy, because only
/// `main` reads the environment, and no redirect, because an address is meant as configured.
pub(crate) fn builder<'a>(urls: impl IntoIterator<Item = &'a str>) -> reqwest::ClientBuilder {
    // The first in the process wins; all would be this one.
    drop(ring::default_provider().install_default());
    let builder = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
    let is_plain =
        |url: &str| url.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http:"));
    if urls.into_iter().all(is_plain) {
        // Slim images have no authorities, and a client that wants those of the system is not even
        // made without them.
        return builder.tls_certs_only([]);
    }
    builder
}

/// The body of an answer; `None` = it has more than so many bytes.
pub(crate) async fn body(
    mut response: reqwest::Response,
    max: usize,
) -> reqwest::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > max {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

/// What caused an error; the chain above it repeats the address.
pub(crate) fn root(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}
