//! How old a view is: since when the engine has been past it.

use std::collections::BTreeMap;

use kvbridge::schemas::Seq;

use crate::engine::Engine;

/// When the batches of each life were sent. Of a number that the engine took and sent nothing
/// under nobody can know before the next one.
#[derive(Default)]
pub(crate) struct Age {
    sent_at: Vec<BTreeMap<Seq, u64>>,
}

impl Age {
    /// What the engine sent since this was last called was sent now.
    pub(crate) fn note(&mut self, now: u64, engine: &Engine) {
        self.sent_at.resize_with(engine.life + 1, BTreeMap::new);
        if let (Some(noted), Some(made)) = (self.sent_at.last_mut(), engine.made.last()) {
            let from = noted.last_key_value().map_or(Seq(0), |(seq, _)| seq.plus(1));
            noted.extend(made.range(from..).map(|(seq, _)| (*seq, now)));
        }
    }

    /// Whether a view of that life that ends there was the newest not longer ago than that.
    pub(crate) fn is_young(&self, (life, next_seq): (usize, u64), now: u64, most_ms: u64) -> bool {
        let beyond = self.sent_at.get(life).and_then(|sent| sent.range(Seq(next_seq)..).next());
        beyond.is_none_or(|(_, left_at)| now - left_at <= most_ms)
    }
}
