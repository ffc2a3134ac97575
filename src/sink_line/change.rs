//! What a driver tells of its view: the deltas of prefix matching, with what only routers need.

use std::sync::Arc;

use kvbridge_schemas::Tier;

use crate::view::{Delta, Described, LinkParent, NodeId, View};

/// One change of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A block became usable in a tier.
    Linked {
        /// Which block.
        node: NodeId,
        /// What comes before it.
        parent: LinkParent,
        /// Where.
        tier: Tier,
        /// What it is made of, where that is known.
        described: Option<Arc<Described>>,
    },
    /// It is usable there no more.
    Unlinked {
        /// Which block.
        node: NodeId,
        /// Where.
        tier: Tier,
    },
    /// Everything is gone.
    Cleared,
}

impl Change {
    /// The change that a delta of `view` is for routers. The view is the one after it; its settings
    /// say that it tells of each block by itself.
    pub fn of(delta: &Delta, view: &View) -> Option<Change> {
        match delta {
            Delta::Linked { node, parent, tier, .. } => Some(Change::Linked {
                node: *node,
                parent: *parent,
                tier: tier.clone(),
                described: view.described(*node),
            }),
            Delta::Unlinked { node, tier } => {
                Some(Change::Unlinked { node: *node, tier: tier.clone() })
            }
            Delta::Strip { .. } => {
                debug_assert!(false, "a view that sinks are fed from has no strips");
                None
            }
            Delta::Cleared => Some(Change::Cleared),
        }
    }
}
