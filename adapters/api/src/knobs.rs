//! What an operator sets at an engine, in the engine's own words.

/// The settings that decide whether an engine's events can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knobs {
    /// Turns events on.
    pub events: &'static str,
    /// Where they are published, so that others reach it.
    pub endpoint: &'static str,
    /// Gives it a journal, and tells where that answers.
    pub journal: &'static str,
    /// How much the journal keeps, or how many events wait.
    pub buffer: &'static str,
    /// Decides how block hashes are written.
    pub hashes: &'static str,
    /// Tokens per block.
    pub block_size: &'static str,
    /// Which releases send a wire form: form, releases.
    pub releases: &'static [(&'static str, &'static str)],
}

impl Knobs {
    /// The releases that send this form.
    pub fn releases_of(&self, format: &str) -> Option<&'static str> {
        let found = self.releases.iter().find(|(form, _)| *form == format);
        found.map(|(_, releases)| *releases)
    }
}
