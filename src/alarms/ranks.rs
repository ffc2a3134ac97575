//! PURE. Ranks that never delivered anything while others of their instance do.

use std::collections::{BTreeMap, BTreeSet};

use kvbridge_schemas::{Replica, ReplicaKey};

use crate::recovery::Tick;

/// What was seen of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankSight<'a> {
    /// Which.
    pub replica: &'a Replica,
    /// A batch of it was seen, live or replayed.
    pub has_delivered: bool,
}

/// The ranks of all instances, over time.
#[derive(Clone, Debug, Default)]
pub struct Ranks {
    /// Ranks that delivered once. A new life that begins empty is not one that never spoke.
    delivered: BTreeSet<ReplicaKey>,
    /// Since when a rank is the silent one among others.
    silent_since: BTreeMap<ReplicaKey, Tick>,
}

impl Ranks {
    /// Takes one look at all ranks, and says which are missing.
    pub fn look(
        &mut self,
        now: Tick,
        missing_ms: u64,
        ranks: &[RankSight<'_>],
    ) -> BTreeMap<ReplicaKey, bool> {
        let mut speaks: BTreeMap<(&str, &str), bool> = BTreeMap::new();
        let mut before = std::mem::take(&mut self.delivered);
        for rank in ranks {
            let key = rank.replica.key();
            let delivered = rank.has_delivered || before.remove(&key);
            *speaks.entry(instance(rank.replica)).or_default() |= delivered;
            if delivered {
                self.delivered.insert(key);
            }
        }
        let mut before = std::mem::take(&mut self.silent_since);
        let mut missing = BTreeMap::new();
        for rank in ranks {
            let key = rank.replica.key();
            let others_speak = speaks.get(&instance(rank.replica)).copied().unwrap_or(false);
            if self.delivered.contains(&key) || !others_speak {
                missing.insert(key, false);
                continue;
            }
            let since = before.remove(&key).unwrap_or(now);
            missing.insert(key.clone(), now >= since.plus(missing_ms));
            self.silent_since.insert(key, since);
        }
        missing
    }
}

fn instance(replica: &Replica) -> (&str, &str) {
    (&replica.model, &replica.instance)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(instance: &str, rank: u32) -> Replica {
        Replica { model: "m".to_owned(), instance: instance.to_owned(), rank }
    }

    /// Ranks that are missing, of those that speak or not at that second.
    fn missing(ranks: &mut Ranks, second: u64, seen: &[(&str, u32, bool)]) -> Vec<String> {
        let replicas: Vec<_> =
            seen.iter().map(|(instance, rank, it)| (replica(instance, *rank), *it)).collect();
        let sights: Vec<_> = replicas
            .iter()
            .map(|(replica, has_delivered)| RankSight { replica, has_delivered: *has_delivered })
            .collect();
        let found = ranks.look(Tick(second * 1_000), 30_000, &sights);
        found.into_iter().filter(|(_, it)| *it).map(|(key, _)| key.to_string()).collect()
    }

    #[test]
    fn a_rank_that_never_spoke_is_missing_once_others_spoke_for_long() {
        let mut ranks = Ranks::default();
        let quiet = [("i", 0, false), ("i", 3, false), ("alone", 0, false)];
        assert!(missing(&mut ranks, 0, &quiet).is_empty());
        assert!(missing(&mut ranks, 90, &quiet).is_empty(), "an idle engine misses nobody");
        let speaks = [("i", 0, true), ("i", 3, false), ("alone", 0, false)];
        assert!(missing(&mut ranks, 100, &speaks).is_empty());
        assert!(missing(&mut ranks, 129, &speaks).is_empty());
        assert_eq!(missing(&mut ranks, 130, &speaks), ["m.i.3"]);
        let back = [("i", 0, true), ("i", 3, true), ("alone", 0, false)];
        assert!(missing(&mut ranks, 131, &back).is_empty());
        // Its next life begins empty, as everybody's does.
        assert!(missing(&mut ranks, 132, &speaks).is_empty());
        assert!(missing(&mut ranks, 232, &speaks).is_empty());
        // It was taken away, and a new one of its name has not spoken.
        assert!(missing(&mut ranks, 300, &[("i", 0, true)]).is_empty());
        assert!(missing(&mut ranks, 301, &speaks).is_empty());
        assert_eq!(missing(&mut ranks, 331, &speaks), ["m.i.3"]);
        // Nobody is left to compare it with.
        assert!(missing(&mut ranks, 332, &[("i", 3, false)]).is_empty());
    }
}
