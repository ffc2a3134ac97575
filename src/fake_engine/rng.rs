//! The only randomness of the fake engine: one seed, one run.

/// SplitMix64: small, well spread, and the same on every machine.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Numbers of that seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed ^ 0x5851_F42D_4C95_7F2D)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number below `bound`; 0 for 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.draw() % bound }
    }

    /// A number from 0 (included) to 1 (excluded).
    pub fn unit(&mut self) -> f64 {
        let high = u32::try_from(self.draw() >> 32).unwrap_or(u32::MAX);
        f64::from(high) / (f64::from(u32::MAX) + 1.0)
    }

    /// An index below `count`; small ones are likelier, like the popularity of prompts.
    pub fn zipf(&mut self, count: u64) -> u64 {
        // The inverse of the harmonic sum's integral: no table, close enough to Zipf with exponent
        // 1.
        let count_f = f64::from(u32::try_from(count).unwrap_or(u32::MAX)) + 1.0;
        let drawn = count_f.powf(self.unit()) - 1.0;
        (0..count).find(|index| drawn < small(*index) + 1.0).unwrap_or(0)
    }
}

fn small(index: u64) -> f64 {
    f64::from(u32::try_from(index).unwrap_or(u32::MAX))
}

/// A number that depends on all bits of `value`.
pub fn mix(value: u64) -> u64 {
    let mut z = value;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn popular_roots_are_drawn_more_often() {
        let mut rng = Rng::new(1);
        let mut counts = [0_u32; 8];
        for _ in 0..4000 {
            counts[usize::try_from(rng.zipf(8)).unwrap()] += 1;
        }
        assert!(counts[0] > 2 * counts[3], "{counts:?}");
        assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
    }
}
