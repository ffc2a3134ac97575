//! A bus as it is, for people and programs that ask once: nothing here keeps a view.
//!
//! - `following`: messages as they lie on the streams, from some place on.
//! - `replaying`: the seqs of one life, and why those that are missing are.
//! - `view`: a stored view; `standing`: everything at a glance.

mod following;
mod replaying;
mod standing;
mod view;

use std::sync::Arc;

use async_nats::{
    HeaderMap,
    jetstream::consumer::{DeliverPolicy, pull},
};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use kvbridge_schemas::{BusSeq, Envelope, Epoch, Replica, ReplicaKey, Seq, subject};
use tokio_util::sync::CancellationToken;

pub use self::{
    following::{Begin, Following},
    replaying::{Item, Replaying, Wanted},
    standing::{BridgeStanding, LifeStanding, ReplicaStanding, Standing},
    view::{At, StoredView},
};
use super::{
    connect::{ConnectFailure, reason},
    reader::{Handle, Unreadable, envelope_of, place_of},
    session::{self, Session},
    streams::{Plan, StreamFailure},
};
use crate::config::NatsConfig;

/// One connection to look at a bus with. It ends when the connection does.
pub struct Browser {
    session: Session,
    plan: Plan,
}

/// Why a bus could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum BrowseError {
    /// No connection.
    #[error(transparent)]
    Connect(#[from] ConnectFailure),
    /// A stream could not be looked at.
    #[error(transparent)]
    Stream(StreamFailure),
    /// It was lost.
    #[error("the connection to the server was lost")]
    Lost,
    /// The server did not answer, or refused.
    #[error("{what}: {reason}")]
    Server {
        /// What was asked for.
        what: String,
        /// In the server's words.
        reason: String,
    },
    /// The stream holds nothing of a replica, or of one life of it.
    #[error("stream {stream} holds nothing of {what}")]
    Nothing {
        /// Which stream.
        stream: String,
        /// Of what.
        what: String,
    },
    /// No view of a replica is stored.
    #[error("no view of {key} is stored on the bus")]
    NoView {
        /// Whose.
        key: ReplicaKey,
    },
    /// No bridge gave a fresh view.
    #[error("no bridge gives a view of {key} now: {reason}")]
    NoFreshView {
        /// Whose.
        key: ReplicaKey,
        /// Why.
        reason: &'static str,
    },
}

impl BrowseError {
    fn server(what: impl Into<String>, error: &dyn std::error::Error) -> BrowseError {
        BrowseError::Server { what: what.into(), reason: reason(error) }
    }
}

/// A message as a stream has it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Which stream.
    pub stream: Arc<str>,
    /// Its number there.
    pub at: BusSeq,
    /// Its subject.
    pub subject: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its bytes.
    pub payload: Bytes,
    /// How many came behind it so far.
    pending: u64,
}

impl Seen {
    /// Whose envelope it should be.
    pub fn replica(&self) -> Option<Replica> {
        subject::parse_hint(&self.subject).ok()
    }

    /// What its headers say of its place.
    pub fn place(&self) -> Option<(Epoch, Seq)> {
        place_of(&self.headers)
    }

    /// What it says.
    pub fn envelope(&self) -> Result<Envelope, Unreadable> {
        envelope_of(&self.replica().ok_or(Unreadable::Malformed)?, &self.payload)
    }
}

impl Browser {
    /// Connects.
    pub async fn open(config: &NatsConfig) -> Result<Browser, BrowseError> {
        let session = session::open(config, &CancellationToken::new()).await?;
        Ok(Browser { session, plan: Plan::new(&config.streams) })
    }

    /// The streams on the server that are ours, by name.
    async fn stream_names(&self) -> Result<Vec<String>, BrowseError> {
        let named = self.session.context.stream_names().try_collect::<Vec<String>>().await;
        let mut names = named.map_err(|error| BrowseError::server("names of streams", &error))?;
        names.retain(|name| self.plan.is_ours(name));
        names.sort();
        Ok(names)
    }

    async fn stream(&self, name: &str) -> Result<Handle, BrowseError> {
        let stream = self.session.context.get_stream_no_info(name).await;
        stream.map_err(|error| BrowseError::server(format!("stream {name}"), &error))
    }

    /// Publishes a message to a subject of somebody else's, with what it carried. Under the same id
    /// a second time would be no second time.
    pub async fn republish(&self, subject: &str, seen: &Seen) -> Result<(), BrowseError> {
        let mut headers = HeaderMap::new();
        for name in ["Kvbridge-Schema", "Kvbridge-Epoch", "Kvbridge-Seq"] {
            if let Some(value) = seen.headers.get(name) {
                headers.insert(name, value.clone());
            }
        }
        let payload = seen.payload.clone();
        let sent = self.session.client.publish_with_headers(subject.to_owned(), headers, payload);
        sent.await.map_err(|error| BrowseError::server(subject, &error))
    }

    /// Returns when the server has everything that was published.
    pub async fn flush(&self) -> Result<(), BrowseError> {
        let flushed = tokio::select! {
            () = self.session.lost.cancelled() => return Err(BrowseError::Lost),
            flushed = self.session.client.flush() => flushed,
        };
        flushed.map_err(|error| BrowseError::server("flush", &error))
    }
}

/// The messages of a stream with these subjects, from some place on, for ever.
async fn messages(
    stream: &Handle,
    name: &str,
    subjects: Option<String>,
    deliver_policy: DeliverPolicy,
) -> Result<BoxStream<'static, Result<Seen, BrowseError>>, BrowseError> {
    let failed =
        |error: &dyn std::error::Error| BrowseError::server(format!("stream {name}"), error);
    let config = pull::OrderedConfig {
        filter_subject: subjects.unwrap_or_default(),
        deliver_policy,
        ..pull::OrderedConfig::default()
    };
    let consumer = stream.create_consumer(config).await.map_err(|error| failed(&error))?;
    let messages = consumer.messages().await.map_err(|error| failed(&error))?;
    let name: Arc<str> = Arc::from(name);
    Ok(messages.map(move |message| seen(&name, message)).boxed())
}

fn seen(
    name: &Arc<str>,
    message: Result<async_nats::jetstream::Message, impl std::error::Error>,
) -> Result<Seen, BrowseError> {
    let what = || format!("stream {name}");
    let message = message.map_err(|error| BrowseError::server(what(), &error))?;
    let (at, pending) = match message.info() {
        Ok(info) => (BusSeq(info.stream_sequence), info.pending),
        Err(_) => {
            let reason = "a message without its number".to_owned();
            return Err(BrowseError::Server { what: what(), reason });
        }
    };
    let (message, _) = message.split();
    Ok(Seen {
        stream: Arc::clone(name),
        at,
        subject: message.subject.to_string(),
        headers: message.headers.unwrap_or_default(),
        payload: message.payload,
        pending,
    })
}
