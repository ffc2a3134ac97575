//! One replica's log at a bridge as a source: live messages, replays and snapshots.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use kvbridge_adapters_api::{
    AnswerPart, Attempt, Batch, Capabilities, Delivery, Loss, Removal, RequestRefused,
    SnapshotIntro, SnapshotRefusal, Source, SourceEvent, SourceRequest, Upstream,
};
use kvbridge_adapters_zmq::{
    Counters, ExchangeClient, ExchangeSettings, Heard, Link, LiveForm, LiveFrame,
    SubscribeSettings, Subscriber, WireEvent,
};
use kvbridge_schemas::{
    Envelope, Epoch, HashInfo, HashScheme, Replica, ReplicaKey, Seq, SnapshotHeader, Status,
    TierTrust, codec, digest, subject,
};
use tokio::sync::watch;
use tracing::debug;

use super::{
    asking::{Part, ReplayOf, SnapshotOf, no_replay},
    breaks::{Breaks, Broke, Ends},
    wire::Refusal,
};
use crate::{
    bus::VouchWatch,
    pipeline::Signs,
    shared_log::{FORMAT, batch_of, log_capabilities},
    telemetry::BusReadMetrics,
};

/// A bridge says each second how it stands: after so many of them a connection that brings nothing
/// is made anew, for a peer whose host vanished without a word stays silent for ever.
const SILENT_BEATS: u32 = 10;

/// Where a replica's log is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) live: String,
    pub(super) requests: String,
}

/// The log of one replica, read.
pub(super) struct LogSource {
    replica: Replica,
    key: ReplicaKey,
    subject: String,
    status: String,
    capabilities: Capabilities,
    live: Subscriber,
    asks: ExchangeClient<Part>,
    /// The newest life that was seen; 0 = none yet.
    epoch: Epoch,
    vouches: VouchWatch,
    /// What the bridge says of it.
    upstream: watch::Receiver<Upstream>,
    metrics: BusReadMetrics,
    breaks: Breaks,
    signs: Arc<Signs>,
}

impl LogSource {
    /// Begins to read. Must be called inside a tokio runtime.
    pub(super) fn open(
        replica: Replica,
        place: &Place,
        removal: Removal,
        (vouches, beat): (VouchWatch, Duration),
        (counters, signs): (Arc<Counters>, Arc<Signs>),
    ) -> LogSource {
        let key = replica.key();
        let mut subscribe = SubscribeSettings::new(Link::Connect(place.live.clone()));
        subscribe.topic = subject::hint(&key);
        subscribe.also = vec![subject::status(&key)];
        subscribe.form = LiveForm::WithEpoch;
        subscribe.idle_recycle = Some(beat.saturating_mul(SILENT_BEATS));
        let asks = ExchangeSettings::new(place.requests.clone());
        let mut upstream = vouches.follow(&key);
        // The first word of all: nothing is believed of a log that nobody has vouched for.
        upstream.mark_changed();
        LogSource {
            subject: subscribe.topic.clone(),
            status: subject::status(&key),
            capabilities: log_capabilities(removal),
            live: Subscriber::spawn(subscribe, Arc::clone(&counters)),
            asks: ExchangeClient::new(asks, counters),
            epoch: Epoch(0),
            vouches,
            upstream,
            metrics: BusReadMetrics::register(&key),
            breaks: Breaks::default(),
            signs,
            replica,
            key,
        }
    }

    /// What an answer shows of the journal it is from.
    fn note_breaks(&mut self, ends: Ends) {
        match self.breaks.told(ends) {
            Some(Broke::Reset) => {
                self.metrics.log_reset.increment(1);
                self.signs.log_was_reset();
            }
            Some(Broke::RetentionPassed) => {
                self.metrics.retention_passed.increment(1);
                self.signs.retention_has_passed();
            }
            None => (),
        }
    }

