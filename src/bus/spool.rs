//! The bounded queue between drivers and a publisher. A message holds its share of the bytes until
//! the bus has it.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::Full;

/// Bytes that one permit stands for: a semaphore counts in 32 bits.
const UNIT_BYTES: usize = 1024;

/// What a message costs beside its payload: headers, subject, queue.
const OVERHEAD_BYTES: usize = 512;

/// A message's place in the spool; given back when it is dropped.
pub(super) type Share = OwnedSemaphorePermit;

/// The drivers' side.
pub(super) struct Spool<T> {
    sender: mpsc::Sender<T>,
    shares: Arc<Semaphore>,
    units: usize,
}

impl<T> Clone for Spool<T> {
    fn clone(&self) -> Spool<T> {
        let (sender, shares) = (self.sender.clone(), Arc::clone(&self.shares));
        Spool { sender, shares, units: self.units }
    }
}

impl<T> Spool<T> {
    pub(super) fn new(bytes_max: u64) -> (Spool<T>, mpsc::Receiver<T>) {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let units = (bytes_max / UNIT_BYTES).clamp(1, u32::MAX as usize >> 3);
        // Every message holds at least one unit, so this queue is never full before the shares are.
        let (sender, queue) = mpsc::channel(units);
        let shares = Arc::new(Semaphore::new(units));
        (Spool { sender, shares, units }, queue)
    }

    pub(super) fn used_bytes(&self) -> u64 {
        let used = self.units.saturating_sub(self.shares.available_permits());
        u64::try_from(used.saturating_mul(UNIT_BYTES)).unwrap_or(u64::MAX)
    }

    /// Whether there is nothing left at all: a message need not be made to learn that.
    pub(super) fn is_full(&self) -> bool {
        self.shares.available_permits() == 0
    }

    /// A place for a message of that size, or the share that is missing.
    pub(super) fn reserve(&self, bytes: usize) -> Result<Share, u32> {
        let units = (bytes + OVERHEAD_BYTES).div_ceil(UNIT_BYTES).min(self.units);
        let share = u32::try_from(units).unwrap_or(u32::MAX);
        Arc::clone(&self.shares).try_acquire_many_owned(share).map_err(|_| share)
    }

    /// Queues a message, which holds its share.
    pub(super) fn send(&self, message: T) -> Result<(), Full> {
        self.sender.try_send(message).map_err(|_| Full)
    }

    /// Waits until half of the spool is free, or as much as the message needs that found no room:
    /// with room for one message only, every second one would be left out.
    pub(super) async fn room(&self, refused: u32) {
        let half = u32::try_from(self.units.div_ceil(2)).unwrap_or(u32::MAX);
        // A closed semaphore would be the end of the bus; then there is nothing to wait for.
        drop(self.shares.acquire_many(half.max(refused)).await);
    }
}
