//! Three servers, three copies of everything: one is killed, one is frozen, under load. Nothing
//! that was acknowledged is lost, and who reads ends exact.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, TcpListener},
};

use futures::TryStreamExt;
use kvbridge::schemas::Event;
use tokio::time::Instant;

use crate::{
    bus_reader::{LIMIT, LOOK, Program, STREAM, World},
    nats_server::Server,
};

struct Cluster {
    /// The first server is the world's.
    world: World,
    others: Vec<Server>,
}

impl Cluster {
    fn start(name: &str) -> Cluster {
        let listeners: Vec<_> =
            (0..3).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
        let ports: Vec<_> = listeners.iter().map(|l| l.local_addr().unwrap().port()).collect();
        let routes: Vec<_> =
            ports.iter().map(|port| format!("\"nats://127.0.0.1:{port}\"")).collect();
        drop(listeners);
        let mut servers: Vec<_> = (0..)
            .zip(&ports)
            .map(|(node, port)| {
                let more = format!(
                    "server_name: n{node}\ncluster {{ name: c, listen: \"127.0.0.1:{port}\", \
                     routes: [{}] }}\n",
                    routes.join(", ")
                );
                Server::prepared(&format!("{name}-{node}"), &more)
            })
            .collect();
        servers.iter_mut().for_each(Server::start);
        let world = World::on(servers.remove(0), false);
        Cluster { world, others: servers }
    }

    fn node(&mut self, node: usize) -> &mut Server {
        match node.checked_sub(1) {
            None => &mut self.world.server,
            Some(other) => &mut self.others[other],
        }
    }

    /// A program of the world that knows all servers.
    fn program(&self, args: &[&str]) -> Program {
        let servers = std::iter::once(&self.world.server).chain(&self.others);
        let urls: Vec<_> = servers.map(Server::url).collect();
        let mut command = self.world.command("500ms", "bridge");
        command
            .args(args)
            .env("KVBRIDGE__BUS__URL", urls.join(","))
            .env("KVBRIDGE__BUS__REPLICAS", "3");
        Program::start(command)
    }

    /// A bridge and an index that agree with the engine.
    async fn pair(&self) -> (Program, Program) {
        let (live, replay) = &self.world.ports;
        let args = ["--vllm", live, "--replay", replay, "--model", "fake", "--instance", "i:1"];
        let bridge = self.program(&args);
        self.world.burst(3).await;
        self.world.is_true(&bridge).await;
        let index = self.program(&[]);
        self.world.is_true(&index).await;
        (bridge, index)
    }

    async fn published(&self, bridge: &Program) -> u64 {
        let line = format!("kvbridge_bus_published_total{{stream=\"{STREAM}\"}}");
        self.world.metric(bridge, &line).await
    }

    /// Traffic until so many more are acknowledged.
    async fn load(&self, bridge: &Program, more: u64) {
        let deadline = Instant::now() + LIMIT;
        let before = self.published(bridge).await;
        while self.published(bridge).await < before + more {
            assert!(Instant::now() < deadline, "nothing is published any more");
            self.world.burst(10).await;
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The number of the server that leads the stream.
    async fn leader(&self) -> usize {
        let context = self.world.server.jetstream().await;
        let stream = context.get_stream(STREAM).await.unwrap();
        let leader = stream.cached_info().cluster.clone().unwrap().leader.unwrap();
        leader.strip_prefix('n').unwrap().parse().unwrap()
    }

    /// Nothing was left out, and nothing was taken back.
    async fn log_is_whole(&self, bridge: &Program) {
        let messages = self.world.server.read(STREAM).await;
        let data = messages.iter().filter(|message| message.envelope.span == 1);
        let seqs: BTreeSet<_> = data.map(|message| message.seq).collect();
        let next_seq = self.world.status(bridge).await["next_seq"].as_u64().unwrap();
        assert_eq!(seqs, (0..next_seq).collect());
        let is_reset = |event: &Event| matches!(event, Event::Reset(_));
        assert!(!messages.iter().any(|m| m.envelope.events.iter().any(is_reset)));
    }

    /// The streams beside the log, buckets among them, have as many copies as the log.
    async fn all_has_three_copies(&self) {
        let context = self.world.server.jetstream().await;
        let infos: Vec<_> = context.streams().try_collect().await.unwrap();
        let copies: Vec<_> =
            infos.iter().map(|info| (&info.config.name, info.config.num_replicas)).collect();
        assert!(copies.len() >= 5 && copies.iter().all(|(_, copies)| *copies == 3), "{copies:?}");
    }
}

#[tokio::test]
async fn a_killed_leader_of_three_loses_nothing_and_readers_converge() {
    let mut cluster = Cluster::start("cluster-killed");
    let (bridge, index) = cluster.pair().await;
    cluster.load(&bridge, 300).await;
    let leader = cluster.leader().await;
    cluster.node(leader).kill();
    cluster.load(&bridge, 300).await;
    cluster.world.is_true(&index).await;
    cluster.node(leader).start();
    cluster.load(&bridge, 100).await;
    cluster.world.is_true(&index).await;
    cluster.log_is_whole(&bridge).await;
    cluster.all_has_three_copies().await;
    cluster.world.end([bridge, index]);
}

#[tokio::test]
async fn a_frozen_leader_of_three_is_gone_around_and_comes_back() {
    let mut cluster = Cluster::start("cluster-frozen");
    let (bridge, index) = cluster.pair().await;
    cluster.load(&bridge, 300).await;
    let leader = cluster.leader().await;
    cluster.node(leader).signal("-STOP");
    cluster.load(&bridge, 300).await;
    cluster.world.is_true(&index).await;
    cluster.node(leader).signal("-CONT");
    cluster.load(&bridge, 100).await;
    cluster.world.is_true(&index).await;
    cluster.log_is_whole(&bridge).await;
    cluster.world.end([bridge, index]);
}
