//! Old messages of one replica, in order: a small gap by one request, a long range by a consumer.
//!
//! Where the range begins is decided by the numbers of the stream, never by the seq of what comes
//! first. An answer ends where the stream ended when it was asked.

use std::time::Duration;

use async_nats::{
    Client, Message,
    jetstream::{
        consumer::{DeliverPolicy, pull},
        stream::LastRawMessageErrorKind,
    },
};
use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt};
use kvbridge_adapters_api::Batch;
use kvbridge_schemas::{BusSeq, Epoch, Replica, Seq, Trust};
use tokio::{sync::mpsc, time::error::Elapsed};

use super::{
    Log, Reader,
    locate::{Handle, Located, locate},
    message::{Read, place_of, read},
    source::{Part, WINDOW},
};
use crate::{
    config::limits::{BUS_ACK_TIMEOUT, BUS_BATCH_BYTES, BUS_BATCH_MESSAGES},
    recovery::Tick,
    shared_log::{Known, Place, Reorder},
    telemetry::BusReadMetrics,
};

/// Ranges of more messages than this many requests are read by a consumer, which is faster and
/// paced by its reader, but costs a round trip to make and state on the server.
const REQUESTS_MAX: usize = 2;

/// How long a consumer may bring nothing while something is left.
const CONSUMER_SILENCE: Duration = Duration::from_secs(4);

/// Bytes of batches that are handed over together, if they come at once. One by one each woke the
/// driver's thread, which cost more than to decode it; larger runs gain nothing, and
/// [`BUS_ANSWER_PARTS`](crate::config::limits::BUS_ANSWER_PARTS) of them wait.
const RUN_BYTES: u64 = 64 * 1024;

/// What is asked, with what is remembered.
pub(super) struct Wanted {
    pub(super) replica: Replica,
    pub(super) subject: String,
    pub(super) known: Known,
    pub(super) metrics: BusReadMetrics,
}

/// Why an answer broke off. Told to whoever looks for the reason, at a level of detail.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    /// No connection.
    #[error("not connected")]
    Away,
    /// The stream is another one than that which is followed.
    #[error("the stream was made anew")]
    OtherLog,
    /// The server did not answer, or refused.
    #[error("{0}")]
    Server(String),
    /// Whoever asked does not want it any more.
    #[error("nobody waits for it")]
    Unwanted,
}

impl Broken {
    pub(super) fn server(error: &dyn std::error::Error) -> Broken {
        Broken::Server(super::super::connect::reason(error))
    }
}

/// Answers, or says why not.
pub(super) async fn replay(
    reader: &Reader,
    log: &Log,
    wanted: Wanted,
    parts: mpsc::Sender<Part>,
) -> Result<(), Broken> {
    let _turn = reader.requests.acquire().await.map_err(|_| Broken::Away)?;
    let session = reader.sessions.borrow().clone().ok_or(Broken::Away)?;
    let stream = session.context.get_stream_no_info(&log.name).await;
    let stream = stream.map_err(|error| Broken::server(&error))?;
    let info = stream.get_info().await.map_err(|error| Broken::server(&error))?;
    if super::follow::created(&info) != log.created() {
        return Err(Broken::OtherLog);
    }
    let start_seq = wanted.known.start_seq();
    let (from, epoch) = match wanted.known.begin(BusSeq(info.state.first_sequence)) {
        Some(start) => {
            parts.send(Part::Continues(start.cursor)).await.map_err(|_| Broken::Unwanted)?;
            (start.from, start.cursor.epoch)
        }
        None => match locate(&stream, &info, &wanted.subject, (None, start_seq)).await {
            Ok(Located::From { at, epoch }) => (at, epoch),
            Ok(Located::Nothing) => {
                whole(newest_at_leader(&stream, &wanted.subject).await?, (0, u64::MAX))?;
                // A log that never had anything is at its end; one that had is not.
                let nothing = if start_seq == Seq(0) { Part::End(None) } else { Part::Truncated };
                return parts.send(nothing).await.map_err(|_| Broken::Unwanted);
            }
            Err(error) => return Err(Broken::server(&error)),
        },
    };
    let through = BusSeq(info.state.last_sequence);
    let mut range = Range {
        client: &session.client,
        stream: &stream,
        name: &log.name,
        subject: &wanted.subject,
        next: from.0.max(info.state.first_sequence).max(1),
        last: through.0,
        answer: Answer {
            replica: &wanted.replica,
            metrics: &wanted.metrics,
            epoch,
            window: Reorder::new(WINDOW),
            out: Vec::new(),
            run: Run::default(),
            parts: &parts,
        },
    };
    let read = tokio::select! {
        read = range.read() => read,
        () = session.lost.cancelled() => Err(Broken::Away),
    };
    // What came before it broke off need not be asked for again.
    range.answer.send().await?;
    read?;
    let rest = (range.next, range.last);
    range.answer.flush().await?;
    whole(newest_at_leader(&stream, &wanted.subject).await?, rest)?;
    parts.send(Part::End(Some(through))).await.map_err(|_| Broken::Unwanted)
}

