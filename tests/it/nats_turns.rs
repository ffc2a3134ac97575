//! Two bridges on one engine that is drained: one asks it, the other follows the log and goes on
//! when the first one is gone. A view holds what the engine has, or nobody says it is exact.

use tokio::time::Instant;

use crate::{
    bus_reader::{KEY, LIMIT, LOOK, Program, World},
    fake_engine::peer::lines,
    nats_server::Server,
};

struct Turns {
    world: World,
}

impl Turns {
    fn start(name: &str) -> Turns {
        let engine = "--engine trtllm --drain-wait-ms 60";
        Turns { world: World::of(engine, Server::started(name), false) }
    }

    fn bridge(&self, name: &str) -> Program {
        let mut command = self.world.command("1h", "bridge");
        command
            .args(["--trtllm", &self.world.ports.0, "--model", "fake", "--instance", "i:1"])
            .env("KVBRIDGE__BUS__BRIDGE", name);
        Program::start(command)
    }

    /// Whether this one asks the engine.
    async fn asks(&self, bridge: &Program) -> bool {
        let metrics = self.world.text(&format!("{}/metrics", bridge.url)).await;
        metrics.contains(&format!("kvbridge_lease_held{{replica=\"{KEY}\"}} 1"))
    }

    async fn until_asks(&self, bridge: &Program, wanted: bool) {
        let deadline = Instant::now() + LIMIT;
        while self.asks(bridge).await != wanted {
            assert!(Instant::now() < deadline, "asks: {wanted} is never so");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The two in order: whoever asks first.
    async fn in_order(&self, pair: [Program; 2]) -> [Program; 2] {
        let deadline = Instant::now() + LIMIT;
        loop {
            match (self.asks(&pair[0]).await, self.asks(&pair[1]).await) {
                (true, false) => return pair,
                (false, true) => {
                    let [first, second] = pair;
                    return [second, first];
                }
                (true, true) => panic!("both ask"),
                (false, false) => (),
            }
            assert!(Instant::now() < deadline, "nobody asks");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// At the engine's newest event it holds what the engine has, or is not exact.
    async fn settles(&self, bridge: &Program) -> bool {
        let deadline = Instant::now() + LIMIT;
        loop {
            let truth = self.world.text(&format!("{}/truth?rank=0", self.world.fake_url)).await;
            let (head, truth) = lines(&truth);
            let status = self.world.status(bridge).await;
            let at_end = head["pending"] == false && status["next_seq"] == head["next_seq"];
            if at_end && status["trust"] != "none" {
                let url = format!("{}/v1/replicas/{KEY}/snapshot", bridge.url);
                let (_, held) = lines(&self.world.text(&url).await);
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
    let turns = Turns::start("nats-turns");
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
    let turns = Turns::start("nats-turns-frozen");
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
