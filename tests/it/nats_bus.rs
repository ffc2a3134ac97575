//! The NATS bus as a library against a real server: order, ids, outages, refusals, a full spool.

use std::{sync::Arc, time::Duration};

use kvbridge::{
    bus::{
        Bus, BusState, LogWriter, NatsBus, Receipt, Standing, Stored, Writer,
        nats::streams::{self, Plan},
    },
    config::{
        HeartbeatConfig, NatsAuth, NatsConfig, NatsTls, Secret, Shards, SnapshotsConfig, SpoolFull,
        StreamsConfig, limits,
    },
    pipeline::Tasks,
    schemas::{
        Cursor, Digest, Engine, EngineKind, Envelope, Epoch, Event, HashInfo, HashScheme, Parent,
        Place, Replica, Seq, Stored as StoredEvent, Tier, Tokens, Trust, subject,
    },
    shared_log::{Lane, Outgoing, ResetCause},
    telemetry::BusLogMetrics,
};

use crate::nats_server::{Server, contiguous};

pub(crate) fn config(server: &Server) -> NatsConfig {
    NatsConfig {
        urls: vec![server.url()],
        auth: NatsAuth::Open,
        tls: NatsTls::default(),
        inbox: limits::BUS_INBOX_PREFIX.to_owned(),
        streams: StreamsConfig {
            prefix: limits::BUS_STREAM_PREFIX.to_owned(),
            shards: Shards::Model,
            replica_count: 1,
            retention: limits::BUS_RETENTION,
            bytes_max: limits::BUS_RETENTION_BYTES,
            duplicate_window: limits::BUS_DUPLICATE_WINDOW,
            heartbeat: HeartbeatConfig::default(),
        },
        bridge: Some("b".to_owned()),
        spool_bytes_max: limits::BUS_SPOOL_BYTES,
        spool_full: SpoolFull::Block,
        reconnect: (limits::RECONNECT_MIN, limits::RECONNECT_MAX),
        read: false,
        models: Vec::new(),
        snapshots: SnapshotsConfig {
            interval: limits::BUS_SNAPSHOT_INTERVAL,
            batch_count: u64::from(limits::BUS_SNAPSHOT_BATCHES),
        },
    }
}

pub(crate) fn replica(rank: u32) -> Replica {
    Replica { model: "org/m".to_owned(), instance: "h:1".to_owned(), rank }
}

/// One batch with so many tokens.
fn envelope(rank: u32, seq: u64, tokens: usize) -> Arc<Envelope> {
    let stored = StoredEvent {
        parent: Parent::Root,
        block_size: 16,
        tokens: Tokens(vec![70_000; tokens]),
        blocks: Vec::new(),
        partial: false,
        bigram: false,
        place: Place::of(Tier::Device),
        lora: None,
        lora_id: None,
        salt: None,
        extra: Vec::new(),
        session: None,
    };
    Arc::new(Envelope {
        replica: replica(rank),
        epoch: Epoch(7),
        incarnation: None,
        seq: Seq(seq),
        span: 1,
        digest: Digest([1; 16]),
        trust: Trust::Exact,
        ts: 0,
        engine: Engine { kind: EngineKind::Vllm, format: "f".to_owned() },
        hash: HashInfo { scheme: HashScheme::Unknown, block_size: 16 },
        events: vec![Event::Stored(stored)],
    })
}

pub(crate) fn outgoing(rank: u32, seq: u64, tokens: usize) -> Outgoing {
    let envelope = envelope(rank, seq, tokens);
    let id = subject::message_id(&envelope.replica.key(), envelope.epoch, envelope.seq);
    Outgoing { envelope, id }
}

pub(crate) struct World {
    bus: NatsBus,
    tasks: Tasks,
}

impl World {
    pub(crate) fn start(config: &NatsConfig) -> World {
        let mut tasks = Tasks::new();
        let replicas = [replica(0), replica(1)];
        let bus = NatsBus::start(config, replicas.iter(), &mut tasks).unwrap();
        World { bus, tasks }
    }

