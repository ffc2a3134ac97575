//! What a driver queues for JetStream, with the headers that its readers filter by.

use std::sync::Arc;

use async_nats::{HeaderMap, Subject, header::NATS_MESSAGE_ID};
use async_trait::async_trait;
use bytes::Bytes;
use kvbridge_schemas::{Cursor, Envelope, SCHEMA_VERSION, Trust, codec, subject};
use tokio::sync::oneshot;

use super::super::{
    Full, LogLife, Receipt, Stored, Writer,
    spool::{Share, Spool},
};
use crate::shared_log::{Covered, Outgoing, ResetCause, reset_envelope};

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
    _share: Share,
}

/// The end of one replica's driver.
pub(super) struct SpoolWriter {
    spool: Spool<Queued>,
    subject: Subject,
    bridge: Arc<str>,
    life: Option<Arc<LogLife>>,
    /// Share of the message that found no room.
    refused: u32,
}

impl SpoolWriter {
    pub(super) fn new(
        spool: Spool<Queued>,
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
        if self.spool.is_full() {
            return Err(Full);
        }
        let payload: Bytes = codec::encode_msgpack(&*message.envelope).into();
        let share = self.spool.reserve(payload.len()).map_err(|missing| {
            self.refused = missing;
            Full
        })?;
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
        self.spool.send(queued)?;
        Ok(receipt)
    }

    async fn room(&mut self) {
        self.spool.room(self.refused).await;
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
