//! An index that reads the bus alone: real server, real bridge, fake engine, and what the engine
//! really holds.

use std::{collections::BTreeSet, process::Command, time::Duration};

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    bridge::http_client,
    fake_engine::peer::{Block, lines},
    nats_server::Server,
    program::{Running, kvbridge, one_life},
};

/// No test waits longer for one thing.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Between two looks.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

pub(crate) const STREAM: &str = "KVHINTS_fake";
pub(crate) const KEY: &str = "fake.i=3A1.0";

pub(crate) fn key_of(rank: u32) -> String {
    format!("fake.i=3A1.{rank}")
}

pub(crate) struct World {
    pub(crate) server: Server,
    fake: Running,
    pub(crate) fake_url: String,
    pub(crate) ports: (String, String),
    pub(crate) client: reqwest::Client,
    /// The server has the users of `kvbridge bus permissions`.
    has_users: bool,
}

/// A kvbridge of this world.
pub(crate) struct Program {
    pub(crate) running: Running,
    pub(crate) url: String,
}

/// As the user of a role.
pub(crate) fn as_user(command: &mut Command, role: &str) {
    command
        .env("KVBRIDGE__BUS__USER", format!("kvbridge-{role}"))
        .env("KVBRIDGE__BUS__PASSWORD", format!("secret-of-{role}"));
}

impl World {
    pub(crate) fn start(name: &str) -> World {
        World::on(Server::started(name), false)
    }

    pub(crate) fn on(server: Server, has_users: bool) -> World {
        World::of("", server, has_users)
    }

    /// The same with more options of the engine, or another one.
    pub(crate) fn of(engine: &str, server: Server, has_users: bool) -> World {
        let mut command = kvbridge();
        command.args("fake-engine --ports-json --pub 0 --replay 0".split(' '));
        command.args(["--http", "127.0.0.1:0", "--step-ms", "1", "--blocks", "96"]);
        if !engine.contains("--engine") {
            command.args(["--engine", "vllm"]);
        }
        command.args(engine.split_whitespace());
        let mut fake = Running::start(&mut command);
        let ports: Value = serde_json::from_str(&fake.line()).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        World {
            server,
            fake,
            fake_url: text(&ports["http"]),
            ports: (text(&ports["ranks"][0]["live"]), text(&ports["ranks"][0]["replay"])),
            client: http_client(),
            has_users,
        }
    }

    pub(crate) fn command(&self, snapshots: &str, role: &str) -> Command {
        let mut command = kvbridge();
        if self.has_users {
            as_user(&mut command, role);
        }
        command
            .args(["run", "--listen", "127.0.0.1:0"])
            .env("KVBRIDGE__BUS__KIND", "nats")
            .env("KVBRIDGE__BUS__URL", self.server.url())
            .env("KVBRIDGE__BUS__SNAPSHOT_INTERVAL", snapshots)
            .env("KVBRIDGE__RECOVERY__IDLE_PROBE", "1s");
        command
    }

    /// Reads the engine, writes the bus.
    pub(crate) async fn bridge(&self, snapshots: &str) -> Program {
        let mut command = self.command(snapshots, "bridge");
        command.args(["--vllm", &self.ports.0, "--replay", &self.ports.1]);
        command.args(["--model", "fake", "--instance", "i:1"]);
        let bridge = Program::start(command);
        self.burst(3).await;
        self.is_true(&bridge).await;
        bridge
    }

    /// Reads the bus alone.
    pub(crate) fn index(&self) -> Program {
        Program::start(self.command("1h", "index"))
    }

    pub(crate) async fn fault(&self, fault: Value) {
        let answer = self.client.post(format!("{}/control", self.fake_url)).body(fault.to_string());
        assert!(answer.send().await.unwrap().status().is_success());
    }

    pub(crate) async fn burst(&self, count: u64) {
        self.fault(json!({"fault": "burst", "count": count})).await;
    }

    pub(crate) async fn text(&self, url: &str) -> String {
        match self.client.get(url).send().await {
            Ok(answer) => answer.text().await.unwrap(),
            Err(error) => error.to_string(),
        }
    }

    pub(crate) async fn status(&self, of: &Program) -> Value {
        self.status_of(of, 0).await
    }