    fn live_event(&mut self, event: WireEvent) -> Option<SourceEvent> {
        match event {
            WireEvent::Attached => Some(SourceEvent::Attached),
            WireEvent::Detached { reason: _ } => {
                // Its answers belong to a connection that may have been of another process.
                self.asks.cancel();
                self.vouches.cut_off(&self.key);
                Some(SourceEvent::Detached)
            }
            WireEvent::Overflowed { dropped } => {
                self.metrics.overflowed.increment(dropped);
                Some(SourceEvent::Overflowed)
            }
            WireEvent::Frames(frame) if frame.topic == self.subject => {
                let (epoch, seq) = (Epoch(frame.epoch?), Seq(frame.seq_frame.seq()));
                self.metrics.read.increment(1);
                self.batch(epoch, seq, &frame.payload).map(SourceEvent::Live)
            }
            WireEvent::Frames(frame) => {
                self.heartbeat(&frame);
                None
            }
            // Counted and logged where it was read. It has no seq; if one is missing the core sees.
            WireEvent::Malformed { reason: _ } => None,
        }
    }

    /// A subscription is by prefix, so the heartbeats and messages of others may come too: they are
    /// left alone.
    fn heartbeat(&self, frame: &LiveFrame) {
        if frame.topic != self.status {
            return;
        }
        match codec::decode_msgpack::<Status>(&frame.payload) {
            Ok(status) if status.replica == self.replica => self.vouches.heard(&status),
            Ok(_) => self.metrics.unreadable("wrong_replica"),
            Err(_) => self.metrics.unreadable("malformed"),
        }
    }

    /// A message of the log. One that cannot be read still has its place, by the frames beside it:
    /// its seq is not missing, only its content. `None` = it covers no seq: the bridge's word.
    fn batch(&mut self, epoch: Epoch, seq: Seq, payload: &Bytes) -> Option<Batch> {
        self.epoch = self.epoch.max(epoch);
        match self.envelope(epoch, seq, payload) {
            Ok(envelope) if envelope.span == 0 => {
                self.vouches.said(&envelope);
                None
            }
            Ok(envelope) => {
                let batch = readable(envelope, payload);
                self.breaks.delivered(epoch, seq, batch.next_seq());
                Some(batch)
            }
            Err(why) => {
                debug!(replica = %self.key, %epoch, %seq, reason = why, "message not read");
                self.metrics.unreadable(why);
                self.breaks.delivered(epoch, seq, seq.plus(1));
                Some(unreadable(epoch, seq, payload))
            }
        }
    }

    fn envelope(&self, epoch: Epoch, seq: Seq, payload: &[u8]) -> Result<Envelope, &'static str> {
        let envelope: Envelope = codec::decode_msgpack(payload).map_err(|error| match error {
            codec::CodecError::Version { .. } => "schema_too_new",
            _ => "malformed",
        })?;
        if envelope.replica != self.replica {
            return Err("wrong_replica");
        }
        if (envelope.epoch, envelope.seq) != (epoch, seq) {
            return Err("wrong_place");
        }
        Ok(envelope)
    }

    fn answer(&mut self, attempt: Attempt, heard: Heard<Part>) -> Option<Delivery> {
        let part = match heard {
            Heard::Part(Part::Ends(ends)) => {
                self.note_breaks(ends);
                return None;
            }
            Heard::Part(Part::Message { epoch, seq, payload }) => {
                AnswerPart::Batch(self.batch(epoch, seq, &payload)?)
            }
            Heard::Part(Part::Truncated) => AnswerPart::Truncated,
            Heard::Part(Part::Continues(cursor)) => AnswerPart::Continues(cursor),
            Heard::Part(Part::Intro(header)) => AnswerPart::SnapshotIntro(self.intro(&header)),
            Heard::Part(Part::Records(records)) => {
                return Some(Delivery::Records { attempt, records });
            }
            Heard::Part(Part::SnapshotEnd) => AnswerPart::SnapshotEnd,
            Heard::Part(Part::NoReplay(refusal)) => {
                debug!(replica = %self.key, %attempt, reason = refusal.as_str(), "no replay");
                // The end of the exchange is none of the answer: it would be one of an empty log.
                self.asks.cancel();
                no_replay(refusal)
            }
            Heard::Part(Part::Refused(refusal)) => {
                debug!(replica = %self.key, %attempt, reason = refusal.as_str(), "refused");
                AnswerPart::SnapshotRefused(match refusal {
                    Refusal::UnknownReplica => SnapshotRefusal::Unavailable,
                    Refusal::Busy
                    | Refusal::Untrusted
                    | Refusal::UnknownSnapshot
                    | Refusal::Unreadable => SnapshotRefusal::Busy,
                })
            }
            Heard::Done => AnswerPart::End,
            Heard::Failed(reason) => {
                debug!(replica = %self.key, %attempt, %reason, "answer ended");
                AnswerPart::Failed
            }
        };
        Some(SourceEvent::Answer { attempt, part }.into())
    }

    fn intro(&mut self, header: &SnapshotHeader) -> SnapshotIntro {
        self.epoch = self.epoch.max(header.epoch);
        self.breaks.delivered(header.epoch, Seq(0), header.resume_seq);
        let host = header.state.as_ref().map_or(header.trust, |state| state.host);
        SnapshotIntro {
            epoch: Some(header.epoch),
            incarnation: None,
            resume_seq: header.resume_seq,
            last_digest: header.last_digest,
            record_count: header.block_count,
            barrier: None,
            trust: TierTrust { device: header.trust, host },
        }
    }
}

