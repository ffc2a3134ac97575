//! The seqs of one life, in order, and why those that are missing are.

use std::{collections::VecDeque, time::Duration};

use async_nats::jetstream::consumer::DeliverPolicy;
use futures::{StreamExt, stream::BoxStream};
use kvbridge_schemas::{Envelope, Epoch, Replica, Seq, subject};

use super::{BrowseError, Browser, Seen, messages};
use crate::{
    bus::nats::reader::{Located, Unreadable, WINDOW, locate},
    recovery::Tick,
    shared_log::{Missing, Part, Place, Reorder, Stretch, Why},
};

/// How long the server may bring nothing while something is left.
const SILENCE: Duration = Duration::from_secs(5);

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Of which replica.
    pub replica: Replica,
    /// Of which life; absent = the newest on the log.
    pub epoch: Option<Epoch>,
    /// The first seq.
    pub from: Seq,
    /// The last one.
    pub to: Seq,
}

/// One thing that a stretch holds, or does not.
#[derive(Clone, Debug)]
pub enum Item {
    /// A message, and what it says.
    Message(Box<(Seen, Envelope)>),
    /// Seqs that are not there.
    Missing(Missing),
}

/// A message in the window.
struct Waiting {
    seen: Seen,
    seq: Seq,
    said: Result<Envelope, Unreadable>,
}

/// A stretch that is being read.
pub struct Replaying<'a> {
    browser: &'a Browser,
    messages: BoxStream<'static, Result<Seen, BrowseError>>,
    /// Which life.
    pub epoch: Epoch,
    /// The end of the stream when it was asked.
    last: u64,
    /// Messages read so far, wanted or not.
    pub read_count: u64,
    window: Reorder<Waiting>,
    stretch: Stretch,
    ready: VecDeque<Item>,
    ended: bool,
}

impl Browser {
    /// Begins to read a stretch.
    pub async fn replay(&self, wanted: Wanted) -> Result<Replaying<'_>, BrowseError> {
        let Wanted { replica, epoch, from, to } = wanted;
        let (key, name) = (replica.key(), self.plan.name_of(&replica));
        let failed =
            |error: &dyn std::error::Error| BrowseError::server(format!("stream {name}"), error);
        let stream = self.stream(&name).await?;
        let info = stream.get_info().await.map_err(|error| failed(&error))?;
        let subject = subject::hint(&key);
        let located = locate(&stream, &info, &subject, (epoch, from)).await;
        let Located::From { at, epoch } = located.map_err(|error| failed(&error))? else {
            return Err(BrowseError::Nothing { stream: name, what: key.to_string() });
        };
        let policy = DeliverPolicy::ByStartSequence { start_sequence: at.0 };
        Ok(Replaying {
            browser: self,
            messages: messages(&stream, &name, Some(subject), policy).await?,
            epoch,
            last: info.state.last_sequence,
            read_count: 0,
            window: Reorder::new(WINDOW),
            stretch: Stretch::new(from, to),
            ready: VecDeque::new(),
            ended: at.0 > info.state.last_sequence,
        })
    }
}

impl Replaying<'_> {
    /// What comes next; `None` behind the last.
    pub async fn next(&mut self) -> Result<Option<Item>, BrowseError> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Ok(Some(item));
            }
            if self.stretch.is_over() {
                return Ok(None);
            }
            if self.ended {
                self.end();
                continue;
            }
            let next = tokio::select! {
                () = self.browser.session.lost.cancelled() => return Err(BrowseError::Lost),
                next = tokio::time::timeout(SILENCE, self.messages.next()) => next,
            };
            match next {
                Ok(Some(seen)) => self.read(seen?),
                // All that is left was deleted while it was read.
                Ok(None) | Err(_) => self.ended = true,
            }
        }
    }

    fn read(&mut self, seen: Seen) {
        self.read_count += 1;
        self.ended = seen.at.0 >= self.last || seen.pending == 0;
        if seen.at.0 > self.last {
            return;
        }
        let said = seen.envelope();
        let headers = seen.place();
        let bytes = u32::try_from(seen.payload.len()).unwrap_or(u32::MAX);
        let place = match (&said, headers) {
            (Ok(envelope), _) => Place {
                epoch: envelope.epoch,
                seq: envelope.seq,
                span: envelope.span,
                is_reset: Why::of(envelope).is_some(),
                bytes,
            },
            (Err(_), Some((epoch, seq))) => Place { epoch, seq, span: 1, is_reset: false, bytes },
            // Not ours, in our stream.
            (Err(_), None) => return,
        };
        if place.epoch > self.epoch {
            // Its life is over, whatever else lies behind.
            self.ended = true;
        } else if place.epoch == self.epoch {
            let waiting = Waiting { seq: place.seq, seen, said };
            let mut out = Vec::new();
            self.window.push(Tick(0), place, waiting, &mut out);
            self.take(out);
        }
    }

    fn take(&mut self, out: Vec<Waiting>) {
        for Waiting { seen, seq, said } in out {
            let mut missing = Vec::new();
            let part = match &said {
                Ok(envelope) => {
                    let seqs = (envelope.seq, envelope.span);
                    self.stretch.take(seqs, Why::of(envelope), &mut missing)
                }
                Err(why) => {
                    let why = Why::Unreadable(why.as_str());
                    self.stretch.take((seq, 1), Some(why), &mut missing)
                }
            };
            self.ready.extend(missing.into_iter().map(Item::Missing));
            if let (Ok(envelope), Part::Inside) = (said, part) {
                self.ready.push_back(Item::Message(Box::new((seen, envelope))));
            }
        }
    }

    fn end(&mut self) {
        let mut out = Vec::new();
        self.window.flush(&mut out);
        self.take(out);
        let mut missing = Vec::new();
        self.stretch.end(&mut missing);
        self.ready.extend(missing.into_iter().map(Item::Missing));
    }
}
