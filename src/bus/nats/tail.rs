//! Reads the end of a subject: what a publisher must know before it says anything.

use std::{collections::BTreeSet, time::Duration};

use async_nats::{
    header::NATS_MESSAGE_ID,
    jetstream::{
        consumer::{DeliverPolicy, pull},
        stream::{DirectGetErrorKind, Stream},
    },
};
use futures::StreamExt;
use kvbridge_schemas::{Envelope, codec};

use super::connect::reason;
use crate::{
    config::limits::{BUS_ACK_TIMEOUT, BUS_WINDOW},
    shared_log::{TailReader, lives::Tail},
};

/// How far back the first look goes; each further one goes four times as far.
const FIRST_LOOK: u64 = 1024;

/// Messages of other replicas lie between; a read that long means a stream that gives nothing.
const READ_DEADLINE: Duration = Duration::from_secs(10);

/// The newest messages of a subject: what they tell, and their ids.
pub(super) struct End {
    pub(super) tail: Option<Tail>,
    pub(super) ids: BTreeSet<String>,
}

/// Reads at least a publisher's window back from the newest message.
pub(super) async fn read<I>(stream: &Stream<I>, subject: &str) -> Result<End, String> {
    let nothing = End { tail: None, ids: BTreeSet::new() };
    let newest = match stream.direct_get_last_for_subject(subject).await {
        Ok(newest) => newest,
        Err(error) if error.kind() == DirectGetErrorKind::NotFound => return Ok(nothing),
        Err(error) => return Err(reason(&error)),
    };
    let window = u64::try_from(BUS_WINDOW).unwrap_or(u64::MAX);
    let newest_place = place(&newest.headers);
    let mut back = FIRST_LOOK;
    let start = loop {
        let start = newest.sequence.saturating_sub(back).max(1);
        let first = stream.direct_get_next_for_subject(subject, Some(start)).await;
        let first = first.map_err(|error| reason(&error))?;
        let far = match (place(&first.headers), newest_place) {
            (Some((epoch, seq)), Some((newest_epoch, newest_seq))) => {
                epoch < newest_epoch || seq.saturating_add(window) <= newest_seq
            }
            // Not ours: nothing tells how far it is.
            _ => false,
        };
        if far || start == 1 {
            break start;
        }
        back = back.saturating_mul(4);
    };
    let reading = read_from(stream, subject, start, newest.sequence);
    tokio::time::timeout(READ_DEADLINE, reading)
        .await
        .map_err(|_| "the end of the log cannot be read in time".to_owned())?
}

async fn read_from<I>(
    stream: &Stream<I>,
    subject: &str,
    start: u64,
    last: u64,
) -> Result<End, String> {
    let config = pull::OrderedConfig {
        filter_subject: subject.to_owned(),
        deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: start },
        ..Default::default()
    };
    let consumer = stream.create_consumer(config).await.map_err(|error| reason(&error))?;
    let mut messages = consumer.messages().await.map_err(|error| reason(&error))?;
    let mut reader = TailReader::default();
    let mut ids = BTreeSet::new();
    while let Some(message) = messages.next().await {
        let message = message.map_err(|error| reason(&error))?;
        let headers = message.headers.as_ref();
        ids.extend(
            headers.and_then(|headers| headers.get(NATS_MESSAGE_ID)).map(ToString::to_string),
        );
        // What cannot be read was not written by this version, and proves nothing.
        if let Ok(envelope) = codec::decode_msgpack::<Envelope>(&message.payload) {
            reader.take(&envelope);
        }
        let sequence = message.info().map_err(|error| error.to_string())?.stream_sequence;
        if sequence >= last {
            break;
        }
    }
    let window = u64::try_from(BUS_WINDOW).unwrap_or(u64::MAX);
    debug_assert!(BUS_ACK_TIMEOUT < READ_DEADLINE);
    Ok(End { tail: reader.tail(window), ids })
}

/// Epoch and seq of a message, by its headers.
fn place(headers: &async_nats::HeaderMap) -> Option<(u64, u64)> {
    let number = |name: &str| headers.get(name)?.as_str().parse().ok();
    Some((number("Kvbridge-Epoch")?, number("Kvbridge-Seq")?))
}