    pub(crate) async fn status_of(&self, of: &Program, rank: u32) -> Value {
        let text = self.text(&format!("{}/v1/replicas/{}", of.url, key_of(rank))).await;
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// What the engine holds in that rank.
    pub(crate) async fn truth_of(&self, rank: u32) -> (Value, BTreeSet<Block>) {
        lines(&self.text(&format!("{}/truth?rank={rank}", self.fake_url)).await)
    }

    /// What a program says that it holds.
    pub(crate) async fn held_by(&self, of: &Program, rank: u32) -> (Value, BTreeSet<Block>) {
        let url = format!("{}/v1/replicas/{}/snapshot", of.url, key_of(rank));
        lines(&self.text(&url).await)
    }

    /// Waits until it is exact at the engine's seq, and compares every block.
    pub(crate) async fn is_true(&self, of: &Program) -> Value {
        self.is_true_of(of, 0).await
    }

    pub(crate) async fn is_true_of(&self, of: &Program, rank: u32) -> Value {
        let deadline = Instant::now() + LIMIT;
        loop {
            let (head, truth) = self.truth_of(rank).await;
            let status = self.status_of(of, rank).await;
            let there = status["trust"] == "exact" && status["next_seq"] == head["next_seq"];
            if there && head["pending"] == false {
                let (header, held) = self.held_by(of, rank).await;
                assert_eq!(header["resume_seq"], head["next_seq"]);
                let ghosts: Vec<_> = held.difference(&truth).take(3).collect();
                let missing: Vec<_> = truth.difference(&held).take(3).collect();
                assert!(ghosts.is_empty() && missing.is_empty(), "{ghosts:?} {missing:?}");
                assert!(!truth.is_empty());
                return status;
            }
            assert!(Instant::now() < deadline, "engine {head}, reader {status}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// How often a fact was recorded.
    pub(crate) async fn fact(&self, of: &Program, fact: &str) -> u64 {
        let text = self.text(&format!("{}/metrics", of.url)).await;
        let named = format!("fact=\"{fact}\"");
        let line = text
            .lines()
            .find(|line| line.starts_with("kvbridge_facts_total") && line.contains(&named));
        line.map_or(0, |line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
    }

    pub(crate) async fn metric(&self, of: &Program, name: &str) -> u64 {
        let text = self.text(&format!("{}/metrics", of.url)).await;
        let line = text.lines().find(|line| line.starts_with(name));
        line.map_or(0, |line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
    }

    pub(crate) async fn until_stored(&self, bridge: &Program, count: u64) {
        let deadline = Instant::now() + LIMIT;
        while self.metric(bridge, "kvbridge_bus_snapshots_stored_total").await < count {
            assert!(Instant::now() < deadline, "no snapshot is stored");
            // A view that does not move is not stored again.
            self.burst(1).await;
            tokio::time::sleep(LOOK).await;
        }
    }

    pub(crate) fn end(self, programs: impl IntoIterator<Item = Program>) {
        for program in programs {
            assert_eq!(program.running.end(Some("-TERM")).0, 0);
        }
        assert_eq!(self.fake.end(Some("-TERM")).0, 0);
    }
}

impl Program {
    pub(crate) fn start(mut command: Command) -> Program {
        let mut running = Running::start(&mut command);
        let url = running.line().split_once(" on ").unwrap().1.to_owned();
        Program { running, url }
    }
}

/// Nothing is stored yet: the whole log is read from its first message.
#[tokio::test]
async fn an_index_learns_from_the_log_alone_what_the_engine_holds() {
    let world = World::start("reader-log");
    let bridge = world.bridge("1h").await;
    for _ in 0..4 {
        world.burst(60).await;
        world.is_true(&bridge).await;
    }
    let index = world.index();
    world.is_true(&index).await;
    for _ in 0..4 {
        world.burst(30).await;
        world.is_true(&index).await;
    }
    let match_body = json!({"model": "fake", "token_ids": [1, 2, 3]}).to_string();
    let answer = world.client.post(format!("{}/v1/match", index.url)).body(match_body);
    let answer = answer.send().await.unwrap().text().await.unwrap();
    assert!(answer.contains("\"usable\":true"), "{answer}");
    world.end([bridge, index]);
}

/// A restarted index goes on from the bridge's snapshot and the tail behind it.
#[tokio::test]
async fn an_index_that_comes_back_is_exact_from_snapshot_and_tail() {
    let world = World::start("reader-snapshot");
    let bridge = world.bridge("200ms").await;
    let index = world.index();
    world.burst(80).await;
    world.is_true(&index).await;
    world.until_stored(&bridge, 2).await;
    assert_eq!(index.running.end(Some("-TERM")).0, 0);
    world.burst(5).await;
    let index = world.index();
    world.is_true(&index).await;
    assert_eq!(world.fact(&index, "installed").await, 1);
    assert_eq!(world.fact(&index, "no_history").await, 0);
    world.burst(20).await;
    world.is_true(&index).await;
    world.end([bridge, index]);
}

/// Nothing is left on the stream, and what was stored leads to what is gone: a fresh one is asked
/// for.
#[tokio::test]
async fn a_purged_log_is_replaced_by_a_fresh_snapshot() {
    let world = World::start("reader-purged");
    let bridge = world.bridge("1h").await;
    world.burst(40).await;
    world.is_true(&bridge).await;
    let stream = world.server.jetstream().await.get_stream(STREAM).await.unwrap();
    stream.purge().await.unwrap();
    let index = world.index();
    world.burst(1).await;
    world.is_true(&index).await;
    assert!(world.fact(&index, "installed").await >= 1);
    world.burst(30).await;
    world.is_true(&index).await;
    world.end([bridge, index]);
}

#[tokio::test]
async fn a_server_that_is_killed_and_comes_back_costs_no_trust_for_good() {
    let mut world = World::start("reader-killed");
    let bridge = world.bridge("500ms").await;
    let index = world.index();
    world.is_true(&index).await;
    world.server.kill();
    world.burst(40).await;
    world.is_true(&bridge).await;
    world.server.start();
    world.is_true(&index).await;
    world.burst(40).await;
    world.is_true(&index).await;
    world.end([bridge, index]);
}

/// Places of the old stream mean nothing on the new one.
#[tokio::test]
async fn a_stream_that_is_deleted_and_made_anew_converges() {
    let world = World::start("reader-deleted");
    let bridge = world.bridge("300ms").await;
    let index = world.index();
    world.burst(40).await;
    world.is_true(&index).await;
    world.server.jetstream().await.delete_stream(STREAM).await.unwrap();
    world.burst(10).await;
    world.is_true(&bridge).await;
    world.is_true(&index).await;
    world.burst(10).await;
    world.is_true(&index).await;
    world.end([bridge, index]);
}

/// A new life of the engine is a new epoch for whoever reads the bus.
#[tokio::test]
async fn a_restart_of_the_engine_reaches_the_index() {
    let world = World::start("reader-restart");
    let bridge = world.bridge("300ms").await;
    let index = world.index();
    world.burst(40).await;
    let before = world.is_true(&index).await;
    world.fault(json!({"fault": "restart"})).await;
    let deadline = Instant::now() + LIMIT;
    // Under traffic: an engine that is idle proves no restart.
    while world.status(&bridge).await["epoch"].as_u64() <= before["epoch"].as_u64() {
        assert!(Instant::now() < deadline, "the bridge sees no restart");
        world.burst(1).await;
        tokio::time::sleep(LOOK).await;
    }
    world.is_true(&bridge).await;
    let after = world.is_true(&index).await;
    assert!(after["epoch"].as_u64() > before["epoch"].as_u64());
    world.end([bridge, index]);
}

/// A process with an engine and `bus.read` reads the others' replicas, and its own from its engine.
#[tokio::test]
async fn a_process_that_is_both_reads_nothing_twice() {
    let world = World::start("reader-both");
    let mut command = world.command("1h", "bridge");
    command.args(["--vllm", &world.ports.0, "--replay", &world.ports.1]);
    command.args(["--model", "fake", "--instance", "i:1"]).env("KVBRIDGE__BUS__READ", "true");
    let both = Program::start(command);
    world.burst(3).await;
    world.is_true(&both).await;
    let mut other = world.command("1h", "bridge");
    other.args(["--rate", "1000", "--play"]).arg(one_life("reader-both.jsonl"));
    let other = Program::start(other);
    let deadline = Instant::now() + LIMIT;
    loop {
        let text = world.text(&format!("{}/v1/replicas", both.url)).await;
        let listed: Value = serde_json::from_str(&text).unwrap();
        let listed = listed["replicas"].as_array().unwrap();
        let exact = listed.iter().filter(|replica| replica["trust"] == "exact").count();
        if (listed.len(), exact) == (2, 2) {
            break;
        }
        assert!(listed.len() <= 2 && Instant::now() < deadline, "{text}");
        tokio::time::sleep(LOOK).await;
    }
    let read = world.text(&format!("{}/metrics", both.url)).await;
    // A bridge looks back into its log only where its engine's journal falls short.
    let own = format!("kvbridge_bus_read_total{{replica=\"{KEY}\"}} ");
    let count = read.lines().find_map(|line| line.strip_prefix(&own));
    assert_eq!(count.unwrap_or("0"), "0", "its own log is not read");
    world.burst(20).await;
    world.is_true(&both).await;
    world.end([both, other]);
}
