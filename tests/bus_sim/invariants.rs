//! What must hold after every turn, and what must become true once faults have stopped.

use std::fmt;

use kvbridge::{
    schemas::{Cursor, Projection, Tier, TierTrust, Trust},
    shared_log::Name,
    view::View,
};

use crate::{
    age::Age,
    bridge::Bridge,
    consumer::Consumer,
    engine::{Engine, Residency},
    events::salt_of,
    setting::{STATUS_TTL_MS, hop_limits},
    world::World,
};

/// One turn and one delivery lie between an expiry and what follows from it.
const SLACK_MS: u64 = 60;

/// Looks of a settled reader in the last second, and what one may read: some batches that it has,
/// a window of disorder before them, and the same again where no place is known.
const CALM_LOOKS: u64 = 9;
const LOOK_COST: u64 = 40;

/// A broken promise.
#[derive(Debug)]
pub(crate) struct Violation {
    what: String,
}

impl Violation {
    pub(crate) fn new(what: impl Into<String>) -> Violation {
        Violation { what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl World {
    /// Whatever is announced is true of one life, which goes on or ended not long ago. What a
    /// reader is told is not much older either: a bridge believes for a lease what it does not see,
    /// and a reader waits as long for what a bridge has.
    pub(crate) fn check_safety(&self) -> Result<(), Violation> {
        let lease_ms = hop_limits().lease_ms;
        for bridge in &self.bridges {
            let told = Told {
                name: bridge.name,
                trust: bridge.trust,
                cursor: bridge.recovery.cursor(),
                view: &bridge.view,
            };
            told.holds(&self.engine, self.now, lease_ms + SLACK_MS, None)?;
        }
        for consumer in &self.consumers {
            let told = Told {
                name: consumer.name,
                trust: consumer.trust,
                cursor: consumer.recovery.cursor(),
                view: &consumer.view,
            };
            // A bridge that is cut off from the engine believes for a lease, and is believed for
            // as long as its last word counts, which may come late.
            let grace_ms = lease_ms + STATUS_TTL_MS + SLACK_MS + self.status_delay_max;
            // The first word after that one names a place beyond, or trust is gone: from then on a
            // reader waits for a lease of its own. It may not begin with that lease: who comes, or
            // was deaf, is at no place which a word names before it is believed.
            let old_ms = grace_ms + lease_ms;
            told.holds(&self.engine, self.now, grace_ms, Some((&self.age, old_ms)))?;
            self.check_vouched(consumer)?;
            if consumer.recovery.cursor().epoch < consumer.epoch {
                let name = consumer.name;
                return Err(Violation::new(format!("{name} went back to a closed life")));
            }
        }
        self.check_names()
    }

    /// Nobody is sent to a worse view than before, nor told that the log has passed what it has.
    pub(crate) fn check_told(&mut self) -> Result<(), Violation> {
        for (before, now, reset) in self.objects.moves.drain(..) {
            if now != before && !now.supersedes(&before, reset) {
                return Err(Violation::new(format!(
                    "readers are sent back from {before} to {now}"
                )));
            }
        }
        let passed = self.truncated.take().filter(|cursor| self.log.covers(*cursor));
        passed.map_or(Ok(()), |cursor| {
            Err(Violation::new(format!("the log is said to have passed {cursor:?}, which it has")))
        })
    }

    /// A reader is exact only in a life in which a bridge is, or was as long ago as its word
    /// counts. It may have come further than that bridge: another one goes on with the log.
    fn check_vouched(&self, consumer: &Consumer) -> Result<(), Violation> {
        if consumer.trust.device != Trust::Exact {
            return Ok(());
        }
        let cursor = consumer.recovery.cursor();
        let word_ms = STATUS_TTL_MS + SLACK_MS + self.status_delay_max;
        let vouches = self.bridges.iter().any(|bridge| {
            let place = bridge.exact_at.get(&cursor.epoch);
            place.is_some_and(|at| self.now - at <= word_ms)
        });
        if vouches {
            return Ok(());
        }
        let name = consumer.name;
        Err(Violation::new(format!("{name} is exact at {cursor:?}, where no bridge was")))
    }

    /// A life has one name, unless the registry lost it or nobody was there to compare it.
    fn check_names(&self) -> Result<(), Violation> {
        let names = self.log.names();
        let most = self.engine.life as u64 + 1 + self.registry.losses + self.unknown;
        let most = most + self.registry.uncompared;
        if names <= most {
            return Ok(());
        }
        Err(Violation::new(format!("{names} names for {} lives", self.engine.life + 1)))
    }

    /// Faults are off and traffic goes on: readers believe as much as the best bridge, and have
    /// caught up.
    pub(crate) fn check_liveness(&self) -> Result<(), Violation> {
        // One that reads otherwise than the one that writes says nothing, whatever it believes.
        let writes = |bridge: &&Bridge| matches!(bridge.naming.name(), Name::Named(_));
        let decoder = self.bridges.iter().find(writes).map(|bridge| bridge.decoder);
        let reads_so = |bridge: &&Bridge| decoder.is_none_or(|it| it == bridge.decoder);
        let best = self.bridges.iter().filter(reads_so).map(|bridge| bridge.least).max();
        let best = best.unwrap_or_default();
        self.log.check_whole()?;
        for consumer in &self.consumers {
            self.check_reader(consumer, best)?;
        }
        Ok(())
    }

    fn check_reader(&self, consumer: &Consumer, best: Trust) -> Result<(), Violation> {
        let (name, phase) = (consumer.name, consumer.recovery.phase());
        if consumer.trust.device < best {
            return Err(Violation::new(format!(
                "{name} is at {:?} ({:?}) in {phase:?}, although a bridge is at {best:?}",
                consumer.trust, consumer.reason
            )));
        }
        // Calm: each of its looks reads a few messages, and what came is read once.
        let (work, news) = (consumer.replay_work - consumer.work_before, self.news());
        let bound = CALM_LOOKS * LOOK_COST + 2 * news;
        if best > Trust::None && work > bound {
            return Err(Violation::new(format!(
                "{name} has read {work} old messages in a calm second with {news} new ones"
            )));
        }
        let behind = self.engine.next_seq.saturating_sub(consumer.recovery.cursor().next_seq.0);
        if best > Trust::None && behind > 40 {
            return Err(Violation::new(format!("{name} is {behind} batches behind, {phase:?}")));
        }
        Ok(())
    }
}

/// What somebody says, and what it says it of.
struct Told<'a> {
    name: &'static str,
    trust: TierTrust,
    cursor: Cursor,
    view: &'a View,
}

impl Told<'_> {
    fn holds(
        &self,
        engine: &Engine,
        now: u64,
        grace_ms: u64,
        young: Option<(&Age, u64)>,
    ) -> Result<(), Violation> {
        if self.trust == TierTrust::default() {
            return Ok(());
        }
        self.has_salts()?;
        let seen = residency(self.view);
        let recent =
            |life: &usize| engine.ended_at[*life].is_none_or(|ended| now - ended <= grace_ms);
        let lives = (0..=engine.life).rev().filter(recent);
        let mut lives = lives.filter(|life| self.is_true_of(engine, *life, &seen)).peekable();
        if lives.peek().is_some() {
            // A lower bound that holds nothing is true of every moment: a bridge that cannot ask
            // its engine says that of a place where the engine never was.
            let young = young.filter(|_| !(seen.is_empty() && self.is_nowhere_exact()));
            let Some((age, most_ms)) = young else { return Ok(()) };
            let next_seq = self.cursor.next_seq.0;
            if lives.any(|life| age.is_young((life, next_seq), now, most_ms)) {
                return Ok(());
            }
            return Err(Violation::new(format!(
                "{} says {:?} of {:?}, which the engine left more than {most_ms} ms ago",
                self.name, self.trust, self.cursor
            )));
        }
        let truth = engine.truth(engine.life, self.cursor.next_seq.0);
        Err(Violation::new(format!(
            "{}: {:?} at {:?} is not true of any recent life (now {} of {:?}); view {seen:?}; engine {truth:?}",
            self.name, self.trust, self.cursor, engine.life, engine.ended_at
        )))
    }

    fn is_nowhere_exact(&self) -> bool {
        self.trust.device != Trust::Exact && self.trust.host != Trust::Exact
    }

    /// A block of which the content is known is known with what keeps it apart from equal tokens.
    fn has_salts(&self) -> Result<(), Violation> {
        let told = self.view.records().filter(|record| record.content.is_some());
        for record in told {
            let hash = Projection::Last8.apply(&record.hash);
            if record.salt.as_deref() != salt_of(hash) {
                return Err(Violation::new(format!("{}: block {hash} lost its salt", self.name)));
            }
        }
        Ok(())
    }

    fn is_true_of(&self, engine: &Engine, life: usize, seen: &Residency) -> bool {
        let Some(truth) = engine.truth(life, self.cursor.next_seq.0) else {
            // A bridge that lost its way covers seqs that were never there: behind them nothing is
            // held, and that is always true.
            return seen.is_empty() && self.trust.device != Trust::Exact;
        };
        [(Tier::Device, self.trust.device), (Tier::Host, self.trust.host)].iter().all(
            |(tier, trust)| match trust {
                Trust::None => true,
                Trust::LowerBound => of(seen, tier)
                    .all(|(key, count)| truth.get(key).is_some_and(|there| count <= there)),
                Trust::Exact => of(seen, tier).eq(of(&truth, tier)),
            },
        )
    }
}

fn of<'a>(
    residency: &'a Residency,
    tier: &'a Tier,
) -> impl Iterator<Item = (&'a (u64, Tier, u32), &'a u32)> {
    residency.iter().filter(move |((_, at, _), _)| at == tier)
}

/// What a view holds, in the engine's terms.
fn residency(view: &View) -> Residency {
    let mut residency = Residency::new();
    for record in view.records() {
        let hash = Projection::Last8.apply(&record.hash);
        let group = record.group.map_or(0, |group| group.index);
        *residency.entry((hash, record.tier, group)).or_default() += record.count;
    }
    residency
}
