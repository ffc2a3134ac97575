//! Over a limit: the view is given up as a whole, and learnt anew when there is room again.

use super::{Cx, Fact, Recovery, TrustReason, phase::Phase};

impl Recovery {
    /// The process needs the memory: nothing of this replica is kept until it is released. A part
    /// of a view would be worse than none, because nothing could say which part.
    pub(super) fn over_limit(&mut self, cx: &mut Cx<'_>) {
        if matches!(self.phase, Phase::Shed { .. }) {
            return;
        }
        cx.record(Fact::OverLimit);
        self.withdraw(cx, TrustReason::OverLimit);
        self.cancel(cx);
        self.forget_shed(cx);
        let attached = !matches!(self.phase, Phase::Detached);
        self.enter(Phase::Shed { attached });
    }

    /// There is room again: the replica starts as one that was never attached.
    pub(super) fn release(&mut self, cx: &mut Cx<'_>) {
        let Phase::Shed { attached } = self.phase else { return };
        cx.record(Fact::Released);
        self.doubt = TrustReason::Detached;
        self.enter(Phase::Detached);
        if attached {
            self.attach(cx);
        }
    }

    /// Whether the live stream is not listened to.
    pub(super) fn unattached(&self) -> bool {
        matches!(self.phase, Phase::Detached | Phase::Quarantined { .. } | Phase::Shed { .. })
    }
}
