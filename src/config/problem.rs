//! What is wrong with a configuration, all of it at once.

use std::fmt;

/// One thing to correct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Path of the field, e.g. `sources[0].endpoint`.
    pub path: String,
    /// Where its value came from, e.g. `kvbridge.toml`; absent = it came from nowhere.
    pub origin: Option<String>,
    /// What was expected and what came.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        self.origin.as_ref().map_or(Ok(()), |origin| write!(f, " ({origin})"))
    }
}

/// Every problem of a configuration, in the order of its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// Notes one.
    pub fn add(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.0.push(Problem { path: path.into(), origin: None, message: message.into() });
    }

    /// Notes one whose value came from a known place.
    pub fn add_from(&mut self, path: &str, origin: Option<String>, message: impl Into<String>) {
        self.0.push(Problem { path: path.to_owned(), origin, message: message.into() });
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (line, problem) in self.0.iter().enumerate() {
            let end = if line + 1 == self.0.len() { "" } else { "\n" };
            write!(f, "{problem}{end}")?;
        }
        Ok(())
    }
}
