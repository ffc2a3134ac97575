//! An engine's own block hashes, computed again from what its stores tell: to find out whether the
//! announced tokens are those that the engine hashed. A sample, bounded in work and memory.

use std::collections::{BTreeMap, VecDeque};

use kvbridge_schemas::{BlockHash, Parent, Projection, Stored, Tier};

/// A whole hash. One of 64 bits stands where its projection looks.
pub type Link = [u8; 32];

/// Blocks of every life that are compared before sampling begins.
pub const COMPARED_FIRST: u64 = 32;

/// Of the stores after those, one of so many is compared. Smaller: hashing costs more than
/// decoding. Larger: a model that is loaded under a running engine is noticed late.
pub const SAMPLE_ONE_OF: u64 = 256;

/// Blocks of one store that are computed. Smaller: chains break early. Larger: one long prompt
/// costs as much as a batch.
const BLOCKS_PER_STORE_MAX: usize = 16;

/// Whole hashes kept, of the blocks computed last. A chain goes on below a block whose whole hash
/// is known, and most engines send a part of it.
const LINKS_KEPT_MAX: usize = 1024;

/// The hash of a block below that parent.
pub type HashBlock = fn(Option<&Link>, &[u32]) -> Link;

/// How one engine hashes.
#[derive(Clone, Copy, Debug)]
pub struct HashFunction {
    /// Its name, as envelopes have it.
    pub scheme: &'static str,
    /// Which bits are shown of a whole hash.
    pub projection: Projection,
    /// What stands for the parent of a first block; absent = nothing is hashed for it.
    pub root: Option<Link>,
    /// The hash of a block below that parent.
    pub block: HashBlock,
    /// Bytes of a hash on the wire that is whole. Shorter ones are continued only from memory.
    pub whole_bytes: usize,
    /// Events tell everything that is hashed. Where they do not, a block that differs shows nothing
    /// beside others that are equal.
    pub tells_all: bool,
}

/// What became of one store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Blocks with the hash that was announced.
    pub equal: u64,
    /// Blocks with another one.
    pub different: u64,
}

/// Follows one replica's chains. Of one life: another one begins with a new chain.
#[derive(Debug)]
pub struct HashChain {
    function: HashFunction,
    links: BTreeMap<u64, Link>,
    order: VecDeque<u64>,
    stores: u64,
    compared: u64,
}

impl HashChain {
    /// One that has seen nothing.
    pub fn new(function: HashFunction) -> HashChain {
        let (links, order) = (BTreeMap::new(), VecDeque::new());
        HashChain { function, links, order, stores: 0, compared: 0 }
    }

    /// What is computed.
    pub fn function(&self) -> &HashFunction {
        &self.function
    }

    /// Compares the blocks of a store, if it is one of the sample and its hashes follow from what
    /// it tells.
    pub fn look(&mut self, stored: &Stored) -> Compared {
        let mut found = Compared::default();
        let Some(step) = plain_step(stored) else { return found };
        self.stores += 1;
        let sampled = self.compared < COMPARED_FIRST || self.stores.is_multiple_of(SAMPLE_ONE_OF);
        if !sampled {
            return found;
        }
        let Some(mut parent) = self.parent(&stored.parent) else { return found };
        let pages = stored.tokens.0.chunks_exact(step);
        for (page, block) in pages.zip(&stored.blocks).take(BLOCKS_PER_STORE_MAX) {
            let link = (self.function.block)(parent.as_ref(), page);
            if !self.is_shown_as(&link, &block.hash) {
                // What lies below would differ for the same reason.
                found.different += 1;
                break;
            }
            found.equal += 1;
            self.keep(&block.hash, link);
            parent = Some(link);
        }
        self.compared += found.equal + found.different;
        found
    }

    /// What the first block is hashed below; the outer `None` = not known here.
    fn parent(&self, parent: &Parent) -> Option<Option<Link>> {
        match parent {
            Parent::Root => Some(self.function.root),
            Parent::Unknown => None,
            Parent::Block(hash) if hash.as_bytes().len() == self.function.whole_bytes => {
                Some(Some(self.widen(hash)))
            }
            Parent::Block(hash) => {
                self.links.get(&self.function.projection.apply(hash)).map(|link| Some(*link))
            }
        }
    }

    fn widen(&self, hash: &BlockHash) -> Link {
        let (mut link, bytes) = ([0; 32], hash.as_bytes());
        let count = bytes.len().min(link.len());
        let at = match self.function.projection {
            Projection::First8 => 0,
            Projection::Last8 => link.len() - count,
        };
        for (to, from) in link.iter_mut().skip(at).zip(bytes) {
            *to = *from;
        }
        link
    }

    fn is_shown_as(&self, link: &Link, hash: &BlockHash) -> bool {
        let whole = hash.as_bytes().len() == self.function.whole_bytes;
        if whole {
            return self.widen(hash) == *link;
        }
        let shown = match self.function.projection {
            Projection::First8 => link.first_chunk::<8>(),
            Projection::Last8 => link.last_chunk::<8>(),
        };
        shown
            .is_some_and(|shown| u64::from_be_bytes(*shown) == self.function.projection.apply(hash))
    }

    fn keep(&mut self, hash: &BlockHash, link: Link) {
        let shown = self.function.projection.apply(hash);
        if self.links.insert(shown, link).is_none() {
            self.order.push_back(shown);
        }
        if self.order.len() > LINKS_KEPT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.links.remove(&oldest);
        }
    }
}

