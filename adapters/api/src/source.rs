//! The trait an adapter implements.

use async_trait::async_trait;
use kvbridge_schemas::{Seq, SnapshotRecord};

use crate::{Capabilities, Delivery, SourceRequest};

/// One replica of one engine, as a single ordered stream of live batches and answers.
///
/// - `next` is cancel-safe. It never filters by seq or invents a batch: deciding is the core's
///   work.
/// - Detached comes before the first frame of any new connection; a source that cannot know says so
///   in its [`Capabilities`]. Reconnecting, with jitter, is the adapter's duty.
/// - A full queue puts one Overflowed in the place of the dropped run; control events are never
///   dropped.
/// - `request` only queues. The answer arrives through `next` and carries the same attempt.
/// - At most one request is open; a new one replaces the old.
#[async_trait]
pub trait Source: Send {
    /// What this source can do.
    fn capabilities(&self) -> Capabilities;
    /// The view that its reader goes on with, if one was kept: where it stands and its records.
    /// Called once, before anything else.
    fn begin(&mut self, _kept: Option<(Seq, Vec<SnapshotRecord>)>) {}
    /// What comes next; `None` when the source is closed for good.
    async fn next(&mut self) -> Option<Delivery>;
    /// Queues a request.
    fn request(&mut self, request: SourceRequest) -> Result<(), RequestRefused>;
    /// Asks the engine for nothing more. `true` = what it has handed over already, which no other
    /// reader will ever see, still comes, and then `None`.
    fn wind_up(&mut self) -> bool {
        false
    }
}

/// A request that a source cannot take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestRefused {
    /// The source has no journal or no snapshot.
    #[error("the source does not support this request")]
    Unsupported,
    /// The source's task has ended.
    #[error("the source is closed")]
    Closed,
}
