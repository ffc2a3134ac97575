//! GET /v1/events: what is applied from now on, as server-sent events. Token ids show as a
//! count unless `?tokens=true` asks for them and the token has the scope.
//!
//! First comes a `standing` of every replica, so that a reader knows where it begins. After it
//! `envelope` carries an envelope, `standing` a replica whose trust, reason or epoch changed,
//! `removed` one that the configuration no longer names, `lagged` how many of these the reader was
//! too slow for. A reader is never waited for.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::State,
    http::Uri,
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use kvbridge_schemas::{ReplicaKey, codec};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, broadcast, broadcast::error::RecvError};

use super::{Api, Grant, Problem, ReplicaJson, Shared, json_bytes, replicas::NameJson};
use crate::{
    clock::Clock,
    pipeline::{FleetEvent, ReplicaHandle},
};

/// A comment line in silence. Shorter: traffic for nothing. Longer: proxies cut the connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

#[derive(Serialize)]
struct Lagged {
    missed: u64,
}

/// A replica that is read no more.
#[derive(Serialize)]
struct RemovedJson<'a> {
    key: &'a str,
    replica: NameJson<'a>,
}

/// One reader; the permit is given back when it goes.
struct Reader {
    api: Arc<Shared>,
    /// How replicas stood when the reader came.
    first: std::vec::IntoIter<FleetEvent>,
    events: broadcast::Receiver<FleetEvent>,
    grant: Arc<Grant>,
    shows_tokens: bool,
    _permit: OwnedSemaphorePermit,
}

pub(super) async fn stream(
    State(Api(api)): State<Api>,
    Extension(grant): Extension<Arc<Grant>>,
    uri: Uri,
) -> Result<Response, Problem> {
    let shows_tokens = grant.shows_tokens(uri.query())?;
    let permit = Arc::clone(&api.event_readers).try_acquire_owned().map_err(|_| {
        api.metrics.readers.refused.increment(1);
        Problem::too_many_readers(api.limits.events_reader_count_max)
    })?;
    // Subscribed before the look: a change in between is told twice, never lost.
    let events = api.pipeline.fleet.events();
    let standing = |(key, replica): (ReplicaKey, ReplicaHandle)| {
        let status = replica.status.borrow().clone();
        FleetEvent::Standing(key, replica.replica, status)
    };
    let first: Vec<FleetEvent> = api.pipeline.fleet.replicas().map(standing).collect();
    let first = first.into_iter();
    let reader = Reader { api, first, events, grant, shows_tokens, _permit: permit };
    let events = futures::stream::unfold(reader, async |mut reader| {
        let event = reader.next().await?;
        Some((Ok::<_, Infallible>(event), reader))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

impl Reader {
    async fn next(&mut self) -> Option<Event> {
        loop {
            let event = match self.first.next() {
                Some(first) => Ok(first),
                None => tokio::select! {
                    () = self.api.stop.cancelled() => return None,
                    received = self.events.recv() => received,
                },
            };
            let granted = self.api.access.now().still_grants(&self.grant);
            if !granted || self.grant.expired(Clock::unix_ms()) {
                return None;
            }
            match event {
                Ok(event) if !self.grant.sees(model(&event)) => (),
                Ok(event) => return Some(encode(event, self.shows_tokens)),
                Err(RecvError::Lagged(missed)) => {
                    self.api.metrics.readers.lagged.increment(missed);
                    let json = json_bytes(&Lagged { missed });
                    return Some(Event::default().event("lagged").data(text(json)));
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

fn model(event: &FleetEvent) -> &str {
    match event {
        FleetEvent::Applied(envelope) => &envelope.replica.model,
        FleetEvent::Standing(_, replica, _) | FleetEvent::Removed(_, replica) => &replica.model,
    }
}

fn encode(event: FleetEvent, shows_tokens: bool) -> Event {
    match event {
        FleetEvent::Applied(envelope) => {
            let json = if shows_tokens {
                codec::to_json_string(&*envelope)
            } else {
                codec::to_json_redacted_string(&*envelope)
            };
            Event::default().event("envelope").data(json)
        }
        FleetEvent::Standing(key, replica, status) => {
            let json = json_bytes(&ReplicaJson::of(&key, &replica, &status));
            Event::default().event("standing").data(text(json))
        }
        FleetEvent::Removed(key, replica) => {
            let json =
                json_bytes(&RemovedJson { key: key.as_str(), replica: NameJson::of(&replica) });
            Event::default().event("removed").data(text(json))
        }
    }
}

fn text(json: Vec<u8>) -> String {
    String::from_utf8(json).expect("JSON is UTF-8")
}
