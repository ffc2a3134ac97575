//! Publishing with every ack.

use std::{collections::VecDeque, future::IntoFuture, sync::Arc};

use anyhow::Context as _;
use async_nats::jetstream::{self, message::PublishMessage};
use bytes::Bytes;
use kvbridge::{
    bus::{Bus, NatsBus},
    config::limits::BUS_WINDOW,
    schemas::{Envelope, codec},
    shared_log::Outgoing,
};

use crate::{
    messages::{self, envelope, headers, id},
    rows::{Rows, Watch},
};

const BARE_STREAM: &str = "BENCH_BARE";

pub async fn measure(
    bus: &NatsBus,
    url: &str,
    (rounds, count): (usize, u64),
    rows: &mut Rows,
) -> anyhow::Result<()> {
    let context = jetstream::new(async_nats::connect(url).await?);
    // The first message makes sure that the bus has its stream.
    let first = messages::replica("publish-0");
    ours(bus, &[envelope(&first, 0)]).await?;
    let stream = context.get_stream(format!("KVHINTS_{}", messages::MODEL)).await?;
    let settings = stream.cached_info().config.clone();
    let bare_settings = jetstream::stream::Config {
        name: BARE_STREAM.to_owned(),
        subjects: vec!["bare.>".to_owned()],
        ..settings
    };
    let bare_stream = context.create_stream(bare_settings).await?;
    for round in 0..=rounds {
        let replica = messages::replica(&format!("publish-{round}"));
        let from = u64::from(round == 0);
        let envelopes: Vec<_> = (from..count).map(|seq| envelope(&replica, seq)).collect();
        let payloads: Vec<Bytes> =
            envelopes.iter().map(|it| codec::encode_msgpack(&**it).into()).collect();
        let bytes = payloads.iter().map(|payload| payload.len() as u64).sum();

        let watch = Watch::start();
        ours(bus, &envelopes).await?;
        rows.add(round, "publish, kvbridge", watch, envelopes.len() as u64, bytes);

        let watch = Watch::start();
        bare(&context, &envelopes, &payloads).await?;
        rows.add(round, "publish, bare client", watch, envelopes.len() as u64, bytes);

        stream.purge().await?;
        bare_stream.purge().await?;
    }
    Ok(())
}

pub async fn ours(bus: &NatsBus, envelopes: &[Arc<Envelope>]) -> anyhow::Result<()> {
    let key = envelopes.first().context("an envelope")?.replica.key();
    let mut writer = bus.writer(&key).context("a writer")?;
    let mut receipts = Vec::with_capacity(envelopes.len());
    for envelope in envelopes {
        let message = Outgoing { envelope: Arc::clone(envelope), id: id(envelope) };
        let receipt = loop {
            match writer.publish(&message) {
                Ok(receipt) => break receipt,
                Err(_) => writer.room().await,
            }
        };
        receipts.push(receipt);
    }
    for receipt in receipts {
        receipt.stored().await?;
    }
    Ok(())
}

async fn bare(
    context: &jetstream::Context,
    envelopes: &[Arc<Envelope>],
    payloads: &[Bytes],
) -> anyhow::Result<()> {
    let mut acks = VecDeque::with_capacity(BUS_WINDOW);
    for (envelope, payload) in envelopes.iter().zip(payloads) {
        if acks.len() == BUS_WINDOW
            && let Some(ack) = acks.pop_front()
        {
            IntoFuture::into_future(ack).await?;
        }
        let message = PublishMessage::build()
            .headers(headers(envelope, &id(envelope)))
            .payload(payload.clone());
        acks.push_back(context.send_publish("bare.r", message).await?);
    }
    for ack in acks {
        ack.await?;
    }
    Ok(())
}
