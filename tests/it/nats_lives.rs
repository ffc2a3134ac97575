//! Bridges side by side on one engine, killed, frozen and cut off: one log, each batch once, one
//! name for each life.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use kvbridge::{
    bus::{VouchWatch, nats},
    clock::Clock,
    config::limits::BUS_STATUS_TTL,
    schemas::{Event, Replica, Seq, Trust},
};
use kvbridge_adapters_api::Upstream;
use serde_json::{Value, json};

use crate::{
    harness::{Bridge, Engine, SECOND_LIFE, configure, folder, until},
    nats_bus,
    nats_server::{Message, Server},
};

const STREAM: &str = "KVHINTS_m";

fn bridge(server: &Server, engine: &Engine, test: &str, name: &str) -> (PathBuf, Bridge) {
    let folder = folder(&format!("{test}_{name}"));
    let bus = format!("[bus]\nkind = \"nats\"\nurl = \"{}\"\nbridge = \"{name}\"\n", server.url());
    configure(&folder, &[engine.source("a")], &bus);
    let bridge = Bridge::start(&folder);
    (folder, bridge)
}

/// What the log holds now; nothing where there is no stream yet.
fn log(server: &Server) -> Vec<Message> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match server.jetstream().await.get_stream(STREAM).await {
            Ok(_) => server.read(STREAM).await,
            Err(_) => Vec::new(),
        }
    })
}

fn is_data(message: &Message) -> bool {
    message.id.matches('/').count() == 2
}

/// Seqs that the log covers, by epoch.
fn covered(messages: &[Message]) -> BTreeMap<u64, BTreeSet<u64>> {
    let mut covered: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for message in messages {
        let seqs = message.seq..message.seq + u64::from(message.envelope.span);
        covered.entry(message.epoch).or_default().extend(seqs);
    }
    covered
}

/// Waits until the newest life on the log ends there; returns everything on it.
pub(crate) fn log_reaches(server: &Server, lives: usize, next_seq: u64) -> Vec<Message> {
    until(&format!("{lives} lives on the log, the last one up to {next_seq}"), || {
        let messages = log(server);
        let covered = covered(&messages);
        let whole = covered.values().next_back().is_some_and(|seqs| {
            seqs.len() as u64 == next_seq && seqs.range(next_seq..).next().is_none()
        });
        (covered.len() == lives && whole).then_some(messages)
    })
}

/// Every batch once, and every id.
pub(crate) fn each_once(messages: &[Message]) {
    let data: Vec<_> = messages.iter().filter(|message| is_data(message)).collect();
    let places: BTreeSet<_> = data.iter().map(|message| (message.epoch, message.seq)).collect();
    assert_eq!(places.len(), data.len());
}

pub(crate) fn resets(messages: &[Message]) -> Vec<(u64, u32)> {
    let is_reset = |m: &&Message| matches!(m.envelope.events.first(), Some(Event::Reset(_)));
    messages.iter().filter(is_reset).map(|m| (m.seq, m.envelope.span)).collect()
}

/// What a bridge last said of its trust.
fn last_said(messages: &[Message], bridge: &str) -> Option<Trust> {
    messages.iter().rev().find_map(|message| match message.envelope.events.first() {
        Some(Event::Trust(said)) if said.bridge == bridge => Some(said.trust),
        _ => None,
    })
}

/// The heartbeat of a bridge, as JSON.
fn status(server: &Server, bridge: &str) -> Option<Value> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = server.jetstream().await.get_key_value("KVSTATUS").await.ok()?;
        let value = store.get(format!("m.a.0.{bridge}")).await.ok()??;
        serde_json::from_slice(&value).ok()
    })
}

#[test]
fn twins_write_one_log_and_either_may_die() {
    let server = Server::started("lives_twins");
    let mut engine = Engine::start();
    let (_, a) = bridge(&server, &engine, "twins", "a");
    engine.wait_subscriber();
    engine.publish(10);
    a.standing("a", "exact", 10);
    let (folder, b) = bridge(&server, &engine, "twins", "b");
    b.standing("a", "exact", 10);
    engine.publish(20);
    a.standing("a", "exact", 30);
    b.standing("a", "exact", 30);
    each_once(&log_reaches(&server, 1, 30));
    // Both speak, of the same life.
    let epoch = |bridge: &str| {
        until(&format!("a heartbeat of {bridge} at 30"), || {
            let status = status(&server, bridge)?;
            (status["next_seq"] == 30 && status["trust"] == "exact")
                .then(|| status["epoch"].clone())
        })
    };
    assert_eq!(epoch("a"), epoch("b"));
    for bridge in [&a, &b] {
        let named = json!({"state": "named", "epoch": epoch("a")});
        assert_eq!(bridge.replica("a")["life"], named);
    }
    a.signal("-KILL");
    a.wait();
    engine.publish(10);
    b.standing("a", "exact", 40);
    each_once(&log_reaches(&server, 1, 40));
    until("the dead one is silent", || status(&server, "a").is_none().then_some(()));
    // The other dies too; what comes meanwhile is fetched from the journal by the next one.
    b.signal("-KILL");
    b.wait();
    engine.publish(6);
    let b = Bridge::start(&folder);
    b.standing("a", "exact", 46);
    engine.publish(2);
    let messages = log_reaches(&server, 1, 48);
    each_once(&messages);
    assert_eq!(resets(&messages), []);
    assert_eq!(last_said(&messages, "b"), Some(Trust::Exact));
}

