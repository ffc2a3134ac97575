//! The bounded queue between drivers and a publisher. A message holds its share of the bytes until
//! the server has acknowledged it.

use std::sync::Arc;

use async_nats::{HeaderMap, Subject, header::NATS_MESSAGE_ID};
use async_trait::async_trait;
use bytes::Bytes;
use kvbridge_schemas::{Cursor, Envelope, SCHEMA_VERSION, Trust, codec, subject};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::super::{Full, LogLife, Receipt, Stored, Writer};
use crate::shared_log::{Covered, Outgoing, ResetCause, reset_envelope};

/// Bytes that one permit stands for: a semaphore counts in 32 bits.
const UNIT_BYTES: usize = 1024;

/// What a message costs beside its payload: headers, subject, queue.
const OVERHEAD_BYTES: usize = 512;

/// Above this a message may be too large for a server. The least `max_payload` we work with.
pub(super) const PAYLOAD_SAFE: usize = 64 * 1024;

/// A message that waits or is under way.
pub(super) struct Queued {
    pub(super) subject: Subject,
    pub(super) headers: HeaderMap,
    pub(super) payload: Bytes,
    /// Published in its place when the server does not take messages of this size.
    pub(super) substitute: Option<Box<(HeaderMap, Bytes)>>,
    /// The log has everything below this once it has the message.
    pub(super) behind: Cursor,
    pub(super) life: Option<Arc<LogLife>>,
    /// What it is stored under.
    pub(super) stored_as: String,
    pub(super) receipt: Option<oneshot::Sender<Stored>>,
    /// When it was queued, by the publisher's clock of milliseconds.
    pub(super) at_ms: u64,
    _share: OwnedSemaphorePermit,
}

/// The drivers' side.
#[derive(Clone)]
pub(super) struct Spool {
    sender: mpsc::Sender<Queued>,
    shares: Arc<Semaphore>,
    units: usize,
}

impl Spool {
    pub(super) fn new(bytes_max: u64) -> (Spool, mpsc::Receiver<Queued>) {
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

    fn share_of(&self, bytes: usize) -> u32 {
        let units = (bytes + OVERHEAD_BYTES).div_ceil(UNIT_BYTES).min(self.units);
        u32::try_from(units).unwrap_or(u32::MAX)
    }
}

/// The end of one replica's driver.
pub(super) struct SpoolWriter {
    spool: Spool,
    subject: Subject,
    bridge: Arc<str>,
    life: Option<Arc<LogLife>>,
    /// Share of the message that found no room.
    refused: u32,
}

impl SpoolWriter {
    pub(super) fn new(
        spool: Spool,
        subject: String,
        bridge: Arc<str>,
        life: Option<Arc<LogLife>>,
    ) -> SpoolWriter {
        SpoolWriter { spool, subject: subject.into(), bridge, life, refused: 0 }
    }

    fn substitute(&self, message: &Outgoing) -> (HeaderMap, Bytes) {
        let Envelope { epoch, seq, span, .. } = *message.envelope;
        let envelope = reset_envelope(
            &message.envelope.replica,
            &message.envelope.engine.kind,
            Covered { epoch, seq, span },
            ResetCause::TooLarge,
            message.envelope.trust.min(Trust::LowerBound),
        );
        // The lane counts its resets from 1.
        let id = format!("{}/{}/0", message.id, self.bridge);
        (headers(&envelope, &id), codec::encode_msgpack(&envelope).into())
    }
}

#[async_trait]
impl Writer for SpoolWriter {
    fn wanted(&self) -> bool {
        true
    }

    fn publish(&mut self, message: &Outgoing) -> Result<Receipt, Full> {
        if self.spool.shares.available_permits() == 0 {
            return Err(Full);
        }
        let payload: Bytes = codec::encode_msgpack(&*message.envelope).into();
        let share = self.spool.share_of(payload.len());
        let shares = Arc::clone(&self.spool.shares);
        let Ok(share) = shares.try_acquire_many_owned(share) else {
            self.refused = share;
            return Err(Full);
        };
        let substitute =
            (payload.len() > PAYLOAD_SAFE / 2).then(|| Box::new(self.substitute(message)));
        let (stored, receipt) = Receipt::new();
        let queued = Queued {
            subject: self.subject.clone(),
            headers: headers(&message.envelope, &message.id),
            payload,
            substitute,
            behind: Cursor {
                epoch: message.envelope.epoch,
                next_seq: message.envelope.seq.plus(u64::from(message.envelope.span)),
            },
            life: self.life.clone(),
            stored_as: subject::hint(&message.envelope.replica.key()),
            receipt: Some(stored),
            at_ms: crate::clock::Clock::unix_ms(),
            _share: share,
        };
        self.spool.sender.try_send(queued).map_err(|_| Full)?;
        Ok(receipt)
    }

    /// Half of the spool: with room for one message only, every second one would be left out.
    async fn room(&mut self) {
        let half = u32::try_from(self.spool.units.div_ceil(2)).unwrap_or(u32::MAX);
        // A closed semaphore would be the end of the bus; then there is nothing to wait for.
        drop(self.spool.shares.acquire_many(half.max(self.refused)).await);
    }
}

/// What the `nats` tool shows, and what a reader can filter by without decoding.
fn headers(envelope: &Envelope, id: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(NATS_MESSAGE_ID, id);
    headers.insert("Kvbridge-Schema", SCHEMA_VERSION.to_string());
    headers.insert("Kvbridge-Epoch", envelope.epoch.to_string());
    headers.insert("Kvbridge-Seq", envelope.seq.to_string());
    headers
}
