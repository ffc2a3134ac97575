//! Two bridges on one engine that is drained: one asks it, the other follows the log and goes on
//! when the first one is gone. A view holds what the engine has, or nobody says it is exact.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    bus_reader::{KEY, LIMIT, LOOK, Program, World, key_of},
    nats_permissions::{printed, publish, refused},
    nats_server::Server,
};

/// An idle engine is woken after so long.
const PULSE_EVERY: Duration = Duration::from_secs(8);

/// Longer than a question that found nothing is open.
const STEADY: Duration = Duration::from_secs(1);

/// So often.
const PULSES_MAX: u32 = 5;

struct Turns {
    world: World,
    ranks: u32,
}

impl Turns {
    fn start(name: &str, ranks: u32) -> Turns {
        Turns::on(Server::started(name), ranks, false)
    }

    fn on(server: Server, ranks: u32, has_users: bool) -> Turns {
        let engine = format!("--engine trtllm --drain-wait-ms 60 --dp {ranks}");
        Turns { world: World::of(&engine, server, has_users), ranks }
    }

    fn bridge(&self, name: &str) -> Program {
        let mut command = self.world.command("1h", "bridge");
        command
            .args(["--trtllm", &self.world.ports.0, "--model", "fake", "--instance", "i:1"])
            .args(["--dp", &self.ranks.to_string()])
            .env("KVBRIDGE__BUS__BRIDGE", name);
        Program::start(command)
    }

    /// Whether this one asks the engine, which is of all ranks or of none.
    async fn asks(&self, bridge: &Program) -> bool {
        let metrics = self.world.text(&format!("{}/metrics", bridge.url)).await;
        let holds = |rank| {
            metrics.contains(&format!("kvbridge_lease_held{{replica=\"{}\"}} 1", key_of(rank)))
        };
        let held = (0..self.ranks).filter(|rank| holds(*rank)).count();
        held == usize::try_from(self.ranks).unwrap()
    }

    /// Every rank is exact there, with the engine's blocks; and in which lives.
    async fn are_true(&self, bridge: &Program) -> Vec<u64> {
        let mut epochs = Vec::new();
        for rank in 0..self.ranks {
            epochs.push(self.is_true_in(bridge, rank).await["epoch"].as_u64().unwrap());
        }
        epochs
    }

    /// A lease that was late under load and came back leaves a view that waits for the next event.
    async fn is_true_in(&self, bridge: &Program, rank: u32) -> Value {
        for _ in 0..PULSES_MAX {
            let is_true = self.world.is_true_of(bridge, rank);
            if let Ok(status) = tokio::time::timeout(PULSE_EVERY, is_true).await {
                return status;
            }
            self.world.burst(1).await;
        }
        self.world.is_true_of(bridge, rank).await
    }