#[test]
fn a_frozen_twin_neither_renames_the_next_life_nor_swallows_it() {
    let server = Server::started("lives_frozen");
    let mut engine = Engine::start();
    let (_, a) = bridge(&server, &engine, "frozen", "a");
    engine.wait_subscriber();
    let (_, b) = bridge(&server, &engine, "frozen", "b");
    engine.publish(30);
    a.standing("a", "exact", 30);
    b.standing("a", "exact", 30);
    log_reaches(&server, 1, 30);
    a.signal("-STOP");
    engine.restart(SECOND_LIFE);
    engine.wait_subscriber();
    engine.publish(2);
    b.standing("a", "exact", 2);
    log_reaches(&server, 2, 2);
    a.signal("-CONT");
    a.standing("a", "exact", 2);
    engine.publish(2);
    a.standing("a", "exact", 4);
    b.standing("a", "exact", 4);
    let mut messages = log_reaches(&server, 2, 4);
    each_once(&messages);
    let second = messages.iter().map(|message| message.epoch).max();
    messages.retain(|message| Some(message.epoch) == second);
    assert_eq!(resets(&messages), []);
    until("both speak of the second life", || {
        let of = |bridge: &str| Some(status(&server, bridge)?["next_seq"] == 4);
        (of("a")? && of("b")?).then_some(())
    });
    // Alone, the one that was frozen goes on with it.
    b.signal("-KILL");
    b.wait();
}

/// A bridge whose view went on while the bus was away, killed with all that waited for the bus.
fn killed_with_a_full_spool(test: &str) -> (Server, Engine, PathBuf) {
    let mut server = Server::started(test);
    let mut engine = Engine::start();
    let (folder, a) = bridge(&server, &engine, test, "a");
    engine.wait_subscriber();
    engine.publish(20);
    a.standing("a", "exact", 20);
    log_reaches(&server, 1, 20);
    server.kill();
    engine.publish(15);
    a.standing("a", "exact", 35);
    let checkpoint = folder.join("state/m.a.0.ckpt");
    until("a checkpoint of it", || {
        // 35 in msgpack is one byte.
        let bytes = std::fs::read(&checkpoint).ok()?;
        bytes.windows(11).any(|part| part == b"resume_seq\x23").then_some(())
    });
    a.signal("-KILL");
    a.wait();
    server.start();
    (server, engine, folder)
}

#[test]
fn what_a_killed_bridge_did_not_send_comes_from_the_journal() {
    let (server, mut engine, folder) = killed_with_a_full_spool("lives_sigkill");
    let a = Bridge::start(&folder);
    a.standing("a", "exact", 35);
    engine.publish(5);
    a.standing("a", "exact", 40);
    let messages = log_reaches(&server, 1, 40);
    each_once(&messages);
    assert_eq!(resets(&messages), []);
}

#[test]
fn what_neither_the_bus_nor_the_journal_has_is_a_reset_over_exactly_that() {
    let (server, mut engine, folder) = killed_with_a_full_spool("lives_sigkill_lost");
    engine.set(&json!({"hole": (20..32).collect::<Vec<u64>>()}));
    let a = Bridge::start(&folder);
    a.standing("a", "exact", 35);
    engine.publish(5);
    a.standing("a", "exact", 40);
    let messages = log_reaches(&server, 1, 40);
    each_once(&messages);
    assert_eq!(resets(&messages), [(20, 15)]);
    // Its view has what the log lacks: a reader that meets the reset gets it from there.
    let folder = crate::harness::folder("lives_sigkill_lost_reader");
    configure(&folder, &[], &format!("[bus]\nkind = \"nats\"\nurl = \"{}\"\n", server.url()));
    let reader = Bridge::start(&folder);
    until("the reader has it", || {
        let found = reader.replica("a");
        (found["trust"] == "exact" && found["next_seq"] == 40).then_some(())
    });
    let blocks = |of: &Bridge| of.blocks("a").lines().map(str::to_owned).collect::<BTreeSet<_>>();
    assert_eq!(blocks(&reader), blocks(&a));
    assert!(!blocks(&a).is_empty());
}

#[test]
fn a_reader_hears_who_speaks_and_when_nobody_does() {
    let server = Server::started("lives_vouch");
    let mut engine = Engine::start();
    let (_, a) = bridge(&server, &engine, "vouch", "a");
    engine.wait_subscriber();
    engine.publish(10);
    a.standing("a", "exact", 10);
    log_reaches(&server, 1, 10);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let vouches = VouchWatch::new(Clock::start(), BUS_STATUS_TTL);
    let replica = Replica { model: "m".to_owned(), instance: "a".to_owned(), rank: 0 };
    let mut best = vouches.follow(&replica.key());
    assert_eq!(*best.borrow(), Upstream::Silent);
    runtime.block_on(async {
        let context = server.jetstream().await;
        let streams = nats_bus::config(&server).streams;
        let heard = async {
            best.wait_for(|best| {
                matches!(best, Upstream::Vouched { cursor, trust: Trust::Exact, .. }
                    if cursor.next_seq == Seq(10))
            })
            .await
            .unwrap();
            a.signal("-KILL");
            best.wait_for(|best| *best == Upstream::Silent).await.unwrap();
        };
        tokio::select! {
            why = nats::hear(&context, &streams, &vouches) => panic!("{why}"),
            () = heard => (),
        }
    });
    a.wait();
}
