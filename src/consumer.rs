//! SHELL. An index in your own program, maintained from a bus: what `kvbridge run` does without a
//! source, without its HTTP API.
//!
//! ```no_run
//! use kvbridge::consumer::Consumer;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let consumer = Consumer::nats("nats://127.0.0.1:4222").model("llama").start().await?;
//! consumer.until_usable("llama").await;
//! for replica in consumer.match_tokens("llama", &[1, 2, 3])?.replicas {
//!     println!("{}: {} tokens ({})", replica.key, replica.matched_tokens, replica.reason);
//! }
//! consumer.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! Replicas appear and vanish by themselves. What may be believed of each travels with every
//! answer: a consumer whose server is away answers that nothing is usable, never with what was true
//! once. Memory is bounded by `view.blocks_max` for each replica; the process's own limit is its
//! owner's.

use crate::{
    bridge::{Bridge, BridgeError},
    config::{self, BusFile, Flags, Secret},
};

/// A bridge that reads a bus and no engine.
pub type Consumer = Bridge;

/// Why a consumer did not start.
pub type ConsumerError = BridgeError;

/// Which bus, who we are there, and what of it is read.
#[derive(Clone, Debug, Default)]
pub struct ConsumerBuilder {
    bus: BusFile,
}

impl ConsumerBuilder {
    /// A user's name and password.
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.bus.user = Some(name.into());
        self.bus.password = Some(Secret::new(password));
        self
    }

    /// A token.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.bus.token = Some(Secret::new(token));
        self
    }

    /// The seed of an nkey.
    pub fn nkey(mut self, seed: impl Into<String>) -> Self {
        self.bus.nkey = Some(Secret::new(seed));
        self
    }

    /// A credentials file (JWT and seed).
    pub fn credentials(mut self, path: impl Into<String>) -> Self {
        self.bus.creds = Some(path.into());
        self
    }

    /// A file with the authority of the server's certificate, PEM.
    pub fn authority(mut self, path: impl Into<String>) -> Self {
        self.bus.tls_ca = Some(path.into());
        self
    }

    /// Files with our certificate and its key, PEM.
    pub fn certificate(mut self, path: impl Into<String>, key: impl Into<String>) -> Self {
        self.bus.tls_cert = Some(path.into());
        self.bus.tls_key = Some(key.into());
        self
    }

    /// Reads replicas of this model, and of others that are named so; without any, of all.
    pub fn model(mut self, name: impl Into<String>) -> Self {
        self.bus.models.get_or_insert_default().push(name.into());
        self
    }

    /// What the streams' names begin with, if not with `KVHINTS`.
    pub fn streams(mut self, prefix: impl Into<String>) -> Self {
        self.bus.stream = Some(prefix.into());
        self
    }

    /// How many streams replicas are spread over, if not one for each model.
    pub fn shards(mut self, count: u32) -> Self {
        self.bus.shards = Some(count.to_string());
        self
    }

    /// Starts to read, inside a tokio runtime.
    pub async fn start(self) -> Result<Consumer, ConsumerError> {
        let flags = Flags { server: self.bus, ..Flags::default() };
        Bridge::start(config::load(None, &[], flags)?).await
    }
}

impl Bridge {
    /// A consumer of a NATS bus: `nats://host:port` or `tls://host:port`, with commas between.
    pub fn nats(url: impl Into<String>) -> ConsumerBuilder {
        let bus = BusFile { url: Some(url.into()), ..BusFile::default() };
        ConsumerBuilder { bus }
    }
}
