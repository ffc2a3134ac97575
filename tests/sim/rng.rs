//! One seed, one run: the only randomness of the simulator.

/// SplitMix64. Small, well spread, and the same on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed ^ 0x5851_F42D_4C95_7F2D)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }

    /// True so many times in ten thousand.
    pub(crate) fn hit(&mut self, per_myriad: u64) -> bool {
        self.below(10_000) < per_myriad
    }

    /// An independent stream of numbers.
    pub(crate) fn fork(&mut self) -> Rng {
        Rng(self.next())
    }
}
