//! SHELL. How this program asks others over HTTP.

use tokio_rustls::rustls::crypto::ring;

/// A client that goes nowhere else than it was sent: no proxy, because only `main` reads the
/// environment, and no redirect, because the address is meant as configured.
pub(crate) fn builder() -> reqwest::ClientBuilder {
    // The first in the process wins; all would be this one.
    drop(ring::default_provider().install_default());
    reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none())
}
