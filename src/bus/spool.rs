//! The bounded queue between drivers and a publisher. A message holds its share of the bytes until
//! the bus has it.

use std::{pin::pin, sync::Arc};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};

use super::Full;

/// Bytes that one permit stands for: a semaphore counts in 32 bits.
const UNIT_BYTES: usize = 1024;

/// What a message costs beside its payload: headers, subject, queue.
const OVERHEAD_BYTES: usize = 512;

/// A message's place in the spool; given back when it is dropped.
pub(super) struct Share {
    permit: Option<OwnedSemaphorePermit>,
    room: Arc<Room>,
}

impl Drop for Share {
    fn drop(&mut self) {
        drop(self.permit.take());
        if self.room.shares.available_permits() >= self.room.half() {
            self.room.half_free.notify_waiters();
        }
    }
}

/// What is left, and who waits for it. Nobody queues at the semaphore: it would give a waiter all
/// that is freed until he has his half, and the other drivers nothing meanwhile.
struct Room {
    shares: Arc<Semaphore>,
    units: usize,
    half_free: Notify,
}

impl Room {
    fn half(&self) -> usize {
        self.units.div_ceil(2)
    }
}

/// The drivers' side.
pub(super) struct Spool<T> {
    sender: mpsc::Sender<T>,
    room: Arc<Room>,
}

impl<T> Clone for Spool<T> {
    fn clone(&self) -> Spool<T> {
        Spool { sender: self.sender.clone(), room: Arc::clone(&self.room) }
    }
}

impl<T> Spool<T> {
    pub(super) fn new(bytes_max: u64) -> (Spool<T>, mpsc::Receiver<T>) {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let units = (bytes_max / UNIT_BYTES).clamp(1, u32::MAX as usize >> 3);
        // Every message holds at least one unit, so this queue is never full before the shares are.
        let (sender, queue) = mpsc::channel(units);
        let shares = Arc::new(Semaphore::new(units));
        let room = Arc::new(Room { shares, units, half_free: Notify::new() });
        (Spool { sender, room }, queue)
    }

    pub(super) fn used_bytes(&self) -> u64 {
        let used = self.room.units.saturating_sub(self.room.shares.available_permits());
        u64::try_from(used.saturating_mul(UNIT_BYTES)).unwrap_or(u64::MAX)
    }

    /// Whether there is nothing left at all: a message need not be made to learn that.
    pub(super) fn is_full(&self) -> bool {
        self.room.shares.available_permits() == 0
    }

    /// A place for a message of that size, or the share that is missing.
    pub(super) fn reserve(&self, bytes: usize) -> Result<Share, u32> {
        let units = (bytes + OVERHEAD_BYTES).div_ceil(UNIT_BYTES).min(self.room.units);
        let share = u32::try_from(units).unwrap_or(u32::MAX);
        let permit = Arc::clone(&self.room.shares).try_acquire_many_owned(share);
        let permit = permit.map_err(|_| share)?;
        Ok(Share { permit: Some(permit), room: Arc::clone(&self.room) })
    }

    /// Queues a message, which holds its share.
    pub(super) fn send(&self, message: T) -> Result<(), Full> {
        self.sender.try_send(message).map_err(|_| Full)
    }

    /// Waits until half of the spool is free, or as much as the message needs that found no room:
    /// with room for one message only, every second one would be left out.
    pub(super) async fn room(&self, refused: u32) {
        let refused = usize::try_from(refused).unwrap_or(usize::MAX);
        let needed = self.room.half().max(refused).min(self.room.units);
        loop {
            let mut freed = pin!(self.room.half_free.notified());
            // Listening before looking: what is freed between the two is not missed.
            freed.as_mut().enable();
            if self.room.shares.available_permits() >= needed {
                return;
            }
            freed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn who_waits_for_room_takes_none_from_the_others() {
        let (spool, _queue) = Spool::<()>::new(10 * 1024);
        let mut held: Vec<Share> = (0..9).map(|_| spool.reserve(1).unwrap()).collect();
        let waiting = spool.clone();
        let waiter = tokio::spawn(async move { waiting.room(3).await });
        tokio::task::yield_now().await;
        assert!(!spool.is_full());
        drop(spool.reserve(1).unwrap());
        assert_eq!(spool.used_bytes(), 9 * 1024);
        held.truncate(6);
        tokio::task::yield_now().await;
        assert!(!waiter.is_finished());
        held.truncate(5);
        tokio::time::timeout(Duration::from_secs(60), waiter).await.unwrap().unwrap();
    }
}
