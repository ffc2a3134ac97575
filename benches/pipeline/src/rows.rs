//! Figures by row and program, and how they are shown.

use std::{collections::BTreeMap, fmt};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    pub case: &'static str,
    /// With its unit.
    pub name: &'static str,
    pub more_is_better: bool,
}

/// In the order of their first figures.
#[derive(Default)]
pub struct Rows {
    order: Vec<Row>,
    programs: Vec<&'static str>,
    figures: BTreeMap<(Row, &'static str), Vec<f64>>,
}

impl Rows {
    pub fn add(&mut self, row: Row, program: &'static str, figure: f64) {
        if !self.order.contains(&row) {
            self.order.push(row);
        }
        if !self.programs.contains(&program) {
            self.programs.push(program);
        }
        self.figures.entry((row, program)).or_default().push(figure);
    }

    /// One object for each row and program, a line each.
    pub fn json_lines(&self) -> String {
        let line = |((row, program), figures): (&(Row, &str), &Vec<f64>)| {
            let [median, low, high] = spread(figures);
            let line = serde_json::json!({
                "case": row.case, "row": row.name, "program": program,
                "median": median, "low": low, "high": high, "rounds": figures.len(),
            });
            format!("{line}\n")
        };
        self.figures.iter().map(line).collect()
    }

    /// How far the first program is ahead of the second, round by round.
    fn ratio(&self, row: Row) -> Option<[f64; 3]> {
        let [own, other, ..] = self.programs.as_slice() else { return None };
        let pairs = self.figures.get(&(row, own))?.iter().zip(self.figures.get(&(row, other))?);
        let ratio = |(own, other): (&f64, &f64)| {
            if row.more_is_better { own / other } else { other / own }
        };
        let ratios: Vec<f64> = pairs.map(ratio).collect();
        ratios.iter().all(|ratio| ratio.is_finite()).then(|| spread(&ratios))
    }
}

/// Median, lowest, highest.
pub fn spread(figures: &[f64]) -> [f64; 3] {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |place: usize| sorted.get(place).copied().unwrap_or(f64::NAN);
    [at(sorted.len() / 2), at(0), at(sorted.len().saturating_sub(1))]
}

/// The value below which that part of all is.
pub fn percentile(figures: &mut [f64], part: f64) -> f64 {
    figures.sort_by(f64::total_cmp);
    let last = figures.len().saturating_sub(1) as f64;
    figures.get((last * part) as usize).copied().unwrap_or(f64::NAN)
}

impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| | {} | ratio |", self.programs.join(" | "))?;
        writeln!(f, "|{}", "---|".repeat(self.programs.len() + 2))?;
        for row in &self.order {
            write!(f, "| {}: {} |", row.case, row.name)?;
            for program in &self.programs {
                match self.figures.get(&(*row, *program)) {
                    Some(figures) => {
                        let [median, low, high] = spread(figures);
                        write!(f, " {median:.2} ({low:.2} .. {high:.2}) |")?;
                    }
                    None => write!(f, " – |")?,
                }
            }
            match self.ratio(*row) {
                Some([ratio, low, high]) => writeln!(f, " {ratio:.2} ({low:.2} .. {high:.2}) |")?,
                None => writeln!(f, " – |")?,
            }
        }
        Ok(())
    }
}
