//! Counters of requests that a foreign page had a browser send.

use metrics::{Counter, counter};

use super::{label, name};

/// Handles by what gave the page away.
pub struct Foreign {
    /// Its own origin.
    pub cross_site: Counter,
    /// The name it asked by.
    pub unknown_host: Counter,
}

impl Foreign {
    /// Registers the handles.
    pub fn register() -> Foreign {
        let text = "requests of pages from elsewhere";
        metrics::describe_counter!(name::HTTP_FOREIGN, text);
        let by = |word: &'static str| counter!(name::HTTP_FOREIGN, label::REASON => word);
        Foreign { cross_site: by("cross_site"), unknown_host: by("unknown_host") }
    }
}
