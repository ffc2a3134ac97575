//! What the author of an adapter writes: an engine that does as it is told.

use async_trait::async_trait;
use kvbridge_adapters_api::Source;

/// The engine's side of the protocol, on sockets of this machine, for one source.
///
/// Nothing here waits for the source to read: what it leaves unread stays between the two, or is
/// dropped as the protocol has it.
#[async_trait]
pub trait Harness: Send + Sized {
    /// An engine that runs and that nobody reads yet. With `journal` it answers for what it
    /// published, if the protocol has that at all.
    async fn start(journal: bool) -> Self;

    /// A source of it, with the capabilities of such an engine, that keeps up to `queue` live
    /// batches for a slow reader.
    async fn open(&mut self, queue: usize) -> Box<dyn Source>;

    /// Returns when the source is connected so that what is published from now on reaches it: after
    /// an open, a cut and a restart.
    async fn read(&mut self);

    /// Publishes a batch of that number, and puts it in the journal. It stores one block or more,
    /// well-formed; numbers may leave some out and come again.
    async fn publish(&mut self, seq: u64);

    /// Publishes bytes in the place of a batch of that number. Where the protocol cannot carry them
    /// as they are (a line break in a protocol of lines), as near to them as it can.
    async fn publish_bytes(&mut self, seq: u64, bytes: &[u8]);

    /// Ends every connection, while something may be under way. The engine goes on and takes new
    /// ones.
    async fn cut(&mut self);

    /// Another process in the place of this one: nothing journaled, numbers from 0, the same
    /// addresses. What waits for an answer gets none.
    async fn restart(&mut self);

    /// Answers nothing, or again: requests that come meanwhile wait.
    async fn hold_answers(&mut self, held: bool);

    /// Whether anybody is connected, so far as the engine's side can tell.
    async fn is_read(&mut self) -> bool;
}
