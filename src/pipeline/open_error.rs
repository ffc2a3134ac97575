//! Why a source was not opened.

use crate::adapters::AdapterFault;

/// Why a source was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The engine is not part of this build.
    #[error("engine {engine} is not part of this build")]
    NotBuilt {
        /// Its name.
        engine: String,
    },
    /// The engine publishes nothing: there are no frames to look at.
    #[error("engine {engine} is asked for its events and publishes no frames")]
    NotPublished {
        /// Its name.
        engine: String,
    },
    /// An adapter of the program opened nothing.
    #[error("adapter of engine {engine}")]
    Adapter {
        /// Its name.
        engine: String,
        /// Why.
        source: AdapterFault,
    },
    /// What asks it could not be made.
    #[error("cannot ask {url}")]
    Client {
        /// Where.
        url: String,
        /// Why.
        source: reqwest::Error,
    },
}