    fn writer(&self, rank: u32) -> Box<dyn Writer> {
        self.bus.writer(&replica(rank).key()).unwrap()
    }

    fn log(&self, full: SpoolFull) -> LogWriter {
        let lane = Lane::new(replica(0), EngineKind::Vllm, self.bus.bridge());
        let metrics = BusLogMetrics::register(&replica(0).key());
        LogWriter::new(lane, self.writer(0), full, metrics, self.bus.bridge())
    }

    pub(crate) async fn until(&self, state: BusState) -> Standing {
        for _ in 0..1_000 {
            let standing = self.bus.standing();
            if standing.state == state {
                return standing;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("never {state}: {:?}", self.bus.standing());
    }

    pub(crate) async fn end(self) {
        assert!(self.tasks.stop(limits::STOP_DEADLINE).await.is_empty());
    }
}

async fn stored(receipts: Vec<Receipt>) -> Vec<Stored> {
    let mut all = Vec::new();
    for receipt in receipts {
        let stored = tokio::time::timeout(Duration::from_secs(60), receipt.stored()).await;
        all.push(stored.expect("not stored in time").unwrap());
    }
    all
}

const STREAM: &str = "KVHINTS_org=2Fm";

#[tokio::test]
async fn envelopes_arrive_in_order_under_their_ids_and_twice_is_a_duplicate() {
    let server = Server::started("order");
    let world = World::start(&config(&server));
    for round in 0..2 {
        let (mut zero, mut one) = (world.writer(0), world.writer(1));
        let mut receipts = Vec::new();
        for seq in 0..1_000 {
            receipts.push(zero.publish(&outgoing(0, seq, 64)).unwrap());
            receipts.push(one.publish(&outgoing(1, seq, 64)).unwrap());
        }
        let stored = stored(receipts).await;
        assert!(stored.iter().all(|stored| stored.duplicate == (round == 1)));
        assert!(stored.windows(2).all(|two| two[0].bus_seq < two[1].bus_seq));
    }
    let messages = server.read(STREAM).await;
    assert_eq!(messages.len(), 2_000);
    for rank in [0, 1] {
        let key = replica(rank).key();
        let of_rank: Vec<_> =
            messages.iter().filter(|m| m.subject == subject::hint(&key)).collect();
        assert_eq!(of_rank.len(), 1_000);
        for (seq, message) in (0..).zip(of_rank) {
            assert_eq!(message.id, subject::message_id(&key, Epoch(7), Seq(seq)));
            assert_eq!((message.seq, message.epoch, message.schema.as_str()), (seq, 7, "1"));
            assert_eq!(message.envelope, *envelope(rank, seq, 64));
        }
    }
    world.end().await;
}

#[tokio::test]
async fn a_killed_server_costs_nothing_and_reorders_nothing() {
    let mut server = Server::started("kill");
    let world = World::start(&config(&server));
    let mut writer = world.writer(0);
    let mut receipts = Vec::new();
    for seq in 0..12_000 {
        receipts.push(writer.publish(&outgoing(0, seq, 64)).unwrap());
        if seq % 8 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if seq == 4_000 {
            server.kill();
        }
        if seq == 6_000 {
            world.until(BusState::Away).await;
            server.start();
        }
    }
    assert_eq!(stored(receipts).await.len(), 12_000);
    world.until(BusState::Ready).await;
    let messages = server.read(STREAM).await;
    assert_eq!((messages.len(), contiguous(&messages)), (12_000, 12_000));
    world.end().await;
}

#[tokio::test]
async fn a_stream_that_differs_is_named_setting_by_setting_and_not_written_to() {
    let server = Server::started("differs");
    let config = config(&server);
    let context = server.jetstream().await;
    let mut other = Plan::new(&config.streams).wanted(STREAM);
    other.max_age = Duration::from_secs(60);
    other.max_messages = 9;
    context.create_stream(other).await.unwrap();
    let world = World::start(&config);
    let mut writer = world.writer(0);
    let receipt = writer.publish(&outgoing(0, 0, 1)).unwrap();
    let standing = world.until(BusState::SettingsDiffer).await;
    assert_eq!(
        standing.detail,
        "stream KVHINTS_org=2Fm is set up differently: max_age is 1m, wanted 15m; max_msgs is 9, \
         wanted unlimited; see kvbridge bus apply"
    );
    assert!(server.read(STREAM).await.is_empty());
    // Set right, it is used without a restart.
    streams::apply(&context, &Plan::new(&config.streams).wanted(STREAM)).await.unwrap();
    stored(vec![receipt]).await;
    assert_eq!(server.read(STREAM).await.len(), 1);
    world.end().await;
}

#[tokio::test]
async fn who_is_refused_is_told_why() {
    let users = "authorization { user: bridge, password: right }";
    let mut server = Server::prepared("refused", users);
    server.start();
    let mut wrong = config(&server);
    wrong.auth = NatsAuth::User { name: "bridge".to_owned(), password: Secret::new("hunter2") };
    let world = World::start(&wrong);
    let standing = world.until(BusState::CredentialsRefused).await;
    assert_eq!(
        standing.detail,
        "the server refuses the credentials of [bus]: authorization violation"
    );
    world.end().await;
    let mut right = wrong.clone();
    right.auth = NatsAuth::User { name: "bridge".to_owned(), password: Secret::new("right") };
    let world = World::start(&right);
    world.until(BusState::Ready).await;
    world.end().await;
    let mut no_file = wrong;
    no_file.tls.ca = Some("/nonexistent/ca.pem".into());
    let world = World::start(&no_file);
    let standing = world.until(BusState::TlsRefused).await;
    assert!(standing.detail.starts_with("bus.tls_ca /nonexistent/ca.pem"), "{standing:?}");
    world.end().await;
}

#[tokio::test]
async fn a_server_without_jetstream_is_named() {
    let mut server = Server::prepared("nojs", "no_jetstream");
    server.start();
    let world = World::start(&config(&server));
    world.until(BusState::NoJetStream).await;
    world.end().await;
}

/// An account that may store so much, for whoever comes without a name.
fn with_room_for(name: &str, room: &str) -> Server {
    let account = format!("A: {{ jetstream: {{ max_file: {room} }}, users: [{{ user: a }}] }}");
    let mut server =
        Server::prepared(name, &format!("accounts {{ {account} }}\nno_auth_user: a\n"));
    server.start();
    server
}

#[tokio::test]
async fn a_server_without_room_for_the_stream_is_named() {
    let server = with_room_for("noroom", "1MB");
    let world = World::start(&config(&server));
    let standing = world.until(BusState::NoStream).await;
    assert!(standing.detail.contains("insufficient storage"), "{standing:?}");
    world.end().await;
}

#[tokio::test]
async fn a_full_store_is_named_and_what_waits_is_stored_when_there_is_room() {
    let server = with_room_for("full", "8MB");
    let mut config = config(&server);
    config.streams.bytes_max = 4 * 1024 * 1024;
    let world = World::start(&config);
    let mut writer = world.writer(0);
    stored(vec![writer.publish(&outgoing(0, 0, 1)).unwrap()]).await;
    // Somebody else's, without a limit of its own.
    let context = server.jetstream().await;
    context.create_stream("OTHER").await.unwrap();
    while context.publish("OTHER", vec![0; 1 << 18].into()).await.unwrap().await.is_ok() {}
    let receipts = (1..100).map(|seq| writer.publish(&outgoing(0, seq, 2_000)).unwrap()).collect();
    assert!(world.until(BusState::NotStoring).await.detail.contains("exceeded"));
    context.delete_stream("OTHER").await.unwrap();
    stored(receipts).await;
    assert_eq!(contiguous(&server.read(STREAM).await), 100);
    world.end().await;
}

#[tokio::test]
async fn a_batch_too_large_for_the_server_becomes_a_reset() {
    let server = Server::started("large");
    let world = World::start(&config(&server));
    let mut writer = world.writer(0);
    // 5 bytes a token: 1.5 MB.
    let messages = [outgoing(0, 0, 1), outgoing(0, 1, 300_000), outgoing(0, 2, 1)];
    let receipts = messages.iter().map(|message| writer.publish(message).unwrap()).collect();
    stored(receipts).await;
    let messages = server.read(STREAM).await;
    assert_eq!(contiguous(&messages), 3);
    let Event::Reset(reset) = &messages[1].envelope.events[0] else { panic!("{messages:?}") };
    assert_eq!(reset.cause, ResetCause::TooLarge.as_str());
    assert!(messages[1].id.ends_with("/7/1/b/0"), "{}", messages[1].id);
    world.end().await;
}

/// Offers batches of about 10 kB until `count`, as a driver would; returns how many were taken.
fn offer(log: &mut LogWriter, count: u64) -> u64 {
    for seq in 0..count {
        log.applied(envelope(0, seq, 2_000));
        let cursor = Cursor { epoch: Epoch(7), next_seq: Seq(seq + 1) };
        log.settled(cursor, Trust::Exact, "contiguous");
        if log.is_blocked() {
            return seq + 1;
        }
    }
    count
}

#[tokio::test]
async fn a_full_spool_blocks_and_loses_nothing() {
    let mut server = Server::prepared("block", "");
    let mut config = config(&server);
    config.spool_bytes_max = 1024 * 1024;
    let world = World::start(&config);
    let mut log = world.log(SpoolFull::Block);
    let taken = offer(&mut log, 1_000);
    assert!((80..120).contains(&taken), "{taken}");
    world.until(BusState::Away).await;
    let cursor = Cursor { epoch: Epoch(7), next_seq: Seq(taken) };
    let room = log.room(cursor, Trust::Exact, "contiguous");
    assert!(tokio::time::timeout(Duration::from_millis(300), room).await.is_err());
    server.start();
    let room = log.room(cursor, Trust::Exact, "contiguous");
    tokio::time::timeout(Duration::from_secs(20), room).await.expect("no room");
    assert!(!log.is_blocked());
    world.end().await;
    let messages = server.read(STREAM).await;
    // Beside the batches, one word of trust.
    let count = usize::try_from(taken).unwrap() + 1;
    assert_eq!((contiguous(&messages), messages.len()), (taken, count));
}

#[tokio::test]
async fn a_full_spool_with_resync_leaves_out_and_says_what() {
    let mut server = Server::prepared("resync", "");
    let mut config = config(&server);
    config.spool_bytes_max = 1024 * 1024;
    let world = World::start(&config);
    let mut log = world.log(SpoolFull::Resync);
    assert_eq!(offer(&mut log, 1_000), 1_000);
    let cursor = Cursor { epoch: Epoch(7), next_seq: Seq(1_000) };
    assert!(log.wants_room(cursor, Trust::Exact) && !log.wants_room(cursor, Trust::None));
    server.start();
    let room = log.room(cursor, Trust::Exact, "contiguous");
    tokio::time::timeout(Duration::from_secs(20), room).await.expect("no room");
    log.applied(envelope(0, 1_000, 2_000));
    world.end().await;
    let messages = server.read(STREAM).await;
    assert_eq!(contiguous(&messages), 1_001);
    let [.., reset, last] = messages.as_slice() else { panic!("too few") };
    let Event::Reset(reset) = &reset.envelope.events[0] else { panic!("{reset:?}") };
    assert_eq!((reset.cause.as_str(), last.seq), (ResetCause::SpoolOverflow.as_str(), 1_000));
}

#[tokio::test]
async fn hash_shards_store_under_the_hint_subject() {
    let server = Server::started("hash");
    let mut config = config(&server);
    config.streams.shards = Shards::Hash(2);
    let world = World::start(&config);
    let mut writer = world.writer(0);
    stored((0..10).map(|seq| writer.publish(&outgoing(0, seq, 1)).unwrap()).collect()).await;
    let messages = server.read(&Plan::new(&config.streams).name_of(&replica(0))).await;
    assert_eq!(contiguous(&messages), 10);
    assert_eq!(messages[0].subject, subject::hint(&replica(0).key()));
    world.end().await;
}
