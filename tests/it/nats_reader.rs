//! One replica's log as a source, against a real server: order, long and short replays, what cannot
//! be read, and what is gone.

use std::{sync::Arc, time::Duration};

use async_nats::{HeaderMap, jetstream};
use kvbridge::{
    api::{AnswerPart, Attempt, Delivery, Loss, Removal, Source, SourceEvent, SourceRequest},
    bus::{
        Bus, NatsBus,
        nats::streams::{Plan, ensure},
    },
    clock::Clock,
    pipeline::Tasks,
    schemas::{Cursor, Epoch, Seq, codec, subject},
    telemetry,
};
use tokio::sync::mpsc;

use crate::{
    nats_bus::{config, outgoing, replica},
    nats_server::Server,
};

const LIMIT: Duration = Duration::from_secs(30);

struct World {
    server: Server,
    context: jetstream::Context,
    bus: NatsBus,
    tasks: Tasks,
}

impl World {
    async fn start(name: &str) -> World {
        let server = Server::started(name);
        let config = config(&server);
        let context = server.jetstream().await;
        let plan = Plan::new(&config.streams);
        ensure(&context, &plan.wanted(&plan.name_of(&replica(0)))).await.unwrap();
        let (bus, mut tasks) = (NatsBus::new(&config), Tasks::new());
        bus.follow(mpsc::channel(16).0, Clock::start(), &mut tasks);
        World { server, context, bus, tasks }
    }

    /// Stores messages of a rank in this order.
    async fn store(&self, rank: u32, seqs: impl IntoIterator<Item = u64>) {
        let mut acks = Vec::new();
        for seq in seqs {
            let message = outgoing(rank, seq, 4);
            let payload = codec::encode_msgpack(&*message.envelope);
            acks.push(self.send(rank, headers(7, seq), payload).await);
        }
        for ack in acks {
            ack.await.unwrap();
        }
    }

    async fn send(
        &self,
        rank: u32,
        headers: HeaderMap,
        payload: Vec<u8>,
    ) -> jetstream::context::PublishAckFuture {
        let subject = subject::hint(&replica(rank).key());
        self.context.publish_with_headers(subject, headers, payload.into()).await.unwrap()
    }

    /// A source that is attached.
    async fn source(&self, rank: u32) -> Reader {
        let source = self.bus.source(&replica(rank), Removal::PerCopy, &Arc::default()).unwrap();
        let mut reader = Reader { source, attempts: 0 };
        assert_eq!(reader.next().await, "attached");
        reader
    }

    async fn end(self) {
        self.tasks.stop(LIMIT).await;
        drop(self.server);
    }
}

fn headers(epoch: u64, seq: u64) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("Kvbridge-Epoch", epoch.to_string());
    headers.insert("Kvbridge-Seq", seq.to_string());
    headers
}

struct Reader {
    source: Box<dyn Source>,
    attempts: u32,
}

impl Reader {
    async fn event(&mut self) -> SourceEvent {
        loop {
            let next = tokio::time::timeout(LIMIT, self.source.next());
            match next.await.expect("something comes").unwrap() {
                // No bridge speaks here.
                Delivery::Event(SourceEvent::Upstream(_)) => (),
                Delivery::Event(event) => return event,
                Delivery::Records { .. } | Delivery::Figures(_) => {
                    panic!("nobody asked for a snapshot")
                }
            }
        }
    }

    /// What comes next, in a word.
    async fn next(&mut self) -> String {
        match self.event().await {
            SourceEvent::Attached => "attached".to_owned(),
            SourceEvent::Detached => "detached".to_owned(),
            SourceEvent::Live(batch) if batch.loss == Loss::Body => format!("{}!", batch.seq),
            SourceEvent::Live(batch) => batch.seq.to_string(),
            other => format!("{other:?}"),
        }
    }

