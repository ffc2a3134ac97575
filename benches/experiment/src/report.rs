//! Outcomes as tables: medians over seeds, with the lowest and the highest.

use std::fmt::Write as _;

use crate::{policy::Policy, world::Outcome};

/// One policy over all seeds.
pub struct Row {
    pub policy: Policy,
    pub outcomes: Vec<Outcome>,
}

/// Median, lowest, highest.
#[derive(Clone, Copy)]
pub struct Spread {
    pub median: f64,
    pub lowest: f64,
    pub highest: f64,
}

impl Row {
    pub fn spread(&self, of: impl Fn(&Outcome) -> f64) -> Spread {
        let mut values: Vec<f64> = self.outcomes.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        Spread {
            median: values[values.len() / 2],
            lowest: values[0],
            highest: values[values.len() - 1],
        }
    }
}

fn percent(spread: Spread) -> String {
    let [median, lowest, highest] =
        [spread.median, spread.lowest, spread.highest].map(|it| it * 100.0);
    format!("{median:.1} ({lowest:.1} .. {highest:.1})")
}

fn seconds(spread: Spread) -> String {
    format!("{:.2} ({:.2} .. {:.2})", spread.median, spread.lowest, spread.highest)
}

pub fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "| policy | hit rate, % | turn scatter, % | input computed after, s: p50 | p95 | at a replica |\n\
         |---|---|---|---|---|---|\n",
    );
    for row in rows {
        let [hits, scatter] =
            [row.spread(|it| it.hit_rate), row.spread(|it| it.scatter)].map(percent);
        let [p50, p95] =
            [row.spread(|it| it.waited_s.0), row.spread(|it| it.waited_s.1)].map(seconds);
        let (name, active) = (row.policy.name(), row.spread(|it| it.active).median);
        writeln!(text, "| {name} | {hits} | {scatter} | {p50} | {p95} | {active:.0} |")
            .expect("a string takes all");
    }
    let input = rows.first().map_or(0.0, |row| row.spread(|it| it.input_tokens).median);
    writeln!(text, "\nMean input {input:.0} tokens.").expect("a string takes all");
    text
}

/// Hit rates alone, a line for each variation.
pub fn variations(all: &[(&str, Vec<Row>)]) -> String {
    let names: Vec<String> = Policy::ALL.iter().map(|policy| policy.name()).collect();
    let mut text = format!("| | {} |\n|---|{}\n", names.join(" | "), "---|".repeat(names.len()));
    for (name, rows) in all {
        let rates: Vec<String> = rows
            .iter()
            .map(|row| {
                let part = |of: fn(&Outcome) -> f64| row.spread(of).median * 100.0;
                format!("{:.1} / {:.1}", part(|it| it.hit_rate), part(|it| it.scatter))
            })
            .collect();
        writeln!(text, "| {name} | {} |", rates.join(" | ")).expect("a string takes all");
    }
    text
}
