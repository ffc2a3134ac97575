//! Messages as they lie on the streams, from some place on.

use std::{collections::BTreeSet, time::Duration};

use async_nats::{datetime, jetstream::consumer::DeliverPolicy};
use futures::{
    StreamExt,
    stream::{BoxStream, SelectAll},
};
use kvbridge_schemas::{Epoch, Replica, Seq, subject};
use tokio::time::{Interval, MissedTickBehavior};

use super::{BrowseError, Browser, Seen, messages};
use crate::{
    bus::nats::{
        connect::reason,
        reader::{Located, locate},
    },
    clock::{Clock, millis},
};

/// How often streams are looked for that were not there before.
const LOOK_FOR_STREAMS: Duration = Duration::from_secs(1);

/// Where to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// With what is stored from now on.
    Now,
    /// With what was stored in this time.
    Since(Duration),
    /// With that seq of the newest life, or with the oldest that is left of it.
    Seq(Seq),
}

/// Messages of all streams, or of one replica, as they come.
pub struct Following<'a> {
    browser: &'a Browser,
    replica: Option<Replica>,
    begin: Begin,
    /// Messages before these are not wanted.
    floor: Option<(Epoch, Seq)>,
    known: BTreeSet<String>,
    messages: SelectAll<BoxStream<'static, Result<Seen, BrowseError>>>,
    looks: Interval,
}

impl Browser {
    /// Follows one replica, or all of them.
    pub async fn follow(
        &self,
        replica: Option<Replica>,
        begin: Begin,
    ) -> Result<Following<'_>, BrowseError> {
        let mut looks = tokio::time::interval(LOOK_FOR_STREAMS);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (known, messages) = (BTreeSet::new(), SelectAll::new());
        let mut following =
            Following { browser: self, replica, begin, floor: None, known, messages, looks };
        following.look().await?;
        // What comes up later is wanted from its first message on.
        if following.begin == Begin::Now {
            following.begin = Begin::Since(LOOK_FOR_STREAMS * 2);
        }
        Ok(following)
    }
}

impl Following<'_> {
    /// Whether there is a stream to follow yet.
    pub fn has_streams(&self) -> bool {
        !self.known.is_empty()
    }

    /// The next message. Cancel-safe.
    pub async fn next(&mut self) -> Result<Seen, BrowseError> {
        loop {
            tokio::select! {
                () = self.browser.session.lost.cancelled() => return Err(BrowseError::Lost),
                Some(seen) = self.messages.next() => {
                    let seen = seen?;
                    if seen.place() >= self.floor {
                        return Ok(seen);
                    }
                }
                _ = self.looks.tick() => self.look().await?,
            }
        }
    }

    async fn look(&mut self) -> Result<(), BrowseError> {
        let plan = &self.browser.plan;
        let mut names = self.browser.stream_names().await?;
        if let Some(replica) = &self.replica {
            names.retain(|name| *name == plan.name_of(replica));
        }
        for name in names {
            if !self.known.contains(&name) {
                self.begin(&name).await?;
                self.known.insert(name);
            }
        }
        Ok(())
    }

    async fn begin(&mut self, name: &str) -> Result<(), BrowseError> {
        let stream = self.browser.stream(name).await?;
        let subject = self.replica.as_ref().map(|replica| subject::hint(&replica.key()));
        let policy = match (self.begin, &subject) {
            (Begin::Now, _) => DeliverPolicy::New,
            (Begin::Since(span), _) => since(span),
            (Begin::Seq(_), None) => DeliverPolicy::All,
            (Begin::Seq(seq), Some(subject)) => {
                let failed =
                    |reason| BrowseError::Server { what: format!("stream {name}"), reason };
                let info = stream.get_info().await.map_err(|error| failed(reason(&error)))?;
                match locate(&stream, &info, subject, (None, seq)).await {
                    Ok(Located::From { at, epoch }) => {
                        self.floor = Some((epoch, seq));
                        DeliverPolicy::ByStartSequence { start_sequence: at.0 }
                    }
                    Ok(Located::Nothing) => DeliverPolicy::All,
                    Err(error) => return Err(failed(reason(&error))),
                }
            }
        };
        self.messages.push(messages(&stream, name, subject, policy).await?);
        Ok(())
    }
}

fn since(span: Duration) -> DeliverPolicy {
    let span_ms = millis(span);
    let at_ms = Clock::unix_ms().saturating_sub(span_ms);
    // Nothing of ours is older than what a date can say.
    datetime::from_nanos(i128::from(at_ms) * 1_000_000)
        .map_or(DeliverPolicy::All, |start_time| DeliverPolicy::ByStartTime { start_time })
}
