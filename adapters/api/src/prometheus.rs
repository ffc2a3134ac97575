//! PURE. Lines of a Prometheus text, as engines show their metrics. Total: what cannot be read is
//! absent, and memory does not depend on what the text says.

use std::time::Duration;

/// Start of the process that answers, of Prometheus clients in every language.
pub const PROCESS_STARTED: &str = "process_start_time_seconds";

/// One line: `name{labels} value [time]`.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// Its metric.
    pub name: &'a str,
    labels: &'a str,
    value: &'a str,
}

/// The samples of a text, in its order.
pub fn samples(text: &[u8]) -> impl Iterator<Item = Sample<'_>> {
    text.split(|byte| *byte == b'\n').filter_map(|line| sample(std::str::from_utf8(line).ok()?))
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let (name, rest) = match line.find(['{', ' ']) {
        Some(at) => line.split_at_checked(at)?,
        None => return None,
    };
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => rest.split_at_checked(labels_end(rest)?)?,
        None => ("", rest),
    };
    let value = rest.trim_start_matches('}').split_ascii_whitespace().next()?;
    Some(Sample { name, labels, value })
}

/// Where the labels end: a brace outside of quotes.
fn labels_end(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    text.char_indices().find_map(|(at, c)| {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '}' if !quoted => return Some(at),
            _ => (),
        }
        None
    })
}

impl<'a> Sample<'a> {
    /// A label's value as it is written. Those read here have no escapes.
    pub fn label(&self, name: &str) -> Option<&'a str> {
        let mut rest = self.labels;
        loop {
            let (key, after) = rest.split_once("=\"")?;
            let (value, after) = after.split_at_checked(value_end(after)?)?;
            if key.trim_start_matches([',', ' ']) == name {
                return Some(value);
            }
            rest = after.strip_prefix('"')?;
        }
    }

    /// Whether it is of that number by a label, or names none.
    pub fn is_of(&self, label: &str, number: u32) -> bool {
        self.label(label).is_none_or(|of| of.parse() == Ok(number))
    }

    /// A count: whole, not below 0.
    pub fn count(&self) -> Option<u64> {
        self.span().map(|span| span.as_secs())
    }

    /// A moment in seconds, as unix ms; 0 is none.
    pub fn moment_ms(&self) -> Option<u64> {
        u64::try_from(self.span()?.as_millis()).ok().filter(|ms| *ms > 0)
    }

    /// The value as a span of seconds: whole numbers and times without a cast from a float, and
    /// nothing below 0, not a number or beyond all bounds.
    fn span(&self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.value.parse().ok()?).ok()
    }
}

fn value_end(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().find_map(|(at, c)| {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(at),
            _ => (),
        }
        None
    })
}

/// Adds a sample's count to a sum that is absent until one came.
pub fn add(sum: &mut Option<u64>, sample: &Sample<'_>) {
    if let Some(count) = sample.count() {
        *sum = Some(sum.unwrap_or(0).saturating_add(count));
    }
}
