//! What a question may use of each replica: found out when a version is published, because that
//! changes less often than questions come.

use kvbridge_schemas::{Tier, TierTrust, Trust};

use super::{
    Published, Query,
    column::Column,
    page::Window,
    tree::{DEVICE, Tree},
};

/// The engine sends hashes without tokens.
const REASON_NO_CONTENT: &str = "no_content";

/// What questions may ask for, each with a number.
pub(super) const CLAIMS: [Claim; 4] = [
    Claim { accept: Trust::LowerBound, hints: false },
    Claim { accept: Trust::LowerBound, hints: true },
    Claim { accept: Trust::Exact, hints: false },
    Claim { accept: Trust::Exact, hints: true },
];

/// The trust that a match must have, and whether hints count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    accept: Trust,
    hints: bool,
}

impl Claim {
    /// The number of a query's claim.
    pub(super) fn of(query: &Query<'_>) -> usize {
        usize::from(query.accept == Trust::Exact) * 2 + usize::from(query.hints)
    }
}

/// What counts for one claim.
#[derive(Clone, Debug, Default)]
pub(super) struct Weight {
    /// Nearest first.
    pub(super) tiers: Vec<Tier>,
    /// Why it cannot be compared, if so.
    pub(super) refused: Option<&'static str>,
}

/// What counts of one replica, and what that was found out from; nothing, by default.
#[derive(Debug, Default)]
pub(super) struct Weights {
    by_claim: [Weight; CLAIMS.len()],
    /// Of its blocks, smallest block size first.
    pub(super) windows: Vec<Window>,
    grounds: Option<Grounds>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Grounds {
    trust: TierTrust,
    reason: &'static str,
    no_content: bool,
    host_is_hint: bool,
    shape: u64,
}

impl Grounds {
    fn of(published: &Published, column: &Column) -> Grounds {
        let Published { trust, reason, no_content, host_is_hint, .. } = *published;
        Grounds { trust, reason, no_content, host_is_hint, shape: column.shape() }
    }
}

impl Weights {
    /// Whether they are still right.
    pub(super) fn stand(&self, published: &Published, column: &Column) -> bool {
        self.grounds == Some(Grounds::of(published, column))
    }

    pub(super) fn new(published: &Published, column: &Column, tree: &Tree) -> Weights {
        Weights {
            by_claim: CLAIMS.map(|claim| weigh(claim, published, column, tree)),
            windows: column.windows.keys().copied().collect(),
            grounds: Some(Grounds::of(published, column)),
        }
    }

    pub(super) fn of(&self, claim: usize) -> &Weight {
        &self.by_claim[claim]
    }
}

fn weigh(claim: Claim, published: &Published, column: &Column, tree: &Tree) -> Weight {
    let mut tiers = Vec::new();
    let proven =
        |tier: &Tier| !is_hint(tier, published) && published.trust.of(tier) >= claim.accept;
    // A hint adds to what is proven; alone it is nobody's word.
    if proven(&Tier::Device) || proven(&Tier::Host) {
        let counts = |tier: &&Tier| proven(tier) || (claim.hints && is_hint(tier, published));
        let held = column.tiers.keys().filter_map(|number| tree.tier(*number));
        let device = column.tiers.get(&DEVICE).is_none().then_some(&Tier::Device);
        tiers.extend(device.into_iter().chain(held).filter(counts).cloned());
        if tiers.is_empty() {
            tiers.push(Tier::Host); // proven to hold nothing
        }
    }
    tiers.sort_unstable();
    let refused = if tiers.is_empty() {
        Some(published.reason)
    } else {
        published.no_content.then_some(REASON_NO_CONTENT)
    };
    Weight { tiers, refused }
}

fn is_hint(tier: &Tier, published: &Published) -> bool {
    tier.is_hint() || (*tier == Tier::Host && published.host_is_hint)
}