/// The place of a replica's newest message as the stream's leader has it. Everything else is read
/// from whichever copy answers, and one that lags ends early without knowing it.
async fn newest_at_leader(stream: &Handle, subject: &str) -> Result<Option<u64>, Broken> {
    match stream.get_last_raw_message_by_subject(subject).await {
        Ok(message) => Ok(Some(message.sequence)),
        Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
        Err(error) => Err(Broken::server(&error)),
    }
}

/// Refuses an answer that ended before `next` although the newest message lies in `next..=last`.
fn whole(newest: Option<u64>, (next, last): (u64, u64)) -> Result<(), Broken> {
    match newest {
        Some(newest) if (next..=last).contains(&newest) => {
            Err(Broken::Server("a copy of the stream lags behind its leader".to_owned()))
        }
        Some(_) | None => Ok(()),
    }
}

/// The messages of one replica between two places of a stream.
struct Range<'a> {
    client: &'a Client,
    stream: &'a Handle,
    name: &'a str,
    subject: &'a str,
    next: u64,
    last: u64,
    answer: Answer<'a>,
}

impl Range<'_> {
    async fn read(&mut self) -> Result<(), Broken> {
        if self.next > self.last {
            return Ok(());
        }
        // Older servers answer the first message alone and never say that it was all.
        if self.client.is_server_compatible(2, 11, 0) {
            for _ in 0..REQUESTS_MAX {
                if self.batch().await? == 0 {
                    return Ok(());
                }
            }
        }
        self.consume().await
    }

    /// One request; returns how many messages are left behind it.
    async fn batch(&mut self) -> Result<u64, Broken> {
        let inbox = self.client.new_inbox();
        let subscribed = self.client.subscribe(inbox.clone()).await;
        let mut answers = subscribed.map_err(|error| Broken::server(&error))?;
        // A strict server refuses fields that it does not know.
        let request = serde_json::json!({
            "seq": self.next,
            "batch": BUS_BATCH_MESSAGES,
            "max_bytes": BUS_BATCH_BYTES,
            "next_by_subj": self.subject,
        });
        let api = format!("$JS.API.DIRECT.GET.{}", self.name);
        let payload = Bytes::from(request.to_string());
        let asked = self.client.publish_with_reply(api, inbox, payload).await;
        asked.map_err(|error| Broken::server(&error))?;
        loop {
            let answer = self.answer.next_of(&mut answers, BUS_ACK_TIMEOUT).await?;
            let Ok(Some(message)) = answer else {
                return Err(Broken::Server("no answer to a request for messages".to_owned()));
            };
            let number = |name: &str| -> Option<u64> {
                message.headers.as_ref()?.get(name)?.as_str().parse().ok()
            };
            match message.status.map(|status| status.as_u16()) {
                None => (),
                Some(204) => {
                    let pending = number("Nats-Num-Pending");
                    return pending.ok_or_else(|| {
                        Broken::Server("an end that does not say what is left".to_owned())
                    });
                }
                Some(404) => return Ok(0),
                Some(status) => {
                    return Err(Broken::Server(format!(
                        "status {status} for a request for messages"
                    )));
                }
            }
            let Some(at) = number("Nats-Sequence") else {
                return Err(Broken::Server("a message without its number".to_owned()));
            };
            if at > self.last {
                return Ok(0);
            }
            self.next = at + 1;
            self.answer.take(BusSeq(at), &message).await?;
        }
    }

    async fn consume(&mut self) -> Result<(), Broken> {
        let config = pull::OrderedConfig {
            filter_subject: self.subject.to_owned(),
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: self.next },
            ..pull::OrderedConfig::default()
        };
        let made = self.stream.create_consumer(config).await;
        let consumer = made.map_err(|error| Broken::server(&error))?;
        let name = consumer.cached_info().name.clone();
        let read = if consumer.cached_info().num_pending == 0 {
            Ok(())
        } else {
            self.consume_from(consumer).await
        };
        // It would otherwise stay on the server for half a minute.
        drop(self.stream.delete_consumer(&name).await);
        read
    }

    async fn consume_from(
        &mut self,
        consumer: async_nats::jetstream::consumer::Consumer<pull::OrderedConfig>,
    ) -> Result<(), Broken> {
        let messages = consumer.messages().await;
        let mut messages = messages.map_err(|error| Broken::server(&error))?;
        loop {
            let next = self.answer.next_of(&mut messages, CONSUMER_SILENCE).await?;
            let message = match next {
                Ok(Some(Ok(message))) => message,
                Ok(Some(Err(error))) => return Err(Broken::server(&error)),
                Ok(None) => return Err(Broken::Server("the consumer ended".to_owned())),
                Err(_) => return Err(Broken::Server("the consumer brings nothing".to_owned())),
            };
            let Ok(info) = message.info() else {
                return Err(Broken::Server("a message without its number".to_owned()));
            };
            let (at, pending) = (info.stream_sequence, info.pending);
            if at <= self.last {
                self.next = at.saturating_add(1);
                self.answer.take(BusSeq(at), &message).await?;
            }
            if at >= self.last || pending == 0 {
                return Ok(());
            }
        }
    }
}