/// Tokens per block of a store whose hashes follow from its tokens alone. What an adapter, a salt
/// or a media item adds to a hash differs from release to release, and stores of other tiers leave
/// out that there was one.
fn plain_step(stored: &Stored) -> Option<usize> {
    let step = usize::try_from(stored.block_size).ok().filter(|step| *step > 0)?;
    let plain = stored.place.tier == Tier::Device
        && !stored.partial
        && !stored.bigram
        && stored.lora.is_none()
        && stored.lora_id.is_none()
        && stored.salt.is_none()
        && stored.extra.iter().all(Vec::is_empty)
        && step.checked_mul(stored.blocks.len()) == Some(stored.tokens.0.len());
    plain.then_some(step)
}

#[cfg(test)]
mod tests {
    use kvbridge_schemas::{ExtraKey, Place, StoredBlock, Tokens};

    use super::*;

    /// Any function of parent and tokens will do here.
    fn sum(parent: Option<&Link>, tokens: &[u32]) -> Link {
        let mut link = parent.copied().unwrap_or([7; 32]);
        for (byte, token) in link.iter_mut().zip(tokens.iter().cycle()) {
            let [low, ..] = token.to_le_bytes();
            *byte = byte.wrapping_mul(31).wrapping_add(low).rotate_left(3);
        }
        link
    }

    fn function(whole_bytes: usize) -> HashFunction {
        let projection = Projection::First8;
        HashFunction {
            scheme: "sum",
            projection,
            root: None,
            block: sum,
            whole_bytes,
            tells_all: true,
        }
    }

    fn shown(link: &Link, whole: bool) -> BlockHash {
        let (head, _) = link.split_first_chunk::<8>().unwrap();
        if whole {
            BlockHash::from_bytes(link).unwrap()
        } else {
            BlockHash::from_bytes(head).unwrap()
        }
    }

    /// A store of these tokens, two a block, below that block, and the links of its blocks.
    fn store(below: Option<Link>, tokens: &[u32], whole: bool) -> (Stored, Vec<Link>) {
        let (mut links, mut parent) = (Vec::new(), below);
        for page in tokens.chunks(2) {
            let link = sum(parent.as_ref(), page);
            (parent, links) = (Some(link), [links, vec![link]].concat());
        }
        let block = |link: &Link| StoredBlock { hash: shown(link, whole), content: None };
        let stored = Stored {
            parent: below.map_or(Parent::Root, |link| Parent::Block(shown(&link, whole))),
            block_size: 2,
            tokens: Tokens(tokens.to_vec()),
            blocks: links.iter().map(block).collect(),
            partial: false,
            bigram: false,
            place: Place::of(Tier::Device),
            lora: None,
            lora_id: None,
            salt: None,
            extra: Vec::new(),
            session: None,
        };
        (stored, links)
    }

    fn counted(equal: u64, different: u64) -> Compared {
        Compared { equal, different }
    }

    #[test]
    fn a_chain_is_followed_below_blocks_whose_whole_hash_is_known() {
        let mut chain = HashChain::new(function(32));
        let (first, links) = store(None, &[1, 2, 3, 4], false);
        let (second, _) = store(links.last().copied(), &[5, 6], false);
        // The parent's other bytes are not on the wire.
        assert_eq!(chain.look(&second), counted(0, 0));
        assert_eq!(chain.look(&first), counted(2, 0));
        assert_eq!(chain.look(&second), counted(1, 0));
        // Where they are, nothing must be known.
        let (whole, _) = store(Some([9; 32]), &[5, 6, 7, 8], true);
        assert_eq!(HashChain::new(function(32)).look(&whole), counted(2, 0));
    }

    #[test]
    fn another_hash_is_counted_once_for_all_that_lies_below() {
        let (mut stored, _) = store(None, &[1, 2, 3, 4, 5, 6], false);
        stored.tokens.0[2] = 99;
        assert_eq!(HashChain::new(function(32)).look(&stored), counted(1, 1));
    }

    #[test]
    fn what_tokens_alone_do_not_decide_is_left_out() {
        let changes: [fn(&mut Stored); 8] = [
            |it| it.lora = Some("a".to_owned()),
            |it| it.lora_id = Some(1),
            |it| it.salt = Some("s".to_owned()),
            |it| it.extra = vec![vec![ExtraKey::Text("s".to_owned())], Vec::new()],
            |it| it.bigram = true,
            |it| it.partial = true,
            |it| it.place = Place::of(Tier::Host),
            |it| it.tokens.0.push(1),
        ];
        for change in changes {
            let (mut stored, _) = store(None, &[1, 2, 3, 4], false);
            change(&mut stored);
            assert_eq!(HashChain::new(function(32)).look(&stored), counted(0, 0));
        }
    }

    #[test]
    fn after_the_first_ones_a_sample_is_taken_and_memory_is_bounded() {
        let mut chain = HashChain::new(function(32));
        let mut compared = 0;
        for number in 0..4096_u32 {
            let (stored, _) = store(None, &[number, 1], false);
            compared += chain.look(&stored).equal;
        }
        // 32, and one of 256 stores since: 16 of 4096.
        assert_eq!(compared, 32 + 16);
        let long: Vec<u32> = (0..64).collect();
        let (stored, _) = store(None, &long, false);
        let mut other = HashChain::new(function(32));
        assert_eq!(other.look(&stored), counted(16, 0));
        for number in 0..100_000_u32 {
            let (stored, _) = store(None, &[number, number / 256], false);
            other.compared = 0;
            other.look(&stored);
        }
        assert!(other.links.len() <= LINKS_KEPT_MAX && other.order.len() <= LINKS_KEPT_MAX);
    }
}
