//! The figures of each case, and how they are shown.

use std::{collections::BTreeMap, fmt, time::Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::messages::BLOCKS;

/// One stretch that is measured.
pub struct Watch {
    wall: Instant,
    cpu: f64,
}

impl Watch {
    pub fn start() -> Watch {
        Watch { wall: Instant::now(), cpu: cpu_seconds() }
    }
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[derive(Default)]
struct Row {
    envelopes: u64,
    bytes: u64,
    wall: Vec<f64>,
    cpu: Vec<f64>,
}

#[derive(Default)]
pub struct Rows(BTreeMap<&'static str, Row>);

impl Rows {
    pub fn new() -> Rows {
        Rows::default()
    }

    /// The first round warms up and does not count.
    pub fn add(
        &mut self,
        round: usize,
        name: &'static str,
        watch: Watch,
        envelopes: u64,
        bytes: u64,
    ) {
        let (wall, cpu) = (watch.wall.elapsed().as_secs_f64(), cpu_seconds() - watch.cpu);
        if round > 0 {
            let row = self.0.entry(name).or_default();
            (row.envelopes, row.bytes) = (envelopes, bytes);
            row.wall.push(wall);
            row.cpu.push(cpu);
        }
    }
}

/// Median, lowest, highest.
fn spread(rounds: &[f64]) -> [f64; 3] {
    let mut rounds = rounds.to_vec();
    rounds.sort_by(f64::total_cmp);
    [rounds[rounds.len() / 2], rounds[0], rounds[rounds.len() - 1]]
}

impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, row) in &self.0 {
            let [wall, low, high] = spread(&row.wall);
            let [cpu, ..] = spread(&row.cpu);
            let envelopes = row.envelopes as f64;
            writeln!(
                f,
                "{name:34} {:7.0} envelopes/s ({:.0} .. {:.0})  {:5.2} M blocks/s  {:5.0} MB/s  \
                 cpu {:5.1} us/envelope",
                envelopes / wall,
                envelopes / high,
                envelopes / low,
                envelopes * BLOCKS as f64 / wall / 1e6,
                row.bytes as f64 / wall / 1e6,
                cpu / envelopes * 1e6,
            )?;
            for (other, base) in &self.0 {
                let same = name.split(',').next() == other.split(',').next();
                if same && name != other && other.contains("bare") {
                    let ratios: Vec<f64> =
                        base.wall.iter().zip(&row.wall).map(|(base, own)| base / own).collect();
                    let [ratio, low, high] = spread(&ratios);
                    writeln!(f, "{:36}{ratio:.2} x {other} ({low:.2} .. {high:.2})", "")?;
                }
            }
        }
        Ok(())
    }
}
