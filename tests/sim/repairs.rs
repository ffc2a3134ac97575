//! How often trust fell below exact, and how long it took to be exact again. In model time.

use kvbridge::schemas::Trust;

/// What became of `exact` in one run, or in many.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repairs {
    /// Since when it is not exact, if it ever was.
    since: Option<u64>,
    is_exact: bool,
    /// How long each time took, milliseconds.
    took_ms: Vec<u64>,
    /// Times after which it never was again in that run.
    open: u64,
    /// How often a view was compared with the engine while it was believed to be exact.
    compared: u64,
}

impl Repairs {
    /// What is believed from now on.
    pub(crate) fn announced(&mut self, now: u64, trust: Trust) {
        let is_exact = trust == Trust::Exact;
        if self.is_exact && !is_exact {
            self.since = Some(now);
        }
        if is_exact && let Some(since) = self.since.take() {
            self.took_ms.push(now - since);
        }
        self.is_exact = is_exact;
    }

    /// The view was looked at; a difference would have ended the run.
    pub(crate) fn looked(&mut self) {
        self.compared += u64::from(self.is_exact);
    }

    /// Adds those of a run that is over.
    pub(crate) fn add(&mut self, run: &Repairs) {
        self.took_ms.extend(&run.took_ms);
        self.open += run.open + u64::from(run.since.is_some());
        self.compared += run.compared;
    }

    /// How often exact trust was taken away.
    fn withdrawn(&self) -> u64 {
        self.open + u64::try_from(self.took_ms.len()).unwrap_or(u64::MAX)
    }

    /// Cells of a table: comparisons, withdrawals, those that never ended, median and longest.
    pub(crate) fn cells(&self) -> String {
        let mut took = self.took_ms.clone();
        took.sort_unstable();
        let median = took.get(took.len() / 2).map_or("–".to_owned(), u64::to_string);
        let longest = took.last().map_or("–".to_owned(), u64::to_string);
        let (compared, withdrawn, open) = (self.compared, self.withdrawn(), self.open);
        format!("{compared} | {withdrawn} | {open} | {median} | {longest}")
    }
}

/// The head of a table whose rows begin with a kind and how often it struck.
pub(crate) const HEAD: &str = "| fault | struck | compared at exact | withdrawn | never again | \
                               median ms | longest ms |\n|---|---|---|---|---|---|---|";