fn readable(envelope: Envelope, payload: &[u8]) -> Batch {
    batch_of(envelope, u32::try_from(payload.len()).unwrap_or(u32::MAX))
}

fn unreadable(epoch: Epoch, seq: Seq, payload: &[u8]) -> Batch {
    Batch {
        epoch: Some(epoch),
        incarnation: None,
        seq,
        span: 1,
        digest: digest(payload),
        ts: 0,
        format: FORMAT,
        hash: HashInfo { scheme: HashScheme::Unknown, block_size: 0 },
        rank: None,
        events: Vec::new(),
        loss: Loss::Body,
        bytes: u32::try_from(payload.len()).unwrap_or(u32::MAX),
    }
}

impl Drop for LogSource {
    fn drop(&mut self) {
        self.vouches.forget(&self.key);
    }
}

#[async_trait]
impl Source for LogSource {
    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    async fn next(&mut self) -> Option<Delivery> {
        loop {
            // Ahead of the next message: a withdrawal must not come behind the data that follows.
            if self.upstream.has_changed().unwrap_or(false) {
                let said = *self.upstream.borrow_and_update();
                return Some(SourceEvent::Upstream(said).into());
            }
            // Not biased: a long answer must not let the live queue overflow, nor the reverse. Each
            // branch takes its item in the poll that completes it, so dropping this loses nothing.
            tokio::select! {
                event = self.live.next() => {
                    if let Some(event) = self.live_event(event?) {
                        return Some(event.into());
                    }
                }
                (attempt, heard) = self.asks.next() => {
                    if let Some(delivery) = self.answer(attempt, heard) {
                        return Some(delivery);
                    }
                }
                // Said at the head of this loop.
                Ok(()) = self.upstream.changed() => self.upstream.mark_changed(),
            }
        }
    }

    fn request(&mut self, request: SourceRequest) -> Result<(), RequestRefused> {
        if self.live.is_closed() {
            return Err(RequestRefused::Closed);
        }
        let key = self.key.clone();
        match request {
            SourceRequest::Replay { attempt, start_seq: first } => {
                self.breaks.asks();
                self.asks.start(attempt, ReplayOf { key, epoch: self.epoch, first, after: 0 });
            }
            // There are no stored snapshots to be named: a fresh one is newer than any.
            SourceRequest::Snapshot { attempt, object: _ } => {
                self.asks.start(attempt, SnapshotOf { key, id: None });
            }
            SourceRequest::Cancel => self.asks.cancel(),
        }
        Ok(())
    }
}
