//! A fake engine and a bridge that reads it, both as processes, and what is asked of them.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use serde_json::{Value, json};
use tokio::time::Instant;

pub(crate) use super::lines::lines;
use super::started::{bridge, fake_engine};
use crate::program::{Running, kvbridge, without_authorities};

/// No test waits longer for one thing.
const LIMIT: Duration = Duration::from_secs(60);

/// Looks before something that nobody announces counts as missing; a minute of them.
const LOOKS_MAX: u32 = 3_000;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// A block with its place and copies: (last 8 bytes of its hash, tier, group, count). Engines of
/// 0.11 to 0.23 send whole hashes of the host tier beside numbers of the device, and the bridge
/// shows the longer form of a block wherever it is.
pub(crate) type Block = (String, String, Option<u64>, u64);

/// One rank of an engine, one bridge.
pub(crate) struct Pair {
    fake: Running,
    bridge: Running,
    pub(crate) fake_url: String,
    pub(crate) replica_url: String,
    /// The one that is looked at.
    rank: u32,
    pub(crate) client: reqwest::Client,
    /// What the bridge is started with.
    run: Vec<String>,
    state: Option<PathBuf>,
}

/// How a replica stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Status {
    pub(crate) trust: String,
    pub(crate) reason: String,
    pub(crate) epoch: u64,
    pub(crate) next_seq: u64,
}

impl Pair {
    /// Starts both; returns when the bridge is attached and has seen a first batch.
    pub(crate) async fn start(args: &str) -> Pair {
        Pair::start_with(args, |_| Vec::new()).await
    }

    /// The same of another engine.
    pub(crate) async fn of(engine: &str, args: &str) -> Pair {
        Pair::start_of(engine, args, |_| Vec::new()).await
    }

    /// The same with more options of the source, which may name the engine's HTTP address.
    pub(crate) async fn start_with(args: &str, source: impl Fn(&str) -> Vec<String>) -> Pair {
        Pair::start_of("vllm", args, source).await
    }

    async fn start_of(engine: &str, args: &str, source: impl Fn(&str) -> Vec<String>) -> Pair {
        let pair = Pair::begin(engine, args, source);
        pair.burst(3).await;
        pair.reach("exact").await;
        pair
    }

    /// Starts both and waits for nothing.
    pub(crate) fn begin(engine: &str, args: &str, source: impl Fn(&str) -> Vec<String>) -> Pair {
        Pair::join(engine, fake_engine(engine, "127.0.0.1:0", args), source, None)
    }

    /// The same with a bridge that keeps its view there.
    pub(crate) fn begin_keeping(engine: &str, args: &str, state: PathBuf) -> Pair {
        let fake = fake_engine(engine, "127.0.0.1:0", args);
        Pair::join(engine, fake, |_| Vec::new(), Some(state))
    }

    /// A bridge that comes when the engine has had so many requests and these faults wait.
    pub(crate) async fn late(
        (engine, args, source): (&str, &str, &str),
        bursts: u64,
        faults: &[Value],
    ) -> Pair {
        let fake = fake_engine(engine, "127.0.0.1:0", args);
        let control = format!("{}/control", fake.1["http"].as_str().unwrap());
        let client = crate::bridge::http_client();
        let burst = json!({"fault": "burst", "count": bursts});
        for fault in std::iter::once(&burst).chain(faults) {
            let answer = client.post(&control).body(fault.to_string()).send().await.unwrap();
            assert!(answer.status().is_success(), "{fault}");
        }
        let source = |_: &str| source.split_whitespace().map(str::to_owned).collect();
        Pair::join(engine, fake, source, None)
    }

