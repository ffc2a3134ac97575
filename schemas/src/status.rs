//! A bridge's heartbeat for one replica.

use crate::{BusSeq, Epoch, Replica, Seq, Trust};

/// Says that a bridge is alive and how far its view stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Whose cache.
    pub replica: Replica,
    /// Which life.
    pub epoch: Epoch,
    /// Every batch below is applied, and on the log where there is one.
    pub next_seq: Seq,
    /// The bridge's own view is as far as this, which the log has not reached; absent = it is not
    /// further than `next_seq`, or its bridge does not say.
    pub view_seq: Option<Seq>,
    /// Last bus message of this replica, when it is on a bus.
    pub bus_seq: Option<BusSeq>,
    /// The bridge's trust.
    pub trust: Trust,
    /// Why it is no better, or `contiguous`.
    pub reason: String,
    /// Which bridge speaks.
    pub bridge: String,
    /// When, unix ms by the bridge's clock.
    pub at: u64,
}
