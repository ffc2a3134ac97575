//! The address of a ZeroMQ socket: `tcp://host:port`.

use std::{fmt, str::FromStr};

use crate::discovery::Address;

/// A TCP endpoint. `host` is `*` only where a socket binds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// Name, IPv4 address, bracketed IPv6 address or `*`.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl From<Address> for Endpoint {
    fn from(Address { host, port, .. }: Address) -> Endpoint {
        Endpoint { host, port }
    }
}

impl Endpoint {
    /// `host:port`, as routers write an instance.
    pub fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The endpoint of a later data-parallel rank; `None` past the last port.
    pub fn for_rank(&self, offset: u32) -> Option<Endpoint> {
        let port = self.port.checked_add(u16::try_from(offset).ok()?)?;
        Some(Endpoint { host: self.host.clone(), port })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tcp://{}:{}", self.host, self.port)
    }
}

/// Why a text is not an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected tcp://host:port, got {text:?}")]
pub struct EndpointError {
    text: String,
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Endpoint, EndpointError> {
        let wrong = || EndpointError { text: text.to_owned() };
        let rest = text.strip_prefix("tcp://").ok_or_else(wrong)?;
        let (host, port) = rest.rsplit_once(':').ok_or_else(wrong)?;
        let port: u16 = port.parse().map_err(|_| wrong())?;
        let bracketed = host.starts_with('[') && host.ends_with(']');
        let odd = |c: char| c.is_whitespace() || matches!(c, '/' | '@' | ',' | '?' | '#');
        if host.is_empty() || port == 0 || host.contains(odd) || (!bracketed && host.contains(':'))
        {
            return Err(wrong());
        }
        Ok(Endpoint { host: host.to_owned(), port })
    }
}
