//! The live path: which streams and replicas there are, and everything that is stored from now on.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use async_nats::jetstream::{
    Message,
    consumer::{DeliverPolicy, pull},
    stream::Info,
};
use futures::{StreamExt, TryStreamExt};
use kvbridge_schemas::{BusSeq, EngineKind, Replica, subject};
use tokio::{task::JoinSet, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    Log, Reader,
    inbox::Stored,
    message::{engine_of, place_of},
    replay::Broken,
};
use crate::{
    bus::{
        Found,
        nats::{session::Session, snapshots::Snapshots},
    },
    config::limits::{BUS_READ_STREAMS, BUS_REPLICA_GRACE_MS, BUS_REPLICAS_MAX},
    shared_log::{LogEnds, Pointer},
    telemetry,
};

/// How often streams are looked for, and how soon a stream that is gone is tried again.
const LOOK_FOR_STREAMS: Duration = Duration::from_secs(1);

/// How often a stream is asked whether it is still the same, and which subjects it holds.
const LOOK_AT_STREAM: Duration = Duration::from_secs(2);

/// When a stream was made, unix ns.
pub(in crate::bus::nats) fn created(info: &Info) -> u64 {
    u64::try_from(info.created.unix_timestamp_nanos()).unwrap_or(0)
}

/// What a stream says of itself.
pub(in crate::bus::nats) fn ends(info: &Info) -> LogEnds {
    let (first, last) = (info.state.first_sequence, info.state.last_sequence);
    LogEnds { created: created(info), first: BusSeq(first), last: BusSeq(last) }
}

/// Follows every stream until stopped.
pub(in crate::bus::nats) async fn run(reader: Arc<Reader>, stop: CancellationToken) {
    let mut sessions = reader.sessions.clone();
    loop {
        let session = sessions.borrow_and_update().clone();
        tokio::select! {
            () = stop.cancelled() => return,
            () = follow_all(&reader, session) => (),
            changed = sessions.changed() => if changed.is_err() { return },
        }
    }
}

/// Returns when the session is over.
async fn follow_all(reader: &Arc<Reader>, session: Option<Session>) {
    let Some(session) = session else { return std::future::pending().await };
    // Dropped with this call, and each of them says Detached when it is.
    let mut streams = JoinSet::new();
    let mut known = BTreeSet::new();
    loop {
        match stream_names(reader, &session).await {
            Ok(names) => {
                for name in names {
                    if known.len() >= BUS_READ_STREAMS {
                        telemetry::bus_read_refused("stream");
                        break;
                    }
                    if known.insert(name.clone()) {
                        let (reader, session) = (Arc::clone(reader), session.clone());
                        streams.spawn(async move { follow(&reader, &session, &name).await });
                    }
                }
            }
            Err(error) => debug!(%error, "streams not listed"),
        }
        tokio::select! {
            () = session.lost.cancelled() => return,
            () = tokio::time::sleep(LOOK_FOR_STREAMS) => (),
        }
    }
}

async fn stream_names(reader: &Reader, session: &Session) -> Result<Vec<String>, Broken> {
    let mut names = session.context.stream_names();
    let mut ours = Vec::new();
    while let Some(name) = names.try_next().await.map_err(|error| Broken::server(&error))? {
        if reader.plan.is_ours(&name) {
            ours.push(name);
        }
    }
    Ok(ours)
}

/// Follows one stream for as long as the connection lasts, also one that goes and comes back.
async fn follow(reader: &Reader, session: &Session, name: &str) {
    let log = reader.log(name);
    let mut said = false;
    loop {
        let Err(error) = follow_once(reader, session, &log).await;
        if session.lost.is_cancelled() {
            return;
        }
        if !std::mem::replace(&mut said, true) {
            warn!(stream = name, %error, "the stream cannot be followed, and is tried again");
        }
        tokio::time::sleep(LOOK_FOR_STREAMS).await;
    }
}

/// Tells all replicas that the live path broke, in whatever way this ends.
struct Attachment<'a>(&'a Log);

impl Drop for Attachment<'_> {
    fn drop(&mut self) {
        self.0.detach();
    }
}

async fn follow_once(
    reader: &Reader,
    session: &Session,
    log: &Log,
) -> Result<std::convert::Infallible, Broken> {
    let stream = session.context.get_stream(&log.name).await;
    let stream = stream.map_err(|error| Broken::server(&error))?;
    let info = stream.cached_info();
    let join = log.join_at(ends(info));
    let from = join.joined.from;
    let config = pull::OrderedConfig {
        deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: from.0 },
        ..pull::OrderedConfig::default()
    };
    let made = stream.create_consumer(config).await;
    let consumer = made.map_err(|error| Broken::server(&error))?;
    let messages = consumer.messages().await;
    let mut messages = messages.map_err(|error| Broken::server(&error))?;
    info!(stream = %log.name, from = from.0, created = %info.created, "bus stream followed");
    log.attach(join);
    let _attached = Attachment(log);
    look_for_snapshots(reader, session, log).await;
    let mut looks = tokio::time::interval(LOOK_AT_STREAM);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = session.lost.cancelled() => return Err(Broken::Away),
            message = messages.next() => match message {
                Some(Ok(message)) => take(reader, log, message)?,
                // The client would make its consumer again by itself, a quarter of a minute later.
                Some(Err(error)) => return Err(Broken::server(&error)),
                None => return Err(Broken::Server("the consumer ended".to_owned())),
            },
            _ = looks.tick() => {
                let info = stream.get_info().await.map_err(|error| Broken::server(&error))?;
                if created(&info) != log.created() || info.state.last_sequence < log.through().0 {
                    return Err(Broken::OtherLog);
                }
                look_for_replicas(reader, session, log).await?;
            }
        }
    }
}

