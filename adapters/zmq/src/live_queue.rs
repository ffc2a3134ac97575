//! The queue of live events: frames are bounded and may be dropped, control events never are.
//!
//! A run of frames that found no room leaves one `Overflowed` in its place. Attached, Detached and
//! these markers are not counted against the limits; they stay bounded because a life in which
//! nothing was kept collapses into its Detached: three of them per frame held, and a few more.

use tracing::warn;

use crate::{
    fifo::{Fifo, Items, QueueLimits},
    frame::LiveFrame,
    subscribe::{DetachReason, WireEvent},
};
use kvbridge_adapters_api::Counters;

/// The live queue.
#[derive(Debug)]
pub(crate) struct LiveQueue {
    fifo: Fifo<WireEvent>,
    limits: QueueLimits,
}

impl LiveQueue {
    pub(crate) fn new(limits: QueueLimits) -> LiveQueue {
        LiveQueue { fifo: Fifo::new(), limits }
    }

    /// Puts a frame, or counts it in the marker of the dropped run.
    pub(crate) fn frame(&self, frame: LiveFrame, counters: &Counters) {
        let bytes = frame.bytes();
        let full = self.fifo.edit(|items| {
            let full = items.try_push(WireEvent::Frames(frame), bytes, self.limits).is_some();
            if full {
                mark_dropped(items);
            }
            full
        });
        if full {
            let overflowed = Counters::one(&counters.overflowed);
            // The 1st, 2nd, 4th, ...: a consumer that is too slow stays so for a while.
            if overflowed.is_power_of_two() {
                warn!(overflowed, "live message dropped, the queue is full");
            }
        }
    }

    /// Puts what is only logged and counted; dropped without a marker when there is no room, for
    /// such a message has no seq that could be missed.
    pub(crate) fn malformed(&self, event: WireEvent) {
        self.fifo.edit(|items| drop(items.try_push(event, 0, self.limits)));
    }

    /// A new connection.
    pub(crate) fn attached(&self) {
        self.fifo.edit(|items| items.push_reserved(WireEvent::Attached));
    }

    /// The connection is over.
    pub(crate) fn detached(&self, reason: DetachReason) {
        self.fifo.edit(|items| {
            // The life just ended may have left nothing but its Attached, and the marker of frames
            // it had to drop. After an earlier Detached all of that says the same as Detached
            // alone.
            let marker = usize::from(matches!(items.newest(0), Some(WireEvent::Overflowed { .. })));
            let empty_life = matches!(items.newest(marker), Some(WireEvent::Attached))
                && matches!(items.newest(marker + 1), Some(WireEvent::Detached { .. }));
            if empty_life {
                for _ in 0..marker + 2 {
                    drop(items.pop_newest());
                }
            }
            items.push_reserved(WireEvent::Detached { reason });
        });
    }

    pub(crate) fn fifo(&self) -> &Fifo<WireEvent> {
        &self.fifo
    }
}

fn mark_dropped(items: &mut Items<WireEvent>) {
    if let Some(WireEvent::Overflowed { dropped }) = items.newest_mut() {
        *dropped += 1;
    } else {
        items.push_reserved(WireEvent::Overflowed { dropped: 1 });
    }
}

/// Closes the queue when the reading task ends, in whatever way.
pub(crate) struct CloseLive(pub(crate) std::sync::Arc<LiveQueue>);

impl Drop for CloseLive {
    fn drop(&mut self) {
        self.0.fifo.close();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use bytes::Bytes;

    use super::*;
    use crate::frame::SeqFrame;

    fn frame(seq: u64) -> LiveFrame {
        let payload = Bytes::from_static(b"0123456789");
        LiveFrame { topic: Bytes::new(), seq_frame: SeqFrame::of(seq), epoch: None, payload }
    }

    async fn drain(queue: &LiveQueue) -> String {
        queue.fifo.close();
        let mut out = Vec::new();
        while let Some(event) = queue.fifo.pop().await {
            out.push(match event {
                WireEvent::Attached => "attached".to_owned(),
                WireEvent::Detached { .. } => "detached".to_owned(),
                WireEvent::Overflowed { dropped } => format!("overflowed {dropped}"),
                WireEvent::Frames(frame) => frame.seq_frame.seq().to_string(),
                WireEvent::Malformed { .. } => "malformed".to_owned(),
            });
        }
        out.join("; ")
    }

    fn queue(count_max: usize) -> (LiveQueue, Counters) {
        let limits = QueueLimits { count_max, bytes_max: 1 << 20 };
        (LiveQueue::new(limits), Counters::default())
    }

    #[tokio::test]
    async fn dropped_run_leaves_one_marker_in_its_place() {
        let (queue, counters) = queue(2);
        queue.attached();
        for seq in 0..5 {
            queue.frame(frame(seq), &counters);
        }
        assert_eq!(queue.fifo.pop().await, Some(WireEvent::Attached));
        assert_eq!(queue.fifo.pop().await, Some(WireEvent::Frames(frame(0))));
        queue.frame(frame(5), &counters);
        queue.frame(frame(6), &counters);
        assert_eq!(counters.overflowed.load(Ordering::Relaxed), 4);
        assert_eq!(drain(&queue).await, "1; overflowed 3; 5; overflowed 1");
    }

    #[tokio::test]
    async fn bytes_are_a_limit_too() {
        let limits = QueueLimits { count_max: 100, bytes_max: 40 };
        let (queue, counters) = (LiveQueue::new(limits), Counters::default());
        for seq in 0..4 {
            queue.frame(frame(seq), &counters);
        }
        assert_eq!(drain(&queue).await, "0; 1; overflowed 2");
    }

    #[tokio::test]
    async fn control_events_pass_a_full_queue() {
        let (queue, counters) = queue(1);
        queue.attached();
        queue.frame(frame(0), &counters);
        queue.frame(frame(1), &counters);
        queue.detached(DetachReason::Closed);
        queue.attached();
        assert_eq!(drain(&queue).await, "attached; 0; overflowed 1; detached; attached");
    }

    #[tokio::test]
    async fn flapping_before_a_stuck_consumer_stays_bounded() {
        let (queue, counters) = queue(1);
        queue.attached();
        queue.frame(frame(0), &counters);
        for seq in 1..1000 {
            queue.detached(DetachReason::Closed);
            queue.attached();
            if seq % 2 == 0 {
                queue.frame(frame(seq), &counters);
            }
        }
        assert_eq!(drain(&queue).await, "attached; 0; detached; attached");
    }
}
