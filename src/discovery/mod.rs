//! PURE. Which engines there are, and when to ask about them.
//!
//! The shell resolves names and asks engines; this decides. What was told once is kept until it is
//! told otherwise: an engine or a name server that does not answer is evidence of nothing. A name
//! that leaves its engine out makes it missing, and one that was missing for the grace time and is
//! left out again is gone. So a name that flaps closes nothing, and nobody's epoch changes.

mod engine;
mod roster;

#[cfg(test)]
mod tests;

use std::net::IpAddr;

pub use engine::{Answer, Refusal};
pub use roster::{Roster, Standing, State, Task};

/// Where an engine's HTTP server is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// Name, IPv4 address or bracketed IPv6 address, as it was given or resolved to.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// What the host is reached at, where that is known.
    pub ip: Option<IpAddr>,
}

impl Address {
    /// What tells engines apart. An engine that moves to another IP under its own name stays the
    /// same one.
    pub fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

/// Where engines of one entry are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// There is one.
    Here(Address),
    /// Wherever this name leads to.
    Name {
        /// The name; of services if it begins with an underscore.
        name: String,
        /// Port of the engines, where the name does not tell it.
        port: Option<u16>,
    },
}

/// How often, and how much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Time between two requests to an engine that answers.
    pub refresh_ms: u64,
    /// Time between two looks at a name.
    pub resolve_ms: u64,
    /// How long a name may leave an engine out.
    pub grace_ms: u64,
    /// First wait after a request without an answer, doubled up to `refresh_ms`.
    pub retry_ms: u64,
    /// Engines of one entry.
    pub engines_max: usize,
    /// Requests and looks at a time.
    pub open_max: usize,
}