    pub(crate) fn join(
        engine: &str,
        (fake, ports): (Running, Value),
        source: impl Fn(&str) -> Vec<String>,
        state: Option<PathBuf>,
    ) -> Pair {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let (live, replay) = (text(&ports["ranks"][0]["live"]), text(&ports["ranks"][0]["replay"]));
        let flag = format!("--{engine}");
        let mut run = vec!["run", "--listen", "127.0.0.1:0", &flag, &live];
        if !replay.is_empty() {
            run.extend(["--replay", &replay]);
        }
        if let Some(snapshot) = ports["ranks"][0]["snapshot"].as_str() {
            run.extend(["--snapshot", snapshot, "--plain-cache"]);
        }
        run.extend(["--model", "fake", "--instance", "i:1"]);
        let mut run: Vec<String> = run.into_iter().map(str::to_owned).collect();
        run.extend(source(&text(&ports["http"])));
        let (bridge, replica_url) = bridge(&run, state.as_deref());
        Pair {
            fake,
            bridge,
            fake_url: text(&ports["http"]),
            replica_url,
            rank: 0,
            client: crate::bridge::http_client(),
            run,
            state,
        }
    }

    /// The bridge is killed, and another one starts behind what happens meanwhile.
    pub(crate) async fn kill_and_start(&mut self, meanwhile: impl AsyncFnOnce(&Pair)) {
        self.bridge.kill();
        meanwhile(self).await;
        (self.bridge, self.replica_url) = bridge(&self.run, self.state.as_deref());
    }

    /// The bridge stops in order, and another one starts behind what happens meanwhile.
    pub(crate) async fn stop_and_start(&mut self, meanwhile: impl AsyncFnOnce(&Pair)) {
        self.bridge.signal("-TERM");
        assert_eq!(self.bridge.wait(), 0);
        meanwhile(self).await;
        (self.bridge, self.replica_url) = bridge(&self.run, self.state.as_deref());
    }

    /// The same of an engine that is known by its server alone, which that flag names. Returns when
    /// its replicas are there.
    pub(crate) async fn by_server(engine: &str, args: &str, flag: &str) -> Pair {
        let (fake, ports) = fake_engine(engine, "127.0.0.1:0", args);
        let fake_url = ports["http"].as_str().unwrap().to_owned();
        let mut command = without_authorities(kvbridge());
        command.args(["run", "--listen", "127.0.0.1:0", flag, &fake_url]);
        command.env("KVBRIDGE__DISCOVERY__REFRESH", "100ms");
        let mut bridge = Running::start(&mut command);
        let url = bridge.line().split_once(" on ").unwrap().1.to_owned();
        let (rank, client) = (0, crate::bridge::http_client());
        let replica_url = format!("{url}/v1/replicas/");
        let mut pair = Pair {
            fake,
            bridge,
            fake_url,
            replica_url,
            rank,
            client,
            run: Vec::new(),
            state: None,
        };
        let instance = pair.fake_url.strip_prefix("http://127.0.0.1:").unwrap();
        let key = format!("fake.127=2E0=2E0=2E1=3A{instance}.0");
        pair.replica_url.push_str(&key);
        for _ in 0..LOOKS_MAX {
            if pair.replicas().await.contains(&key) {
                return pair;
            }
            tokio::time::sleep(LOOK).await;
        }
        panic!("no replica was found");
    }

    /// The engine ends, and another process takes its server's place.
    pub(crate) fn replace(&mut self, engine: &str, args: &str) {
        let http = self.fake_url.strip_prefix("http://").unwrap().to_owned();
        self.fake.kill();
        // Connections to the one before are dead.
        self.client = crate::bridge::http_client();
        self.fake = fake_engine(engine, &http, args).0;
    }

    /// The keys of all replicas, in order.
    pub(crate) async fn replicas(&self) -> Vec<String> {
        let (url, _) = self.replica_url.rsplit_once('/').unwrap();
        let all: Value = serde_json::from_str(&self.text(url).await).unwrap();
        let all = all["replicas"].as_array().unwrap();
        all.iter().map(|it| it["key"].as_str().unwrap().to_owned()).collect()
    }