fn take(reader: &Reader, log: &Log, message: Message) -> Result<(), Broken> {
    let Ok(info) = message.info() else {
        return Err(Broken::Server("a message without its number".to_owned()));
    };
    let at = BusSeq(info.stream_sequence);
    let place = message.headers.as_ref().and_then(place_of);
    let (message, _) = message.split();
    let subject = message.subject.as_str();
    log.comes(at);
    match log.inbox(subject) {
        Some(inbox) => {
            inbox.message(Stored { at, place, payload: message.payload });
        }
        None => reader.appeared(log, subject, &message.payload),
    }
    log.set_through(at);
    Ok(())
}

/// Replicas whose messages came before we did.
async fn look_for_replicas(reader: &Reader, session: &Session, log: &Log) -> Result<(), Broken> {
    let stream = session.context.get_stream_no_info(&log.name).await;
    let stream = stream.map_err(|error| Broken::server(&error))?;
    let subjects = stream.info_with_subjects(subject::HINT_ALL).await;
    let mut subjects = subjects.map_err(|error| Broken::server(&error))?;
    let mut present = BTreeSet::new();
    while let Some((subject, _)) =
        subjects.try_next().await.map_err(|error| Broken::server(&error))?
    {
        // Whatever else lies here must not take the places of what is read.
        if reader.reads(&subject).is_none() && log.inbox(&subject).is_none() {
            continue;
        }
        if present.len() >= BUS_REPLICAS_MAX {
            telemetry::bus_read_refused("replica");
            break;
        }
        present.insert(subject);
    }
    for subject in present.iter().filter(|subject| reader.is_new(subject)) {
        if let Ok(newest) = stream.direct_get_last_for_subject(subject.as_str()).await {
            reader.appeared(log, subject, &newest.payload);
        }
    }
    vanished(reader, session, log, &present).await;
    Ok(())
}

/// Replicas that nobody publishes any more: nothing of them is left on the stream, and no bridge
/// has said for as long as messages are kept that it still leads there.
async fn vanished(reader: &Reader, session: &Session, log: &Log, present: &BTreeSet<String>) {
    let now = reader.clock.now();
    for (subject, since) in log.missing(present, now) {
        if now < since.plus(BUS_REPLICA_GRACE_MS) {
            continue;
        }
        let Ok(replica) = subject::parse_hint(&subject) else { continue };
        let Ok(store) = Snapshots::open(&session.context, &reader.plan).await else { continue };
        let led = store.led_within(&replica.key(), reader.config.streams.retention).await;
        if led.is_ok_and(|led| !led) && reader.found.try_send(Found::Vanished { replica }).is_ok() {
            reader.known().remove(&subject);
        }
    }
}

/// Replicas of which only a snapshot is left on the bus.
async fn look_for_snapshots(reader: &Reader, session: &Session, log: &Log) {
    let Ok(store) = Snapshots::open(&session.context, &reader.plan).await else { return };
    let pointers = store.pointers(BUS_REPLICAS_MAX).await.unwrap_or_default();
    for pointer in pointers {
        let Some(replica) = Pointer::replica_of(&pointer.object) else { continue };
        if reader.plan.name_of(&replica) == log.name {
            reader.told(&replica, Some(pointer.engine));
        }
    }
}

impl Reader {
    fn is_new(&self, subject: &str) -> bool {
        !self.known().contains(subject)
    }

    /// The replica of a subject, if this reader is for it.
    fn reads(&self, subject: &str) -> Option<Replica> {
        let replica = subject::parse_hint(subject).ok()?;
        self.config.reads(&replica.model).then_some(replica)
    }

    /// Somebody publishes under a subject that is not read.
    fn appeared(&self, log: &Log, subject: &str, payload: &[u8]) {
        match self.reads(subject) {
            Some(replica) if self.is_new(subject) => self.told(&replica, engine_of(payload)),
            Some(_) => (),
            None => {
                // In our stream, and made by no bridge: counted once, then left alone.
                if log.is_first_of(subject) && subject::parse_hint(subject).is_err() {
                    telemetry::bus_read_refused("subject");
                }
            }
        }
    }

    /// Tells of a replica, once.
    fn told(&self, replica: &Replica, engine: Option<EngineKind>) {
        let mut known = self.known();
        let subject = subject::hint(&replica.key());
        if known.contains(&subject) || !self.config.reads(&replica.model) {
            return;
        }
        if known.len() >= BUS_REPLICAS_MAX {
            return telemetry::bus_read_refused("replica");
        }
        let found = Found::Appeared { replica: replica.clone(), engine };
        // When nobody has time for it now, its next message tells of it again.
        if self.found.try_send(found).is_ok() {
            known.insert(subject);
        }
    }
}