    async fn until_asks(&self, bridge: &Program, wanted: bool) {
        let deadline = Instant::now() + LIMIT;
        while self.asks(bridge).await != wanted {
            assert!(Instant::now() < deadline, "asks: {wanted} is never so");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The two in order: whoever asks, and has for a while. Before that the other one may have had
    /// the lease and lost it, and its last question may still take what the engine has to tell.
    async fn in_order(&self, pair: [Program; 2]) -> [Program; 2] {
        let deadline = Instant::now() + LIMIT;
        let mut held = ([false; 2], Instant::now());
        loop {
            let asks = [self.asks(&pair[0]).await, self.asks(&pair[1]).await];
            assert_ne!(asks, [true, true], "both ask");
            if asks != held.0 {
                held = (asks, Instant::now());
            }
            if asks != [false, false] && held.1.elapsed() >= STEADY {
                let [a, b] = pair;
                return if asks[0] { [a, b] } else { [b, a] };
            }
            assert!(Instant::now() < deadline, "nobody asks");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// At the engine's newest event it holds what the engine has, or is not exact; in every rank.
    /// How many are exact.
    async fn settles(&self, bridge: &Program) -> u32 {
        let mut exact = 0;
        for rank in 0..self.ranks {
            exact += u32::from(self.settles_with_pulses(bridge, rank).await);
        }
        exact
    }

    /// A rank that another one's gap demoted knows its place with its next event.
    async fn settles_with_pulses(&self, bridge: &Program, rank: u32) -> bool {
        for _ in 0..PULSES_MAX {
            let settles = self.settles_in(bridge, rank);
            if let Ok(is_exact) = tokio::time::timeout(PULSE_EVERY, settles).await {
                return is_exact;
            }
            self.world.burst(1).await;
        }
        self.settles_in(bridge, rank).await
    }

    async fn settles_in(&self, bridge: &Program, rank: u32) -> bool {
        let deadline = Instant::now() + LIMIT;
        loop {
            let (head, truth) = self.world.truth_of(rank).await;
            let status = self.world.status_of(bridge, rank).await;
            let at_end = head["pending"] == false && status["next_seq"] == head["next_seq"];
            if at_end && status["trust"] != "none" {
                let (_, held) = self.world.held_by(bridge, rank).await;
                assert!(held.is_subset(&truth), "ghosts: {status}");
                assert!(status["trust"] != "exact" || held == truth, "missing: {status}");
                return status["trust"] == "exact";
            }
            assert!(Instant::now() < deadline, "{status}, engine {head}");
            tokio::time::sleep(LOOK).await;
        }
    }
}

#[tokio::test]
async fn one_asks_and_another_goes_on_when_it_is_gone() {
    let turns = Turns::start("nats-turns", 1);
    let world = &turns.world;
    let pair = turns.in_order([turns.bridge("a"), turns.bridge("b")]).await;
    let [first, second] = pair;
    world.burst(30).await;
    let epoch = world.is_true(&first).await["epoch"].clone();
    assert_eq!(world.is_true(&second).await["epoch"], epoch);
    assert!(!turns.asks(&second).await);
    // Killed while nothing was on its way: the events that follow fit.
    first.running.signal("-KILL");
    drop(first);
    turns.until_asks(&second, true).await;
    world.burst(10).await;
    assert_eq!(world.is_true(&second).await["epoch"], epoch);
    // In order: the answer that is under way is published, and the lease given back.
    let third = turns.bridge("c");
    world.is_true(&third).await;
    world.burst(20).await;
    assert_eq!(second.running.end(Some("-TERM")).0, 0);
    turns.until_asks(&third, true).await;
    world.burst(10).await;
    assert_eq!(world.is_true(&third).await["epoch"], epoch);
    // Killed in the middle of it all: what it had taken may be lost, and then it is said.
    let fourth = turns.bridge("d");
    world.is_true(&fourth).await;
    world.burst(40).await;
    third.running.signal("-KILL");
    drop(third);
    world.burst(40).await;
    turns.until_asks(&fourth, true).await;
    world.burst(10).await;
    turns.settles(&fourth).await;
}

#[tokio::test]
async fn a_frozen_holder_wakes_up_without_the_right() {
    let turns = Turns::start("nats-turns-frozen", 1);
    let world = &turns.world;
    let [first, second] = turns.in_order([turns.bridge("a"), turns.bridge("b")]).await;
    world.burst(30).await;
    world.is_true(&first).await;
    world.is_true(&second).await;
    first.running.signal("-STOP");
    turns.until_asks(&second, true).await;
    world.burst(20).await;
    turns.settles(&second).await;
    first.running.signal("-CONT");
    turns.until_asks(&first, false).await;
    // One answer that it was frozen over at most; then the other one misses nothing any more.
    world.burst(20).await;
    turns.settles(&second).await;
    let gaps = || async {
        let metrics = world.text(&format!("{}/metrics", second.url)).await;
        let line = format!("kvbridge_gaps_total{{replica=\"{KEY}\"}} ");
        metrics.lines().find_map(|text| text.strip_prefix(&line)).map(str::to_owned)
    };
    let before = gaps().await;
    for _ in 0..5 {
        world.burst(10).await;
        turns.settles(&second).await;
    }
    assert!(before.is_some() && gaps().await == before, "{before:?}");
    assert!(turns.asks(&second).await && !turns.asks(&first).await);
}

/// One reader drains the events of all ranks together, so the ranks change hands together.
#[tokio::test]
async fn both_ranks_of_an_engine_have_one_reader_and_change_hands_together() {
    let turns = Turns::start("nats-turns-ranks", 2);
    let world = &turns.world;
    let [first, second] = turns.in_order([turns.bridge("a"), turns.bridge("b")]).await;
    world.burst(30).await;
    let epochs = turns.are_true(&first).await;
    assert_eq!(turns.are_true(&second).await, epochs);
    let index = world.index();
    assert_eq!(turns.are_true(&index).await, epochs);
    // Killed while nothing was on its way: the events of both ranks that follow fit.
    first.running.signal("-KILL");
    drop(first);
    turns.until_asks(&second, true).await;
    world.burst(10).await;
    assert_eq!(turns.are_true(&second).await, epochs);
    assert_eq!(turns.are_true(&index).await, epochs);
    // Killed in the middle of it all: what is lost is said, of every rank that may lack it.
    let third = turns.bridge("c");
    turns.are_true(&third).await;
    world.burst(40).await;
    second.running.signal("-KILL");
    drop(second);
    world.burst(40).await;
    turns.until_asks(&third, true).await;
    world.burst(10).await;
    let exact = turns.settles(&third).await;
    assert!(exact == 0 || exact == 2, "{exact} of 2 ranks lost nothing of what was lost together");
    turns.settles(&index).await;
    // A new process of the engine is one of both ranks, and nothing is missing of it.
    world.fault(json!({"fault": "restart"})).await;
    world.burst(10).await;
    let after = turns.are_true(&third).await;
    assert!(after.iter().zip(&epochs).all(|(after, before)| after > before), "{after:?}");
    assert_eq!(turns.are_true(&index).await, after);
}

/// The lease is a key of its own: its permission is printed for bridges, and no other role has it.
#[tokio::test]
async fn bridges_take_turns_under_exactly_what_is_printed() {
    let mut server = Server::prepared("nats-turns-users", &printed(&["--model", "fake"]));
    server.start();
    let turns = Turns::on(server, 1, true);
    let world = &turns.world;
    let [first, second] = turns.in_order([turns.bridge("a"), turns.bridge("b")]).await;
    world.burst(10).await;
    let epochs = turns.are_true(&first).await;
    first.running.signal("-KILL");
    drop(first);
    turns.until_asks(&second, true).await;
    world.burst(10).await;
    assert_eq!(turns.are_true(&second).await, epochs);
    // In order: the lease is given back, which is another message.
    assert_eq!(second.running.end(Some("-TERM")).0, 0);
    assert_eq!(refused(world), Vec::<String>::new(), "they need more than is printed");
    let lease = format!("$KV.KVSTATUS.=lease.{KEY}");
    for (role, subject) in [
        ("index", lease.as_str()),
        ("viewer", lease.as_str()),
        ("bridge", "$KV.KVSTATUS.=lease.other.i.0"),
    ] {
        let said = publish(world, role, subject).await;
        assert!(said.contains("permissions violation"), "{role} to {subject}: {said}");
    }
}