    /// Looks at another rank from now on.
    pub(crate) fn turn_to(&mut self, rank: u32) {
        let (key, _) = self.replica_url.rsplit_once('.').unwrap();
        self.replica_url = format!("{key}.{rank}");
        self.rank = rank;
    }

    /// Both end in order.
    pub(crate) fn end(self) {
        assert_eq!(self.bridge.end(Some("-TERM")).0, 0);
        assert_eq!(self.fake.end(Some("-TERM")).0, 0);
    }

    pub(crate) async fn fault(&self, fault: Value) {
        self.fault_by("/control", fault).await;
    }

    /// Of the rank that is looked at alone.
    pub(crate) async fn fault_here(&self, fault: Value) {
        self.fault_by(&format!("/control?rank={}", self.rank), fault).await;
    }

    async fn fault_by(&self, path: &str, fault: Value) {
        let url = format!("{}{path}", self.fake_url);
        let answer = self.client.post(url).body(fault.to_string()).send().await.unwrap();
        let status = answer.status();
        assert!(status.is_success(), "{fault}: {}", answer.text().await.unwrap());
    }

    /// So many requests at once, each with something to say.
    pub(crate) async fn burst(&self, count: u64) {
        self.fault(json!({"fault": "burst", "count": count})).await;
    }

    /// A completion; how many of its tokens were cached.
    pub(crate) async fn complete(&self, tokens: &[u32], output: u32, model: &str) -> u64 {
        let body = json!({"model": model, "prompt": tokens, "max_tokens": output});
        let url = format!("{}/v1/completions", self.fake_url);
        let answer = self.client.post(url).body(body.to_string()).send().await.unwrap();
        let answer: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        assert_eq!(answer["usage"]["completion_tokens"], output, "{answer}");
        answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    }

    pub(crate) async fn post(&self, path: &str) -> String {
        let answer = self.client.post(format!("{}{path}", self.fake_url)).send().await.unwrap();
        assert!(answer.status().is_success());
        answer.text().await.unwrap()
    }

    pub(crate) async fn metrics(&self) -> String {
        self.text(&format!("{}/metrics", self.fake_url)).await
    }

    /// What the bridge says of itself.
    pub(crate) async fn bridge_metrics(&self) -> String {
        let (url, _) = self.replica_url.split_once("/v1/").unwrap();
        self.text(&format!("{url}/metrics")).await
    }

    /// Whether an alarm of this replica rings.
    pub(crate) async fn rings(&self, alarm: &str) -> bool {
        let status: Value = serde_json::from_str(&self.text(&self.replica_url).await).unwrap();
        status["alarms"].as_array().unwrap().iter().any(|name| name == alarm)
    }

    /// How often the bridge told a fact of the rank that is looked at.
    pub(crate) async fn fact(&self, fact: &str) -> u64 {
        self.fact_of(self.rank, fact).await
    }

    pub(crate) async fn fact_of(&self, rank: u32, fact: &str) -> u64 {
        let replica = format!("replica=\"fake.i=3A1.{rank}\"");
        let line = format!("kvbridge_facts_total{{{replica},fact=\"{fact}\"}} ");
        let metrics = self.bridge_metrics().await;
        let found = metrics.lines().find_map(|text| text.strip_prefix(&line));
        found.map_or(0, |count| count.parse().unwrap())
    }

    /// What a match of a prompt says of the rank.
    pub(crate) async fn matched(&self, tokens: &[u32]) -> Value {
        let (url, _) = self.replica_url.split_once("/v1/").unwrap();
        let body = json!({"model": "fake", "token_ids": tokens}).to_string();
        let answer = self.client.post(format!("{url}/v1/match")).body(body).send().await.unwrap();
        let answer: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        answer["replicas"][0].clone()
    }

