//! Tests of the view: against an independent oracle, scenario by scenario, and through snapshots.

mod against_oracle;
mod bare;
mod law;
pub(crate) mod oracle;
#[cfg(all(feature = "vllm", feature = "sglang", feature = "trtllm"))]
mod recorded;
mod scenarios;
pub(crate) mod world;

use std::collections::BTreeMap;

use kvbridge_schemas::{Event, Tier};

use super::{Delta, LinkParent, NodeId, View};
use crate::recovery::Finding;

/// What outstanding deltas say is linked; panics where they do not alternate.
#[derive(Default)]
pub(crate) struct Linked(BTreeMap<(NodeId, Tier), (LinkParent, u64, bool)>);

impl Linked {
    pub(crate) fn apply(&mut self, deltas: &[Delta]) {
        for delta in deltas {
            match delta.clone() {
                Delta::Linked { node, parent, content, bigram, tier } => {
                    let old = self.0.insert((node, tier), (parent, content, bigram));
                    assert!(old.is_none(), "linked twice: {delta:?}");
                }
                Delta::Unlinked { node, tier } => {
                    let old = self.0.remove(&(node, tier));
                    assert!(old.is_some(), "unlinked without a link: {delta:?}");
                }
                Delta::Cleared => self.0.clear(),
            }
        }
    }

    pub(crate) fn assert_is(&self, view: &View) {
        let mut all = Linked::default();
        all.apply(&view.links().collect::<Vec<_>>());
        assert_eq!(self.0, all.0);
    }
}

pub(crate) fn apply(view: &mut View, event: Event) -> (Vec<Delta>, Vec<Finding>) {
    let (mut deltas, mut findings) = (Vec::new(), Vec::new());
    view.apply(&[event], &mut deltas, &mut findings);
    (deltas, findings)
}
