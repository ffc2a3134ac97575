//! One rank that publishes: its live stream, then its journal.

use std::{sync::Arc, time::Duration};

use kvbridge_adapters_api::Attempt;
use kvbridge_adapters_zmq::{
    Counters, LiveFrame, ReplayClient, ReplayFailure, ReplayPart, Subscriber, WireEvent,
    replay::ReplaySettings,
};
use kvbridge_schemas::Epoch;
use tokio::time::{sleep, timeout};

use crate::{
    config::{Limits, SourceConfig, limits},
    doctor::{JournalSight, ReplaySight, StreamSight},
    pipeline::{HashWatch, Message, registry},
};

/// How long a journal may take to answer everything: one of 10 000 batches takes seconds.
const JOURNAL_DEADLINE: Duration = Duration::from_secs(60);

/// A connection to where a rank publishes; `None` = none could be made.
pub(super) async fn attach(source: &SourceConfig) -> Option<Subscriber> {
    let settings = registry::subscription(source, &Limits::default()).ok()?;
    let mut subscriber = Subscriber::spawn(settings, Arc::new(Counters::default()));
    let attached = async {
        while let Some(event) = subscriber.next().await {
            if event == WireEvent::Attached {
                return true;
            }
        }
        false
    };
    let is_attached = timeout(limits::DISCOVERY_DEADLINE, attached).await.unwrap_or(false);
    is_attached.then_some(subscriber)
}

/// What a rank publishes in so much time.
pub(super) async fn hear(
    source: &SourceConfig,
    mut subscriber: Subscriber,
    listen: Duration,
) -> StreamSight {
    let mut heard = StreamSight { is_attached: true, ..StreamSight::default() };
    let mut watch = registry::hash_watch(source);
    let end = sleep(listen);
    tokio::pin!(end);
    loop {
        let event = tokio::select! {
            () = &mut end => break,
            event = subscriber.next() => event,
        };
        match event {
            Some(WireEvent::Frames(frame)) => read(source, &frame, (&mut heard, watch.as_mut())),
            Some(WireEvent::Malformed { reason }) => heard.fault(reason.to_string()),
            Some(WireEvent::Overflowed { dropped }) => {
                heard.fault(format!("{dropped} messages dropped: this reader is too slow"));
            }
            Some(WireEvent::Attached | WireEvent::Detached { .. }) => (),
            None => break,
        }
    }
    heard.hashes = super::hashes(watch.as_ref());
    heard
}

fn read(
    source: &SourceConfig,
    frame: &LiveFrame,
    (heard, watch): (&mut StreamSight, Option<&mut HashWatch>),
) {
    heard.seq(frame.seq_frame.seq());
    let seq_frame = frame.seq_frame.as_bytes();
    let message = Message { topic: &frame.topic, seq_frame, payload: &frame.payload };
    let decoding = registry::decode_message(&source.engine, &message);
    decoding.faults.into_iter().for_each(|fault| heard.fault(fault));
    if let Some(batch) = decoding.batch {
        heard.batch(&batch);
        if let Some(watch) = watch {
            watch.look(Epoch(1), &batch);
        }
    }
}

/// What a rank's journal answers to a request for everything, as a kvbridge makes at its start.
pub(super) async fn journal(source: &SourceConfig) -> ReplaySight {
    let Some(endpoint) = &source.replay else { return ReplaySight::Unnamed };
    let mut settings = ReplaySettings::new(endpoint.to_string());
    settings.transport = source.transport;
    let mut client = ReplayClient::new(settings, Arc::new(Counters::default()));
    client.start(Attempt(1), 0);
    let mut heard = JournalSight::default();
    let ended = timeout(JOURNAL_DEADLINE, async {
        loop {
            match client.next().await.1 {
                ReplayPart::Frame { seq_frame, .. } => heard.seq(seq_frame.seq()),
                ReplayPart::End => return None,
                ReplayPart::Failed { reason } => return Some(reason),
            }
        }
    });
    match ended.await {
        Ok(None) => (),
        Ok(Some(ReplayFailure::Connect)) => {
            return ReplaySight::Unreachable(endpoint.to_string());
        }
        Ok(Some(reason)) if heard.batches == 0 => return ReplaySight::Silent(reason.to_string()),
        Ok(Some(reason)) => heard.unended = Some(reason.to_string()),
        Err(_) => heard.unended = Some(format!("it takes over {JOURNAL_DEADLINE:?}")),
    }
    ReplaySight::Heard(heard)
}