    pub(crate) async fn status(&self) -> Status {
        let status: Value = serde_json::from_str(&self.text(&self.replica_url).await).unwrap();
        let text = |name: &str| status[name].as_str().unwrap().to_owned();
        Status {
            trust: text("trust"),
            reason: text("reason"),
            epoch: status["epoch"].as_u64().unwrap(),
            next_seq: status["next_seq"].as_u64().unwrap(),
        }
    }

    /// Waits until the bridge has this trust and all that was published.
    pub(crate) async fn reach(&self, trust: &str) -> Status {
        let deadline = Instant::now() + LIMIT;
        loop {
            let (head, _) = self.truth().await;
            let status = self.status().await;
            let pending = head["pending"].as_bool().unwrap();
            if !pending && status.trust == trust && head["next_seq"] == status.next_seq {
                return status;
            }
            assert!(Instant::now() < deadline, "no {trust}: {status:?}, engine {head}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until the bridge has all below this seq, without traffic.
    pub(crate) async fn until_seq(&self, next_seq: u64) -> Status {
        let deadline = Instant::now() + LIMIT;
        loop {
            let status = self.status().await;
            if status.next_seq == next_seq && status.trust != "none" {
                return status;
            }
            assert!(Instant::now() < deadline, "not at {next_seq}: {status:?}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until the bridge says so, under traffic: an idle engine proves no restart.
    pub(crate) async fn until(&self, what: &str, fact: impl Fn(&Status) -> bool) -> Status {
        let deadline = Instant::now() + LIMIT;
        loop {
            let status = self.status().await;
            if fact(&status) {
                return status;
            }
            assert!(Instant::now() < deadline, "not {what}: {status:?}");
            self.burst(1).await;
            tokio::time::sleep(LOOK).await;
        }
    }

    /// What the engine really has, and its seq.
    pub(crate) async fn truth(&self) -> (Value, BTreeSet<Block>) {
        lines(&self.text(&format!("{}/truth?rank={}", self.fake_url, self.rank)).await)
    }

    /// What the bridge holds, and its seq.
    pub(crate) async fn snapshot(&self) -> (Value, BTreeSet<Block>) {
        lines(&self.text(&format!("{}/snapshot", self.replica_url)).await)
    }

    /// Exact, at the engine's seq, and the very blocks with their copies.
    pub(crate) async fn is_true(&self) -> Status {
        let status = self.reach("exact").await;
        let (head, truth) = self.truth().await;
        let (header, held) = self.snapshot().await;
        assert_eq!(header["resume_seq"], head["next_seq"]);
        assert_eq!(header["trust"], "exact");
        let ghosts: Vec<_> = held.difference(&truth).take(3).collect();
        let missing: Vec<_> = truth.difference(&held).take(3).collect();
        assert!(ghosts.is_empty() && missing.is_empty(), "ghosts {ghosts:?}, missing {missing:?}");
        assert!(!truth.is_empty());
        status
    }

    /// A lower bound, at the engine's seq: nothing held that the engine has not.
    pub(crate) async fn is_lower_bound(&self) -> Status {
        let status = self.reach("lower_bound").await;
        let (head, truth) = self.truth().await;
        let (header, held) = self.snapshot().await;
        assert_eq!(header["resume_seq"], head["next_seq"]);
        let place = |(hash, tier, group, _): &Block| (hash.clone(), tier.clone(), *group);
        let real: BTreeSet<_> = truth.iter().map(place).collect();
        let ghosts: Vec<_> = held.iter().filter(|block| !real.contains(&place(block))).collect();
        assert!(ghosts.is_empty(), "{ghosts:?}");
        status
    }

    /// Asks again while there is no such replica: one whose engine is found elsewhere is opened
    /// anew.
    async fn text(&self, url: &str) -> String {
        for _ in 0..LOOKS_MAX {
            let answer = self.client.get(url).send().await.unwrap();
            if answer.status().as_u16() != 404 {
                return answer.text().await.unwrap();
            }
            tokio::time::sleep(LOOK).await;
        }
        panic!("{url}: not found");
    }
}
