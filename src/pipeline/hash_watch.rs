//! Whether the tokens that one replica's engine announces are those it hashed: a sample of its
//! blocks, computed again. What comes of it is shown and rings; it never changes an envelope, which
//! is a function of the engine's bytes alone.

use kvbridge_adapters_api::{Batch, COMPARED_FIRST, Compared, HashChain, HashFunction};
use kvbridge_schemas::{Epoch, Event, HashScheme};

/// What was found of one life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashStanding {
    /// How its hashes are computed.
    pub scheme: &'static str,
    /// Blocks whose announced hash was computed.
    pub equal: u64,
    /// Blocks that gave another hash.
    pub different: u64,
    /// Those of them that show another function or other tokens: all, or none where blocks are
    /// equal beside them and events do not tell everything that is hashed.
    pub wrong: u64,
}

/// The functions of an engine, by the scheme that its batches name.
type Functions = Box<dyn Fn(&HashScheme) -> Vec<HashFunction> + Send>;

/// Compares one replica's blocks.
pub struct HashWatch {
    functions: Functions,
    /// The engine uses the one function there is; else it may use another, which is no fault.
    is_known: bool,
    epoch: Epoch,
    chains: Vec<(HashChain, Compared)>,
}

impl HashWatch {
    /// One that computes these functions. `is_known`: the engine has no others.
    pub fn new(
        functions: impl Fn(&HashScheme) -> Vec<HashFunction> + Send + 'static,
        is_known: bool,
    ) -> HashWatch {
        let (functions, chains) = (Box::new(functions), Vec::new());
        HashWatch { functions, is_known, epoch: Epoch(0), chains }
    }

    /// Looks at a batch that was applied to the view of that life.
    pub(crate) fn look(&mut self, epoch: Epoch, batch: &Batch) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.chains.clear();
        }
        if self.chains.is_empty() {
            let functions = (self.functions)(&batch.hash.scheme).into_iter();
            self.chains.extend(functions.map(|it| (HashChain::new(it), Compared::default())));
        }
        for event in &batch.events {
            let Event::Stored(stored) = event else { continue };
            for (chain, sum) in &mut self.chains {
                let Compared { equal, different } = chain.look(stored);
                sum.equal += equal;
                sum.different += different;
            }
        }
        // The one that fits is the one; of several that do not, none has to.
        if self.chains.len() > 1
            && let Some(fits) = self.chains.iter().position(|(_, sum)| sum.equal > 0)
        {
            let fits = self.chains.swap_remove(fits);
            self.chains = vec![fits];
        }
        let fits_not =
            |(_, sum): &(HashChain, Compared)| sum.equal == 0 && sum.different >= COMPARED_FIRST;
        if !self.is_known && self.chains.iter().all(fits_not) {
            self.functions = Box::new(|_| Vec::new());
            self.chains.clear();
        }
    }

    /// What was found of this life; nothing while no function is known to be the engine's.
    pub(crate) fn standing(&self) -> Option<HashStanding> {
        let [(chain, Compared { equal, different })] = self.chains.as_slice() else { return None };
        let (equal, different) = (*equal, *different);
        let known = equal > 0 || (self.is_known && different > 0);
        let HashFunction { scheme, tells_all, .. } = *chain.function();
        let wrong = if tells_all || equal == 0 { different } else { 0 };
        known.then_some(HashStanding { scheme, equal, different, wrong })
    }
}

#[cfg(test)]
mod tests {
    use kvbridge_adapters_api::{Link, Loss};
    use kvbridge_schemas::{
        BlockHash, Digest, HashInfo, Parent, Place, Projection, Seq, Stored, StoredBlock, Tier,
        Tokens,
    };

    use super::*;

    fn link(first: u32) -> Link {
        let mut link = [0; 32];
        link[..4].copy_from_slice(&first.to_be_bytes());
        link
    }

    fn function(scheme: &'static str, add: u32, tells_all: bool) -> HashFunction {
        let block = if add == 0 {
            |_: Option<&Link>, tokens: &[u32]| link(tokens[0])
        } else {
            |_: Option<&Link>, tokens: &[u32]| link(tokens[0] + 1)
        };
        let projection = Projection::First8;
        HashFunction { scheme, projection, root: None, block, whole_bytes: 32, tells_all }
    }

    /// A store of one block, hashed by the first function.
    fn batch(token: u32) -> Batch {
        let hash = BlockHash::from_bytes(&link(token)).unwrap();
        let stored = Stored {
            parent: Parent::Root,
            block_size: 1,
            tokens: Tokens(vec![token]),
            blocks: vec![StoredBlock { hash, content: None }],
            partial: false,
            bigram: false,
            place: Place::of(Tier::Device),
            lora: None,
            lora_id: None,
            salt: None,
            extra: Vec::new(),
            session: None,
        };
        Batch {
            epoch: None,
            incarnation: None,
            seq: Seq(u64::from(token)),
            span: 1,
            digest: Digest::default(),
            ts: 0,
            format: "test",
            hash: HashInfo { scheme: HashScheme::Unknown, block_size: 1 },
            rank: None,
            events: vec![Event::Stored(stored)],
            loss: Loss::Nothing,
            bytes: 0,
        }
    }

    fn after(functions: &[HashFunction], is_known: bool, batches: u32) -> Option<HashStanding> {
        let functions = functions.to_vec();
        let mut watch = HashWatch::new(move |_| functions.clone(), is_known);
        (0..batches).for_each(|token| watch.look(Epoch(1), &batch(token)));
        let found = watch.standing();
        // A new life is new in this too.
        watch.look(Epoch(2), &Batch { events: Vec::new(), ..batch(0) });
        assert_eq!(watch.standing(), None);
        found
    }

    #[test]
    fn the_function_that_fits_is_the_engines() {
        let (fits, other) = (function("fits", 0, true), function("other", 1, true));
        let found = Some(HashStanding { scheme: "fits", equal: 9, different: 0, wrong: 0 });
        assert_eq!(after(&[other, fits], false, 9), found);
        assert_eq!(after(&[fits], true, 9), found);
    }

    #[test]
    fn beside_equal_ones_another_hash_is_a_finding_where_everything_is_told() {
        for (tells_all, wrong) in [(true, 1), (false, 0)] {
            let functions = vec![function("fits", 0, tells_all)];
            let mut watch = HashWatch::new(move |_| functions.clone(), true);
            let mut strange = batch(7);
            if let Event::Stored(stored) = &mut strange.events[0] {
                stored.tokens.0[0] = 8;
            }
            watch.look(Epoch(1), &batch(1));
            watch.look(Epoch(1), &strange);
            let found = HashStanding { scheme: "fits", equal: 1, different: 1, wrong };
            assert_eq!(watch.standing(), Some(found));
        }
    }

    #[test]
    fn one_that_does_not_fit_is_a_finding_only_where_it_must() {
        let other = function("other", 1, true);
        let found = Some(HashStanding { scheme: "other", equal: 0, different: 3, wrong: 3 });
        assert_eq!(after(&[other], true, 3), found);
        assert_eq!(after(&[other, other], false, 3), None);
        assert_eq!(after(&[other], false, 100), None);
    }
}
