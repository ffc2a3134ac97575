//! An adapter for an engine that nobody else knows. It sends a line of JSON for every batch to
//! whoever connects, and answers on a second port for those that it sent:
//!
//! ```text
//! {"seq": 0, "stored": [{"hash": "00000000000000a1", "parent": null, "tokens": [1, 2, 3, 4]}]}
//! {"seq": 1, "removed": ["00000000000000a1"]}
//! ```
//!
//! `wire` turns lines into batches, `live` keeps the connection, `journal` asks for old batches,
//! `source` joins the two. [`open`] is all that a bridge needs of it.

mod journal;
mod live;
mod source;
mod wire;

use kvbridge::{
    adapters::{Adapted, AdapterFault, Opening},
    schemas::Projection,
};

use crate::source::TinySource;

/// The engine's name in `[[sources]]` and in envelopes.
pub const ENGINE: &str = "tiny";

/// What `[sources.options]` may say.
#[derive(Clone, Copy, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct TinyOptions {
    /// Tokens per block; the engine's lines do not tell.
    block_size: u32,
}

/// Opens a source: for [`kvbridge::bridge::BridgeBuilder::adapter`].
pub fn open(opening: Opening) -> Result<Adapted, AdapterFault> {
    if opening.url.is_some() {
        return Err("needs an endpoint: the engine has no HTTP server".into());
    }
    let options = serde_json::Value::Object(opening.options.clone());
    let options: TinyOptions = serde_json::from_value(options)?;
    let source = TinySource::spawn(opening, options.block_size);
    // Its hashes are 64 bits, written big-endian: all of them tell blocks apart.
    Ok(Adapted { source: Box::new(source), projection: Projection::Last8 })
}
