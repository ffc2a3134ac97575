//! The source: what an adapter gets with nothing but a decoder.

use std::sync::Arc;

use bytes::Bytes;
use kvbridge_adapters_api::{
    AnswerPart, Attempt, Batch, Capabilities, Continuity, Delivery, Drain, Loss, Removal, Replay,
    RequestRefused, Source, SourceEvent, SourceRequest,
};
use kvbridge_adapters_zmq::{
    Counters, Decode, Decoded, Link, ServeSettings, Server, Transport, ZmqSettings, ZmqSource,
};
use kvbridge_schemas::{HashInfo, HashScheme, Scope, Seq, digest};
use zeromq::{PubSocket, Socket, SocketSend, ZmqMessage};

use crate::support::{asking, established_to, linked, on_every_transport, soon};

on_every_transport!(
    live_and_answers_in_one_stream,
    what_is_not_supported_is_refused,
    dropped_next_loses_nothing,
    bound_source_takes_publishers_that_connect,
    dropped_source_closes_its_sockets,
);

struct SeqOnly;

impl Decode for SeqOnly {
    fn decode(&mut self, _topic: &[u8], seq_frame: &[u8], payload: &[u8]) -> Decoded {
        let seq = seq_frame.iter().take(8).fold(0, |seq, byte| (seq << 8) | u64::from(*byte));
        if seq == u64::MAX {
            return Decoded::EndMarker;
        }
        Decoded::Batch(Batch {
            epoch: None,
            incarnation: None,
            seq: Seq(seq),
            span: 1,
            digest: digest(payload),
            ts: 0,
            format: "test",
            hash: HashInfo { scheme: HashScheme::Unknown, block_size: 0 },
            rank: None,
            events: Vec::new(),
            loss: if payload.is_empty() { Loss::Body } else { Loss::Nothing },
            bytes: u32::try_from(payload.len()).unwrap(),
        })
    }
}

fn capabilities() -> Capabilities {
    Capabilities {
        epoch_on_wire: false,
        replay: Replay::Journal,
        snapshot: None,
        continuity: Continuity::Proven,
        removal: Removal::PerCopy,
        clear_scope: Scope::All,
        drain: Drain::Shared,
        one_hash_per_block: true,
    }
}

fn source(transport: Transport, link: Link, replay: Option<&str>) -> ZmqSource<SeqOnly> {
    let settings = ZmqSettings {
        snapshot: None,
        subscribe: linked(link, transport),
        replay: replay.map(|endpoint| asking(endpoint, transport)),
    };
    ZmqSource::spawn(settings, capabilities(), SeqOnly, Arc::new(Counters::default()))
}

fn event(delivery: Option<Delivery>) -> SourceEvent {
    match delivery.expect("open") {
        Delivery::Event(event) => event,
        Delivery::Records { .. } => panic!("an engine without snapshots sent records"),
        Delivery::Figures(_) => panic!("sockets know no figures"),
    }
}

async fn next(source: &mut ZmqSource<SeqOnly>) -> String {
    match event(soon(source.next()).await) {
        SourceEvent::Live(batch) => format!("live {}", batch.seq),
        SourceEvent::Answer { attempt, part: AnswerPart::Batch(batch) } => {
            format!("answer {attempt}: {}", batch.seq)
        }
        SourceEvent::Answer { attempt, part } => format!("answer {attempt}: {part:?}"),
        other => format!("{other:?}"),
    }
}

fn replay(attempt: u32, start: u64) -> SourceRequest {
    SourceRequest::Replay { attempt: Attempt(attempt), start_seq: Seq(start) }
}

async fn live_and_answers_in_one_stream(transport: Transport) {
    let server = soon(Server::bind(ServeSettings::default())).await.unwrap();
    let mut source =
        source(transport, Link::Connect(server.live().to_owned()), Some(server.replay()));
    assert_eq!(source.capabilities(), capabilities());
    soon(server.wait_subscribers(1)).await.unwrap();
    server.publish(0, Bytes::from_static(b"a")).unwrap();
    server.publish(1, Bytes::from_static(b"b")).unwrap();
    assert_eq!(next(&mut source).await, "Attached");
    assert_eq!(next(&mut source).await, "live 0");
    assert_eq!(next(&mut source).await, "live 1");
    source.request(replay(1, 1)).unwrap();
    assert_eq!(next(&mut source).await, "answer 1: 1");
    assert_eq!(next(&mut source).await, "answer 1: End");
    server.publish(u64::MAX, Bytes::new()).unwrap();
    assert_eq!(next(&mut source).await, "EndMarker");
    server.close().await;
    assert_eq!(next(&mut source).await, "Detached");
    source.request(replay(2, 0)).unwrap();
    assert_eq!(next(&mut source).await, "answer 2: Failed");
}