    /// The answer to a replay: its seqs in order, the place it continues at, and how it ended.
    async fn replay(&mut self, start: u64) -> (Vec<u64>, Vec<u64>, AnswerPart) {
        self.attempts += 1;
        let attempt = Attempt(self.attempts);
        let request = SourceRequest::Replay { attempt, start_seq: Seq(start) };
        self.source.request(request).unwrap();
        let (mut seqs, mut continues) = (Vec::new(), Vec::new());
        loop {
            match self.event().await {
                SourceEvent::Answer { attempt: of, part } if of == attempt => match part {
                    AnswerPart::Batch(batch) => seqs.push(batch.seq.0),
                    AnswerPart::Continues(Cursor { epoch, next_seq }) => {
                        assert_eq!(epoch, Epoch(7));
                        continues.push(next_seq.0);
                    }
                    end => return (seqs, continues, end),
                },
                // The live path may still bring what was stored before the source was there.
                SourceEvent::Live(_) => (),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn what_a_cluster_swapped_comes_in_order() {
    let world = World::start("reader-order").await;
    let mut reader = world.source(0).await;
    world.store(0, [0, 1, 2, 6, 7, 8, 3, 4, 5, 9]).await;
    for seq in 0..10 {
        assert_eq!(reader.next().await, seq.to_string());
    }
    world.end().await;
}

/// Neighbours are unharmed; what has our headers keeps its place.
#[tokio::test]
async fn what_cannot_be_read_has_a_place_or_is_left_alone() {
    let world = World::start("reader-garbage").await;
    let mut reader = world.source(0).await;
    world.store(0, [0]).await;
    world.send(0, HeaderMap::new(), b"garbage".to_vec()).await.await.unwrap();
    world.send(0, headers(7, 1), b"\xc1".to_vec()).await.await.unwrap();
    let of_rank_1 = codec::encode_msgpack(&*outgoing(1, 2, 4).envelope);
    world.send(0, headers(7, 2), of_rank_1).await.await.unwrap();
    world.store(0, [3]).await;
    for expected in ["0", "1!", "2!", "3"] {
        assert_eq!(reader.next().await, expected);
    }
    world.end().await;
}

#[tokio::test]
async fn a_replay_begins_at_its_seq_also_without_memory_of_it() {
    let world = World::start("reader-replay").await;
    for block in 0..30_u64 {
        // Twins on one stream, so that places and seqs have nothing in common.
        world.store(0, block * 100..block * 100 + 100).await;
        world.store(1, block * 300..block * 300 + 300).await;
    }
    let mut reader = world.source(0).await;
    // A long range: first requests, then a consumer.
    let (seqs, continues, end) = reader.replay(0).await;
    assert_eq!(seqs, (0..3000).collect::<Vec<_>>());
    assert_eq!((continues, end), (vec![3000], AnswerPart::End));
    // Remembered: exactly from there.
    let (seqs, continues, _) = reader.replay(2990).await;
    assert_eq!((seqs, continues), ((2990..3000).collect(), vec![2990, 3000]));
    let mut reader = world.source(0).await;
    let (seqs, continues, _) = reader.replay(2000).await;
    assert!(seqs[0] > 1000 && seqs[0] <= 2000, "searched for: {}", seqs[0]);
    assert!(seqs.is_sorted() && seqs.last() == Some(&2999));
    assert_eq!(continues, [3000]);
    world.end().await;
}

#[tokio::test]
async fn what_is_gone_is_told_by_the_numbers_of_the_stream() {
    let world = World::start("reader-gone").await;
    let mut reader = world.source(0).await;
    world.store(0, 0..20).await;
    for seq in 0..20 {
        assert_eq!(reader.next().await, seq.to_string());
    }
    // Learnt once: from here on the live path says what was read.
    assert_eq!(reader.replay(0).await.0.len(), 20);
    let stream = world.context.get_stream("KVHINTS_org=2Fm").await.unwrap();
    stream.purge().sequence(16).await.unwrap();
    // Of what was asked for the oldest that is left is 15, and who stands there misses nothing.
    let (seqs, continues, _) = reader.replay(9).await;
    assert_eq!((seqs, continues), ((15..20).collect(), vec![15, 20]));
    stream.purge().await.unwrap();
    let (seqs, continues, end) = reader.replay(17).await;
    assert_eq!((seqs, continues, end), (vec![], vec![20, 20], AnswerPart::End));
    // Who comes now knows nothing of what was there.
    let mut late = world.source(0).await;
    assert_eq!(late.replay(17).await, (vec![], vec![], AnswerPart::Truncated));
    assert_eq!(late.replay(0).await, (vec![], vec![], AnswerPart::End));
    world.store(0, [20, 21]).await;
    assert_eq!(late.next().await, "20");
    world.end().await;
}

/// `{"deep": [1, {"er": nil}]}` under a name that no version knows.
const MORE: &[u8] = b"\xa4more\x81\xa4deep\x92\x01\x81\xa2er\xc0";

/// What follows a name in a message of ours.
fn behind(message: &[u8], name: &[u8]) -> usize {
    message.windows(name.len()).position(|at| at == name).unwrap() + name.len()
}

/// One more field in the map that begins there.
fn with_more(message: &mut Vec<u8>, at: usize) {
    assert!((0x80..0x8f).contains(&message[at]), "a short map");
    message[at] += 1;
    message.splice(at + 1..=at, MORE.iter().copied());
}

/// A later minor version adds fields and words: this reader has all that it knows of them.
#[tokio::test]
async fn a_newer_minor_schema_is_read_by_who_does_not_know_it() {
    let world = World::start("reader-minor").await;
    let mut reader = world.source(0).await;
    let mut fields = codec::encode_msgpack(&*outgoing(0, 0, 4).envelope);
    for map in [&b"\xa7replica"[..], b"\xa6engine", b"\xa4hash", b"\xa6events\x91"] {
        let at = behind(&fields, map);
        with_more(&mut fields, at);
    }
    with_more(&mut fields, 0);
    let mut word = codec::encode_msgpack(&*outgoing(0, 1, 4).envelope);
    let at = behind(&word, b"\xa6events");
    word.splice(at..=at, *b"\x92\x82\xa4type\xa6folded\xa3how\x81\xa3far\x01");
    for (seq, body) in [(0, fields), (1, word)] {
        world.send(0, headers(7, seq), body).await.await.unwrap();
    }
    world.store(0, [2]).await;
    let known = outgoing(0, 0, 4).envelope.events.clone();
    for (seq, loss) in [(0, Loss::Nothing), (1, Loss::MayRemove), (2, Loss::Nothing)] {
        let SourceEvent::Live(batch) = reader.event().await else { panic!("not {seq}") };
        assert_eq!((batch.seq, batch.loss), (Seq(seq), loss));
        assert!(batch.events.ends_with(&known), "what is known of {seq} is as it was");
    }
    world.end().await;
}

/// Refused by its name, with a place of its own; the messages around it and the other replica are
/// read.
#[tokio::test]
async fn a_newer_major_schema_is_refused_by_name_and_hurts_nobody() {
    let metrics = telemetry::install_metrics().unwrap();
    let world = World::start("reader-major").await;
    let (mut reader, mut other) = (world.source(0).await, world.source(1).await);
    let mut same_shape = codec::encode_msgpack(&*outgoing(0, 1, 4).envelope);
    let version = behind(&same_shape, b"\xa1v");
    assert_eq!(std::mem::replace(&mut same_shape[version], 2), 1);
    let other_shape = b"\x83\xa1v\x02\xa7replica\x09\xa3seq\xa1x".to_vec();
    world.store(0, [0]).await;
    for (seq, body) in [(1, same_shape), (2, other_shape)] {
        world.send(0, headers(7, seq), body).await.await.unwrap();
    }
    world.store(0, [3]).await;
    world.store(1, [0, 1]).await;
    for expected in ["0", "1!", "2!", "3"] {
        assert_eq!(reader.next().await, expected);
    }
    for expected in ["0", "1"] {
        assert_eq!(other.next().await, expected);
    }
    let text = metrics.render();
    let refused = text.lines().find(|line| line.contains("schema_too_new")).unwrap();
    assert!(refused.contains("org=2Fm.h=3A1.0") && refused.ends_with(" 2"), "{refused}");
    world.end().await;
}
