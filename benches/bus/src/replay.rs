//! Reading a log from its start.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, bail, ensure};
use async_nats::jetstream::{
    self,
    consumer::{DeliverPolicy, pull},
};
use bytes::Bytes;
use futures::StreamExt;
use kvbridge::{
    api::{AnswerPart, Attempt, Delivery, Removal, Source, SourceEvent, SourceRequest},
    bus::{Bus, NatsBus},
    clock::Clock,
    config::NatsConfig,
    consumer::Consumer,
    pipeline::{Signs, Tasks},
    schemas::{Envelope, Event, Replica, Seq, Status, Trust, codec, subject},
};
use tokio::sync::mpsc;

use crate::{
    messages::{self, BLOCKS, EPOCH, envelope},
    publish::ours,
    rows::{Rows, Watch},
};

const BRIDGE: &str = "bench";

pub async fn measure(
    bus: &NatsBus,
    config: &NatsConfig,
    url: &str,
    (rounds, count): (usize, u64),
    tasks: &mut Tasks,
    rows: &mut Rows,
) -> anyhow::Result<()> {
    let replica = messages::replica("replay");
    let mut bytes = 0;
    for first in (0..count).step_by(1000) {
        let some: Vec<_> =
            (first..count.min(first + 1000)).map(|seq| envelope(&replica, seq)).collect();
        bytes += some.iter().map(|it| codec::encode_msgpack(&**it).len() as u64).sum::<u64>();
        ours(bus, &some).await?;
    }
    let context = jetstream::new(async_nats::connect(url).await?);
    let speaks = tokio::spawn(speak(context.clone(), replica.clone(), count));

    // A bus that reads, as an index has it.
    let reading = NatsBus::new(config);
    let (found_tx, mut found) = mpsc::channel(16);
    reading.follow(found_tx, Clock::start(), tasks);
    found.recv().await.context("a replica")?;

    for round in 0..=rounds {
        let watch = Watch::start();
        bare(&context, &replica, count, |payload| drop(std::hint::black_box(payload))).await?;
        rows.add(round, "replay, bare client", watch, count, bytes);

        let watch = Watch::start();
        let mut blocks = 0;
        bare(&context, &replica, count, |payload| {
            let read = codec::decode_msgpack::<Envelope>(&payload);
            blocks += read.map_or(0, |read| blocks_of(&read.events));
        })
        .await?;
        rows.add(round, "replay, bare client that decodes", watch, count, bytes);
        ensure!(blocks == count * BLOCKS, "{blocks} blocks");

        let mut source = reading
            .source(&replica, Removal::PerCopy, &Arc::new(Signs::default()))
            .context("a source")?;
        while !matches!(source.next().await, Some(Delivery::Event(SourceEvent::Attached))) {}
        let watch = Watch::start();
        let read = read(&mut *source).await?;
        rows.add(round, "replay, kvbridge to events", watch, count, bytes);
        ensure!(read == count * BLOCKS, "{read} blocks");
        drop(source);

        let watch = Watch::start();
        let consumer = Consumer::nats(url).model(messages::MODEL).start().await?;
        exact(&consumer, &replica, count).await;
        rows.add(round, "replay, kvbridge to an exact index", watch, count, bytes);
        consumer.stop().await;
    }
    speaks.abort();
    Ok(())
}

fn blocks_of(events: &[Event]) -> u64 {
    let blocks = |event: &Event| match event {
        Event::Stored(stored) => stored.blocks.len() as u64,
        _ => 0,
    };
    events.iter().map(blocks).sum()
}

/// Says once a second what a bridge would say: readers believe no log that nobody vouches for.
async fn speak(context: jetstream::Context, replica: Replica, count: u64) -> anyhow::Result<()> {
    let key = format!("{}.{BRIDGE}", replica.key());
    let status = Status {
        replica,
        epoch: EPOCH,
        next_seq: Seq(count),
        view_seq: None,
        bus_seq: None,
        trust: Trust::Exact,
        reason: "contiguous".to_owned(),
        bridge: BRIDGE.to_owned(),
        at: Clock::unix_ms(),
    };
    let store = context.get_key_value("KVSTATUS").await?;
    loop {
        let now = Status { at: Clock::unix_ms(), ..status.clone() };
        store.put(&key, codec::to_json_string(&now).into()).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn bare(
    context: &jetstream::Context,
    replica: &Replica,
    count: u64,
    mut take: impl FnMut(Bytes),
) -> anyhow::Result<()> {
    let stream = context.get_stream_no_info(format!("KVHINTS_{}", messages::MODEL)).await?;
    let config = pull::OrderedConfig {
        filter_subject: subject::hint(&replica.key()),
        deliver_policy: DeliverPolicy::All,
        ..pull::OrderedConfig::default()
    };
    let mut messages = stream.create_consumer(config).await?.messages().await?;
    for _ in 0..count {
        let message = messages.next().await.context("a message")??;
        take(message.payload.clone());
    }
    Ok(())
}

/// The whole answer to a replay; how many blocks came.
async fn read(source: &mut dyn Source) -> anyhow::Result<u64> {
    source.request(SourceRequest::Replay { attempt: Attempt(1), start_seq: Seq(0) })?;
    let mut blocks = 0;
    loop {
        match source.next().await.context("an answer")? {
            Delivery::Event(SourceEvent::Answer { part, .. }) => match part {
                AnswerPart::Batch(batch) => blocks += blocks_of(&batch.events),
                AnswerPart::End => return Ok(blocks),
                AnswerPart::Failed | AnswerPart::Truncated => bail!("no whole answer"),
                _ => (),
            },
            _ => (),
        }
    }
}

/// Until the view stands at the end of the log and is believed.
async fn exact(consumer: &Consumer, replica: &Replica, count: u64) {
    let key = replica.key();
    loop {
        let stands = consumer.fleet().replica(key.as_str()).is_some_and(|(_, handle)| {
            let status = handle.status.borrow();
            status.cursor.next_seq == Seq(count) && status.trust.device == Trust::Exact
        });
        if stands {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
