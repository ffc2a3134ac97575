//! Figures by row and peer, and how they are shown.

use std::{collections::BTreeMap, fmt};

/// A row's name; its unit; whether more is better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    pub name: &'static str,
    pub unit: &'static str,
    pub more_is_better: bool,
}

/// Stands among the peers: what the machine allows.
pub const LIMIT: &str = "limit of memory";

/// In the order of their first figures.
#[derive(Default)]
pub struct Rows {
    order: Vec<Row>,
    figures: BTreeMap<(Row, &'static str), Vec<f64>>,
    peers: Vec<&'static str>,
    notes: Vec<String>,
}

impl Rows {
    pub fn add(&mut self, row: Row, peer: &'static str, figure: f64) {
        if !self.order.contains(&row) {
            self.order.push(row);
        }
        if !self.peers.contains(&peer) {
            self.peers.push(peer);
        }
        self.figures.entry((row, peer)).or_default().push(figure);
    }

    /// What the machine allows for a row, if that was measured.
    pub fn limit(&mut self, row: Row, figure: f64) {
        if self.order.contains(&row) {
            self.add(row, LIMIT, figure);
        }
    }

    pub fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// One object for each row and peer, a line each.
    pub fn json_lines(&self, trace: &str) -> String {
        let line = |((row, peer), figures): (&(Row, &str), &Vec<f64>)| {
            let [median, low, high] = spread(figures);
            serde_json::json!({
                "trace": trace, "row": row.name, "unit": row.unit, "peer": peer,
                "median": median, "low": low, "high": high, "rounds": figures.len(),
            })
            .to_string()
        };
        self.figures.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// How much of what the machine allows is reached.
    fn of_limit(&self, row: Row, own: &str) -> Option<f64> {
        let own = self.peers.iter().find(|peer| **peer == own)?;
        let [ours, limit] =
            [own, LIMIT].map(|peer| self.figures.get(&(row, peer)).map(|f| spread(f)[0]));
        Some(if row.more_is_better { ours? / limit? } else { limit? / ours? })
    }

    /// The best of the others, as a multiple of which ours is good: above 1 we are ahead.
    fn ratio(&self, row: Row, own: &str) -> Option<f64> {
        let ours = spread(self.figures.get(&(row, self.peers.iter().find(|p| **p == own)?))?)[0];
        let is_other = |peer: &&&str| !peer.starts_with("ours") && **peer != LIMIT;
        let others = self.peers.iter().filter(is_other);
        let of = others.filter_map(|peer| self.figures.get(&(row, peer)).map(|f| spread(f)[0]));
        if row.more_is_better {
            of.reduce(f64::max).map(|best| ours / best)
        } else {
            of.reduce(f64::min).map(|best| best / ours)
        }
    }
}

/// Median, lowest, highest.
pub fn spread(figures: &[f64]) -> [f64; 3] {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    [sorted[sorted.len() / 2], sorted[0], sorted[sorted.len() - 1]]
}

/// A markdown table: medians with the lowest and highest round; last how far ahead the first is,
/// and how much of the limit it reaches.
impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(own) = self.peers.first() else { return Ok(()) };
        writeln!(f, "| | {} | ratio to the best other | of the limit |", self.peers.join(" | "))?;
        writeln!(f, "|{}", "---|".repeat(self.peers.len() + 3))?;
        for row in &self.order {
            write!(f, "| {}, {} |", row.name, row.unit)?;
            for peer in &self.peers {
                match self.figures.get(&(*row, *peer)) {
                    Some(figures) => {
                        let [median, low, high] = spread(figures);
                        write!(f, " {median:.2} ({low:.2} .. {high:.2}) |")?;
                    }
                    None => write!(f, " – |")?,
                }
            }
            for ratio in [self.ratio(*row, own), self.of_limit(*row, own)] {
                match ratio {
                    Some(ratio) => write!(f, " {ratio:.2} |")?,
                    None => write!(f, " – |")?,
                }
            }
            writeln!(f)?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "\n{note}"))
    }
}
