//! A fake engine and a bridge that reads it, both as processes, and what is asked of them.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::program::{Running, kvbridge, without_authorities};

/// No test waits longer for one thing.
const LIMIT: Duration = Duration::from_secs(60);

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
    fake_url: String,
    replica_url: String,
    /// The one that is looked at.
    rank: u32,
    client: reqwest::Client,
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
        Pair::begin_keeping(engine, args, source, None)
    }

    /// The same with a bridge that keeps its view there.
    pub(crate) fn begin_keeping(
        engine: &str,
        args: &str,
        source: impl Fn(&str) -> Vec<String>,
        state: Option<PathBuf>,
    ) -> Pair {
        let mut command = kvbridge();
        command.args(["fake-engine", "--engine", engine]);
        command.args("--ports-json --pub 0 --replay 0".split(' '));
        command.args(["--http", "127.0.0.1:0", "--step-ms", "1"]).args(args.split_whitespace());
        let mut fake = Running::start(&mut command);
        let ports: Value = serde_json::from_str(&fake.line()).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let (live, replay) = (text(&ports["ranks"][0]["live"]), text(&ports["ranks"][0]["replay"]));
        let flag = format!("--{engine}");
        let mut run = vec!["run", "--listen", "127.0.0.1:0", &flag, &live];
        if !replay.is_empty() {
            run.extend(["--replay", &replay]);
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

    /// The bridge stops in order, and another one starts behind what happens meanwhile.
    pub(crate) async fn stop_and_start(&mut self, meanwhile: impl AsyncFnOnce(&Pair)) {
        self.bridge.signal("-TERM");
        assert_eq!(self.bridge.wait(), 0);
        meanwhile(self).await;
        (self.bridge, self.replica_url) = bridge(&self.run, self.state.as_deref());
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

    async fn text(&self, url: &str) -> String {
        self.client.get(url).send().await.unwrap().text().await.unwrap()
    }
}

/// A bridge, and where its first replica is.
fn bridge(run: &[String], state: Option<&Path>) -> (Running, String) {
    let mut command = without_authorities(kvbridge());
    if let Some(state) = state {
        command.env("KVBRIDGE__STATE__DIR", state);
    }
    let mut bridge = Running::start(command.args(run));
    let url = bridge.line().split_once(" on ").unwrap().1.to_owned();
    let line = bridge.line();
    let (key, _) = line.trim().split_once(": ").unwrap();
    (bridge, format!("{url}/v1/replicas/{key}"))
}

/// A header, one line a block, an end.
pub(crate) fn lines(text: &str) -> (Value, BTreeSet<Block>) {
    let mut lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.pop().unwrap()["end"], true);
    let head = lines.remove(0);
    let block = |line: &Value| {
        let text = |name: &str| line[name].as_str().unwrap().to_owned();
        let group = match &line["group"] {
            Value::Object(group) => group["index"].as_u64(),
            group => group.as_u64(),
        };
        let hash = text("hash");
        let tail = hash.len().saturating_sub(16);
        (hash[tail..].to_owned(), text("tier"), group, line["count"].as_u64().unwrap())
    };
    (head, lines.iter().map(block).collect())
}
