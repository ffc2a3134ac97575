//! What memory allows on this machine: what a row needs at the least, done bare and nothing else,
//! in a table as large as the smallest index of so many blocks (16 bytes a block, half full).

use std::{hint::black_box, time::Duration};

use crate::{peer::timed, workload::Random};

/// Slots of a key and what is said of it.
type Slot = [u64; 2];

/// Accesses per figure: some milliseconds.
const ACCESSES: usize = 1 << 18;

pub struct Limits {
    /// To change the slot of each block: places are known beforehand, so that misses overlap.
    pub writes_per_us: f64,
    /// To find the first block of a prompt: one access that waits for the one before.
    pub find_us: f64,
    /// To find it and then compare the prompt with contents that lie in a row.
    pub compare_us: f64,
}

/// For so many held blocks, and prompts of so many.
pub fn measure(held: usize, prompt: usize) -> Limits {
    let mut random = Random(11);
    let slots = (held * 2).next_power_of_two();
    let mut table: Vec<Slot> = (0..slots).map(|_| [random.next(), 0]).collect();
    let places: Vec<usize> = (0..ACCESSES).map(|_| random.below(slots)).collect();
    let (wrote, ()) = timed(|| {
        for place in &places {
            table[*place][1] |= 1;
        }
    });
    let (found, last) =
        timed(|| places.iter().fold(0, |before, place| table[place ^ (before & 1) as usize][0]));
    black_box((last, &table));
    let compare_us = compare(held, prompt.max(1), &mut random);
    Limits {
        writes_per_us: ACCESSES as f64 / micros(wrote),
        find_us: micros(found) / ACCESSES as f64,
        compare_us,
    }
}

fn compare(held: usize, prompt: usize, random: &mut Random) -> f64 {
    let rows: Vec<u64> = (0..held.max(prompt + 1)).map(|_| random.next()).collect();
    let starts: Vec<usize> = (0..4_096).map(|_| random.below(rows.len() - prompt)).collect();
    let asked: Vec<&[u64]> = starts.iter().map(|start| &rows[*start..][..prompt]).collect();
    // The caller has its prompt at hand; only the row is somewhere in memory.
    let own: Vec<u64> = vec![0; prompt];
    let (took, sum) = timed(|| {
        let differ = |row: &&[u64]| row.iter().zip(&own).filter(|(a, b)| a != b).count();
        asked.iter().fold(0, |sum, row| sum + differ(row))
    });
    assert_eq!(black_box(sum), asked.len() * prompt, "nobody asks for content 0");
    micros(took) / asked.len() as f64
}

fn micros(took: Duration) -> f64 {
    took.as_secs_f64() * 1e6
}