async fn what_is_not_supported_is_refused(transport: Transport) {
    let server = soon(Server::bind(ServeSettings::default())).await.unwrap();
    let mut source = source(transport, Link::Connect(server.live().to_owned()), None);
    let snapshot = SourceRequest::Snapshot { attempt: Attempt(1), object: None };
    assert_eq!(source.request(snapshot), Err(RequestRefused::Unsupported));
    assert_eq!(source.request(replay(1, 0)), Err(RequestRefused::Unsupported));
    assert_eq!(source.request(SourceRequest::Cancel), Ok(()));
}

/// The driver polls `next` in a select and drops it whenever something else is ready first.
async fn dropped_next_loses_nothing(transport: Transport) {
    let server = soon(Server::bind(ServeSettings::default())).await.unwrap();
    let mut source =
        source(transport, Link::Connect(server.live().to_owned()), Some(server.replay()));
    soon(server.wait_subscribers(1)).await.unwrap();
    let (mut live, mut answers, mut polls) = (Vec::new(), Vec::new(), 0_u32);
    for seq in 0..1000 {
        server.publish(seq, Bytes::from_static(b"x")).unwrap();
    }
    source.request(replay(1, 0)).unwrap();
    while live.len() + answers.len() < 2000 {
        polls += 1;
        assert!(polls < 1_000_000);
        tokio::select! {
            biased;
            delivery = source.next() => match event(delivery) {
                SourceEvent::Live(batch) => live.push(batch.seq.0),
                SourceEvent::Answer { part: AnswerPart::Batch(batch), .. } => {
                    answers.push(batch.seq.0);
                }
                _ => (),
            },
            () = tokio::task::yield_now() => (),
        }
    }
    let all: Vec<u64> = (0..1000).collect();
    assert_eq!((live, answers), (all.clone(), all));
}

async fn bound_source_takes_publishers_that_connect(transport: Transport) {
    let mut source = source(transport, Link::Bind("tcp://*:0".to_owned()), None);
    let port = soon(source.bound()).await.unwrap().rsplit(':').next().unwrap().to_owned();
    assert_eq!(next(&mut source).await, "Attached");
    for _ in 0..2 {
        let mut publisher = PubSocket::new();
        soon(publisher.connect(&format!("tcp://127.0.0.1:{port}"))).await.unwrap();
        let mut seq = 0_u64;
        let first = loop {
            let frames = vec![Bytes::new(), Bytes::copy_from_slice(&seq.to_be_bytes()), "x".into()];
            soon(publisher.send(ZmqMessage::try_from(frames).unwrap())).await.unwrap();
            seq += 1;
            let wait = std::time::Duration::from_millis(20);
            if let Ok(delivery) = tokio::time::timeout(wait, source.next()).await {
                break event(delivery);
            }
        };
        assert!(matches!(first, SourceEvent::Live(_)), "{first:?}");
        drop(publisher);
        let detached = soon(async {
            loop {
                let event = next(&mut source).await;
                if !event.starts_with("live") {
                    break event;
                }
            }
        });
        assert_eq!(detached.await, "Detached");
        assert_eq!(next(&mut source).await, "Attached");
    }
}

async fn dropped_source_closes_its_sockets(transport: Transport) {
    let server = soon(Server::bind(ServeSettings::default())).await.unwrap();
    let port = server.live().rsplit(':').next().unwrap().parse::<u16>().unwrap();
    let source = source(transport, Link::Connect(server.live().to_owned()), Some(server.replay()));
    soon(server.wait_subscribers(1)).await.unwrap();
    assert_eq!(established_to(port), 1);
    drop(source);
    soon(async {
        while established_to(port) > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
}
