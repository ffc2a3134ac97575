//! How large a part of what happened lately was of one kind.

use crate::recovery::Tick;

/// Length of one bucket. With [`BUCKETS`] of them the window is five minutes: shorter, a quiet
/// model jumps between 0 and 1; longer, a repair does not show.
const BUCKET_MS: u64 = 10_000;
const BUCKETS: u64 = 30;

/// The part within five minutes, to one bucket.
#[derive(Clone, Debug, Default)]
pub struct Share {
    /// Number of the bucket, all that happened in it, those of the kind. Oldest first.
    buckets: Vec<(u64, u64, u64)>,
}

impl Share {
    /// Something happened.
    pub fn add(&mut self, now: Tick, of_the_kind: bool) {
        let number = now.0 / BUCKET_MS;
        self.buckets.retain(|(bucket, ..)| is_in(*bucket, number));
        if self.buckets.last().is_none_or(|(bucket, ..)| *bucket < number) {
            self.buckets.push((number, 0, 0));
        }
        if let Some((_, all, those)) = self.buckets.last_mut() {
            *all += 1;
            *those += u64::from(of_the_kind);
        }
    }

    /// The part, 0 to 1; 0 while nothing happened.
    pub fn ratio(&self, now: Tick) -> f64 {
        let number = now.0 / BUCKET_MS;
        let of_late = self.buckets.iter().filter(|(bucket, ..)| is_in(*bucket, number));
        let (all, those) =
            of_late.fold((0, 0), |sum, (_, all, those)| (sum.0 + all, sum.1 + those));
        part(those, all)
    }
}

fn is_in(bucket: u64, number: u64) -> bool {
    bucket + BUCKETS > number
}

#[expect(clippy::cast_precision_loss, reason = "counts of five minutes are far below 2^53")]
fn part(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
