//! Where to begin to read one replica without any memory of its places: a search over the stream by
//! the headers of its messages.

use async_nats::jetstream::{
    message::StreamMessage,
    stream::{DirectGetError, DirectGetErrorKind, Info, Stream},
};
use kvbridge_schemas::{BusSeq, Epoch, Seq};

use super::message::place_of;
use crate::{config::limits::BUS_REORDER_MESSAGES, shared_log::Search};

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
    if place_of(&oldest.headers).is_none_or(|place| place >= wanted) {
        return Ok(Located::From { at: BusSeq(oldest.sequence), epoch });
    }
    let between = (BusSeq(first), BusSeq(oldest.sequence), BusSeq(newest.sequence));
    let mut search = Search::between(wanted, between, BUS_REORDER_MESSAGES);
    while let Some(BusSeq(at)) = search.next() {
        let found = next(stream, subject, at).await?;
        search.found(found.map(|message| (BusSeq(message.sequence), place_of(&message.headers))));
    }
    Ok(Located::From { at: search.from(), epoch })
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
