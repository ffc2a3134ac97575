//! Countable facts: each becomes one counter and at most one log line, in one function of the shell.

/// Something worth counting. The names are those of the decision table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fact {
    /// The all-ones seq came on the live stream.
    EndMarker,
    /// A batch of a closed life.
    StaleEpoch,
    /// A new life begins.
    NewEpoch,
}

impl Fact {
    /// The label: metric value, test name and word in the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Fact::EndMarker => "end_marker",
            Fact::StaleEpoch => "stale_epoch",
            Fact::NewEpoch => "new_epoch",
        }
    }
}
