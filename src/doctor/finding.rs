//! A finding, and what all findings of a kind have in common.

use std::fmt;

use kvbridge_adapters_api::Knobs;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// As it must be.
    Ok,
    /// Worth knowing.
    Note,
    /// Routing is worse than it could be, or nothing could be seen.
    Warning,
    /// The cache signal is dead or false.
    Error,
}

impl Severity {
    /// The word shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Ok => "ok",
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// What programs match on.
    pub id: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// What is the case.
    pub meaning: &'static str,
    /// What mostly is behind it; empty where nothing is wrong.
    pub cause: &'static str,
    /// What to change. `{name}` stands for a setting of the engine, see [`About::setting`].
    pub setting: &'static str,
}

/// One of an engine's settings.
type Knob = fn(&Knobs) -> &'static str;

/// What stands for an engine's setting where the engine is not known: placeholder, words.
const KNOBS: [(&str, &str, Knob); 6] = [
    ("{events}", "the engine's option for KV-cache events", |knobs| knobs.events),
    ("{endpoint}", "the engine's event endpoint", |knobs| knobs.endpoint),
    ("{journal}", "the engine's replay endpoint", |knobs| knobs.journal),
    ("{buffer}", "the engine's event buffer size", |knobs| knobs.buffer),
    ("{hashes}", "the engine's hash options", |knobs| knobs.hashes),
    ("{block_size}", "the engine's block size", |knobs| knobs.block_size),
];

impl About {
    /// What to change, in the engine's own words where it is known.
    pub fn setting(&self, knobs: Option<&Knobs>) -> String {
        let mut text = self.setting.to_owned();
        for (name, words, of) in KNOBS {
            text = text.replace(name, knobs.map_or(words, of));
        }
        text
    }
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its row of the table.
    pub about: &'static About,
    /// Of whom: `rank 0`, a replica's key; empty = of the whole.
    pub subject: String,
    /// What was seen, with its numbers; empty where the row says it all.
    pub detail: String,
    /// What mostly is behind it.
    pub cause: String,
    /// What to change.
    pub setting: String,
}

impl Finding {
    /// One without a subject or a detail.
    pub fn new(about: &'static About, knobs: Option<&Knobs>) -> Finding {
        Finding {
            about,
            subject: String::new(),
            detail: String::new(),
            cause: about.cause.to_owned(),
            setting: about.setting(knobs),
        }
    }

    /// The same of somebody.
    pub fn of(self, subject: impl Into<String>) -> Finding {
        Finding { subject: subject.into(), ..self }
    }

    /// The same with what was seen.
    pub fn seen(self, detail: impl Into<String>) -> Finding {
        Finding { detail: detail.into(), ..self }
    }
}

/// What decides how a look ends.
pub fn worst(findings: &[Finding]) -> Severity {
    findings.iter().map(|found| found.about.severity).max().unwrap_or(Severity::Ok)
}
