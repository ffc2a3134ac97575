//! How old a view is: since when the engine has been past it.

use crate::engine::Engine;

/// When the batches of each life were made.
#[derive(Default)]
pub(crate) struct Age {
    made_at: Vec<Vec<u64>>,
}

impl Age {
    /// What the engine made since this was last called was made now.
    pub(crate) fn note(&mut self, now: u64, engine: &Engine) {
        self.made_at.resize_with(engine.life + 1, Vec::new);
        let made = usize::try_from(engine.next_seq).unwrap();
        if let Some(life) = self.made_at.last_mut() {
            life.resize(life.len().max(made), now);
        }
    }

    /// Whether a view of that life that ends there was the newest not longer ago than that.
    pub(crate) fn is_young(&self, (life, next_seq): (usize, u64), now: u64, most_ms: u64) -> bool {
        let next = usize::try_from(next_seq).unwrap();
        let left_at = self.made_at.get(life).and_then(|made| made.get(next));
        left_at.is_none_or(|left_at| now - left_at <= most_ms)
    }
}
