//! Where to begin to read one replica without any memory of its places: a search over the stream by
//! the headers of its messages.

use async_nats::jetstream::{
    message::StreamMessage,
    stream::{DirectGetError, DirectGetErrorKind, Info, Stream},
};
use kvbridge_schemas::{BusSeq, Epoch, Seq};

use super::message::place_of;
use crate::config::limits::BUS_REORDER_MESSAGES;

/// What a stream without cached info is called by the client.
pub(in crate::bus::nats) type Handle = Stream<()>;

/// What the stream holds of a replica from a seq on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bus::nats) enum Located {
    /// No message at all.
    Nothing,
    /// Everything from that seq on, of that life, lies here or later; or, where that is gone,
    /// everything that is left of this life.
    From {
        /// Where.
        at: BusSeq,
        /// Which life: the newest on the stream, if none was named.
        epoch: Epoch,
    },
}

/// Looks for `seq` of a life, or of the newest one.
pub(in crate::bus::nats) async fn locate(
    stream: &Handle,
    info: &Info,
    subject: &str,
    (epoch, seq): (Option<Epoch>, Seq),
) -> Result<Located, DirectGetError> {
    let first = info.state.first_sequence.max(1);
    let Some(newest) = found(stream.direct_get_last_for_subject(subject).await)? else {
        return Ok(Located::Nothing);
    };
    let Some((last, _)) = place_of(&newest.headers) else {
        // Not ours: it says nothing about the others.
        return Ok(Located::From { at: BusSeq(first), epoch: epoch.unwrap_or_default() });
    };
    let epoch = epoch.unwrap_or(last);
    let wanted = (epoch, seq);
    let Some(oldest) = next(stream, subject, first).await? else { return Ok(Located::Nothing) };
    let (mut below, mut above) = (oldest.sequence, newest.sequence);
    if place_of(&oldest.headers).is_none_or(|place| place >= wanted) {
        return Ok(Located::From { at: BusSeq(below), epoch });
    }
    // A log can be out of order by two windows of a publisher: nearer than that it is just read.
    while above.saturating_sub(below) > BUS_REORDER_MESSAGES {
        let middle = below + (above - below) / 2;
        match next(stream, subject, middle).await? {
            Some(message) if message.sequence < above => {
                if place_of(&message.headers).is_none_or(|place| place >= wanted) {
                    above = middle;
                } else {
                    below = message.sequence;
                }
            }
            Some(_) | None => above = middle,
        }
    }
    let at = below.saturating_sub(BUS_REORDER_MESSAGES).max(first);
    Ok(Located::From { at: BusSeq(at), epoch })
}

async fn next(
    stream: &Handle,
    subject: &str,
    at: u64,
) -> Result<Option<StreamMessage>, DirectGetError> {
    found(stream.direct_get_next_for_subject(subject, Some(at)).await)
}

fn found(
    answer: Result<StreamMessage, DirectGetError>,
) -> Result<Option<StreamMessage>, DirectGetError> {
    match answer {
        Ok(message) => Ok(Some(message)),
        Err(error) if error.kind() == DirectGetErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
