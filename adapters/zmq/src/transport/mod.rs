//! The two client sockets as the rest of the crate sees them, and the choice of the library below.
//!
//! A [`LiveSocket`] that connects lives for one connection only: no implementation reconnects by
//! itself. Waiting, trying again and saying what was lost is one supervisor's work above the trait,
//! so it is the same whichever library reads the bytes.

use std::{fmt, future::Future, str::FromStr, time::Duration};

use bytes::Bytes;

use crate::subscribe::{DetachReason, Link};

#[cfg(feature = "omq")]
pub(crate) mod by_omq;
pub(crate) mod by_zeromq;

/// The library that speaks the protocol. `docs/adr/0010-two-zeromq-transports.md` says when to use
/// which.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Transport {
    /// The `zeromq` crate: least memory. For engines you run; a hostile frame length aborts the
    /// process.
    #[default]
    Zeromq,
    /// `omq-tokio`: sizes are limited before memory is taken, PING is answered.
    #[cfg(feature = "omq")]
    Omq,
}

/// Why a name is no transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// Known, but this program was built without it.
    #[error("is not compiled into this program (cargo feature omq)")]
    NotCompiled,
    /// No such name.
    #[error("expected zeromq or omq")]
    Unknown,
}

impl Transport {
    /// Those of this build, the default first.
    pub const COMPILED: &[Transport] = &[
        Transport::Zeromq,
        #[cfg(feature = "omq")]
        Transport::Omq,
    ];

    /// Its name in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Zeromq => "zeromq",
            #[cfg(feature = "omq")]
            Transport::Omq => "omq",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Transport {
    type Err = TransportError;

    fn from_str(name: &str) -> Result<Transport, TransportError> {
        let known = Transport::COMPILED.iter().find(|transport| transport.name() == name);
        match (known, name) {
            (Some(transport), _) => Ok(*transport),
            (None, "omq") => Err(TransportError::NotCompiled),
            (None, _) => Err(TransportError::Unknown),
        }
    }
}

/// What a socket may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketLimits {
    /// For TCP connect, greeting, READY and what follows until the socket can be used.
    pub(crate) connect_timeout: Duration,
    /// The largest frame. A library that can not refuse it unread passes it on, and the parser
    /// refuses it.
    #[cfg_attr(not(feature = "omq"), expect(dead_code, reason = "zeromq has no limit to set"))]
    pub(crate) frame_bytes_max: usize,
}

/// Why a socket could not be opened or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocketError {
    #[error(transparent)]
    Zeromq(#[from] zeromq::ZmqError),
    #[cfg(feature = "omq")]
    #[error(transparent)]
    Omq(#[from] omq_tokio::Error),
    #[cfg(feature = "omq")]
    #[error("{0}")]
    Peer(String),
    #[error("timed out")]
    TimedOut,
}

/// A SUB for one endpoint.
pub(crate) trait LiveSocket: Sized + Send {
    /// Connected and subscribed, or bound.
    fn open(
        link: &Link,
        topics: &[&str],
        limits: SocketLimits,
    ) -> impl Future<Output = Result<Self, SocketError>> + Send;

    /// The endpoint a [`Link::Bind`] got.
    fn bound(&self) -> Option<&str>;

    /// The next message, or how a connection ended. After that a connected socket is of no more
    /// use; a bound one goes on, and messages of the ended connection may still follow.
    /// Cancel-safe.
    fn recv(&mut self) -> impl Future<Output = Result<Vec<Bytes>, DetachReason>> + Send;
}

/// A DEALER for one exchange. Dropping it closes the connection.
pub(crate) trait RequestSocket: Sized + Send {
    /// Connected to a peer of the right kind.
    fn open(
        endpoint: &str,
        limits: SocketLimits,
    ) -> impl Future<Output = Result<Self, SocketError>> + Send;

    /// Sends one message.
    fn send(&mut self, frames: Vec<Bytes>) -> impl Future<Output = Result<(), SocketError>> + Send;

    /// The next reply, or how the connection ended; replies that came before its end come first.
    /// Cancel-safe.
    fn recv(&mut self) -> impl Future<Output = Result<Vec<Bytes>, DetachReason>> + Send;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for transport in Transport::COMPILED {
            assert_eq!(transport.to_string().parse(), Ok(*transport));
        }
        assert_eq!("omg".parse::<Transport>(), Err(TransportError::Unknown));
        if Transport::COMPILED.len() == 1 {
            assert_eq!("omq".parse::<Transport>(), Err(TransportError::NotCompiled));
        }
    }
}
