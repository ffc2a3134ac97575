//! A stored view: the one that readers are sent to, or a fresh one.

use std::time::Duration;

use async_nats::jetstream::object_store::Object;
use kvbridge_schemas::{Replica, subject};

use super::{BrowseError, Browser};
use crate::{
    bus::nats::snapshots::{Snapshots, StoreFault},
    shared_log::Pointer,
};

/// How long a bridge may take to store a fresh view: a large one takes its time.
const FRESH_DEADLINE: Duration = Duration::from_secs(30);

/// Which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The one that readers are sent to.
    Latest,
    /// One that a bridge stores now.
    Now,
}

/// A stored view.
pub struct StoredView {
    /// What is said of it.
    pub pointer: Pointer,
    /// Its bytes: a checkpoint file.
    pub bytes: Object,
}

impl Browser {
    /// Finds a stored view.
    pub async fn view(&self, replica: &Replica, at: At) -> Result<StoredView, BrowseError> {
        let key = replica.key();
        let fault = |fault| match fault {
            StoreFault::Missing => BrowseError::NoView { key: key.clone() },
            StoreFault::Server(reason) => {
                BrowseError::Server { what: format!("view of {key}"), reason }
            }
        };
        let fresh = match at {
            At::Now => Some(self.fresh(replica).await?),
            At::Latest => None,
        };
        let store = Snapshots::open(&self.session.context, &self.plan).await.map_err(&fault)?;
        let pointer = match fresh {
            Some(pointer) => pointer,
            None => match store.pointer(&key).await.map_err(&fault)? {
                Some((pointer, _)) => pointer,
                None => return Err(BrowseError::NoView { key: key.clone() }),
            },
        };
        let bytes = store.get(&pointer.object).await.map_err(&fault)?;
        Ok(StoredView { pointer, bytes })
    }

    async fn fresh(&self, replica: &Replica) -> Result<Pointer, BrowseError> {
        let key = replica.key();
        let none = |reason| BrowseError::NoFreshView { key: key.clone(), reason };
        let asked = async_nats::Request::new().timeout(Some(FRESH_DEADLINE));
        let asked = self.session.client.send_request(subject::snapshot(&key), asked);
        let answer = asked.await.map_err(|error| match error.kind() {
            async_nats::RequestErrorKind::NoResponders => none("none publishes it"),
            async_nats::RequestErrorKind::TimedOut => none("no answer in time"),
            _ => BrowseError::server(format!("view of {key}"), &error),
        })?;
        let text = std::str::from_utf8(&answer.payload).unwrap_or_default();
        Pointer::parse(text).map_err(|_| match text {
            "busy" => none("it stores views for others: ask again"),
            _ => none("its own view may not be believed"),
        })
    }
}