/// What goes to the source, in the order of the log.
struct Answer<'a> {
    replica: &'a Replica,
    metrics: &'a BusReadMetrics,
    /// Older lives are over: what is left of them on the stream is of no use to anybody.
    epoch: Epoch,
    window: Reorder<(Batch, BusSeq, Trust)>,
    out: Vec<(Batch, BusSeq, Trust)>,
    run: Run,
    parts: &'a mpsc::Sender<Part>,
}

/// What is handed over together.
#[derive(Default)]
struct Run {
    parts: Vec<Part>,
    bytes: u64,
}

impl Answer<'_> {
    async fn take(&mut self, at: BusSeq, message: &Message) -> Result<(), Broken> {
        let place = || message.headers.as_ref().and_then(place_of);
        let batch = match read(self.replica, &message.payload, place) {
            Read::Batch(batch, trust) => Some((batch, trust)),
            // What a bridge believed then. What it believes now is in its heartbeat.
            Read::Said(_) => None,
            Read::Not(batch, why) => {
                self.metrics.unreadable(why.as_str());
                batch.map(|batch| (batch, Trust::None))
            }
        };
        let Some((batch, trust)) = batch.filter(|(batch, _)| batch.epoch >= Some(self.epoch))
        else {
            return Ok(());
        };
        // Only its bounds release what waits: an answer is read as fast as it comes.
        self.window.push(Tick(0), Place::of(&batch), (batch, at, trust), &mut self.out);
        self.released();
        if self.run.bytes >= RUN_BYTES { self.send().await } else { Ok(()) }
    }

    /// What comes next of `messages`. Before it waits it hands over what it has.
    async fn next_of<S: Stream + Unpin>(
        &mut self,
        messages: &mut S,
        deadline: Duration,
    ) -> Result<Result<Option<S::Item>, Elapsed>, Broken> {
        if let Some(at_once) = messages.next().now_or_never() {
            return Ok(Ok(at_once));
        }
        self.send().await?;
        Ok(tokio::time::timeout(deadline, messages.next()).await)
    }

    async fn flush(&mut self) -> Result<(), Broken> {
        self.window.flush(&mut self.out);
        self.released();
        self.send().await
    }

    fn released(&mut self) {
        for (batch, at, trust) in self.out.drain(..) {
            self.run.bytes += u64::from(batch.bytes);
            self.run.parts.push(Part::Batch(batch, at, trust));
        }
    }

    async fn send(&mut self) -> Result<(), Broken> {
        let Run { parts, .. } = std::mem::take(&mut self.run);
        if parts.is_empty() {
            return Ok(());
        }
        self.parts.send(Part::Run(parts)).await.map_err(|_| Broken::Unwanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_before_the_newest_message_is_no_end() {
        for (newest, rest, is_whole) in [
            (None, (5, 9), true),
            (Some(4), (5, 9), true),
            (Some(5), (5, 9), false),
            (Some(9), (5, 9), false),
            // Stored since it was asked.
            (Some(10), (5, 9), true),
            // All was read.
            (Some(9), (10, 9), true),
        ] {
            assert_eq!(whole(newest, rest).is_ok(), is_whole, "{newest:?} {rest:?}");
        }
    }
}
