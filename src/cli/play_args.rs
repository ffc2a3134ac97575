//! How to play a recording: shared by `play` and `run --play`.

use std::{collections::BTreeSet, str::FromStr};

use kvbridge_adapters_zmq::serve::JOURNAL_COUNT_MAX;

/// Seqs that `--drop` may name; more is a typo.
const DROP_COUNT_MAX: u64 = 1_000_000;

/// Faults and speed of a played recording.
#[derive(Clone, Debug, clap::Args)]
pub struct PlaybackArgs {
    /// Seqs kept out of the live stream; the journal has them, e.g. `5-9,20`
    #[arg(long, value_name = "SEQS")]
    pub drop: Option<Seqs>,
    /// Batches that the journal keeps
    #[arg(long, value_name = "N", default_value_t = JOURNAL_COUNT_MAX)]
    pub journal: usize,
    /// Batches a second
    #[arg(long, value_name = "HZ", default_value = "50", value_parser = rate)]
    pub rate: f64,
    /// Stop when everything was played
    #[arg(long)]
    pub once: bool,
}

/// A set of seqs, written as numbers and ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seqs(pub BTreeSet<u64>);

impl FromStr for Seqs {
    type Err = String;

    fn from_str(text: &str) -> Result<Seqs, String> {
        let number = |text: &str| {
            text.trim().parse::<u64>().map_err(|_| format!("expected a seq, got {text:?}"))
        };
        let mut seqs = BTreeSet::new();
        for part in text.split(',') {
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(part)?, number(part)?),
            };
            if last < first || last - first >= DROP_COUNT_MAX {
                return Err(format!("expected a range of at most {DROP_COUNT_MAX}, got {part:?}"));
            }
            seqs.extend(first..=last);
        }
        Ok(Seqs(seqs))
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (0.001..=1_000_000.0).contains(&rate) => Ok(rate),
        _ => Err("expected a number between 0.001 and 1000000".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seqs_are_numbers_and_ranges() {
        assert_eq!("5-7,20".parse(), Ok(Seqs(BTreeSet::from([5, 6, 7, 20]))));
        assert!("7-5".parse::<Seqs>().is_err());
        assert!("0-99999999999".parse::<Seqs>().is_err());
        assert!("x".parse::<Seqs>().is_err());
    }
}
