//! A fake engine, a bridge that reads it and an index that reads the bridge's bus, as processes.

use std::{collections::BTreeSet, path::PathBuf, process::Command, time::Duration};

use serde_json::{Value, json};

use crate::{
    fake_engine::peer::{Block, lines},
    harness::folder,
    program::{Running, kvbridge},
};

/// A fake engine with one rank.
pub(crate) struct Engine {
    pub(crate) process: Running,
    pub(crate) live: String,
    pub(crate) replay: String,
    pub(crate) http: String,
}

impl Engine {
    pub(crate) fn start() -> Engine {
        let mut command = kvbridge();
        command.args("fake-engine --engine vllm --ports-json --pub 0 --replay 0".split(' '));
        command.args("--http 127.0.0.1:0 --step-ms 1 --blocks 256".split(' '));
        let mut process = Running::start(&mut command);
        let ports: Value = serde_json::from_str(&process.line()).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let rank = &ports["ranks"][0];
        let (live, replay) = (text(&rank["live"]), text(&rank["replay"]));
        Engine { process, live, replay, http: text(&ports["http"]) }
    }

    pub(crate) async fn fault(&self, client: &reqwest::Client, fault: Value) {
        let url = format!("{}/control", self.http);
        let answer = client.post(url).body(fault.to_string()).send().await.unwrap();
        assert!(answer.status().is_success());
    }
}

/// A kvbridge with its folder, which outlives the process.
pub(crate) struct Program {
    pub(crate) process: Option<Running>,
    pub(crate) folder: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) url: String,
    /// Where the bus publishes and answers.
    pub(crate) live: String,
    pub(crate) requests: String,
}

impl Program {
    /// Runs on a configuration; its banner tells the ports.
    pub(crate) fn start(name: &str, config: &str, args: &[&str]) -> Program {
        let folder = folder(name);
        std::fs::write(folder.join("kvbridge.toml"), config).unwrap();
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        let (url, live, requests) = (String::new(), String::new(), String::new());
        let mut program = Program { process: None, folder, args, url, live, requests };
        program.run();
        program
    }

    pub(crate) fn run(&mut self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kvbridge"));
        command.current_dir(&self.folder).args(["--log", "off", "run", "--listen", "127.0.0.1:0"]);
        let mut process = Running::start(command.args(&self.args));
        self.url = process.line().split_once(" on ").unwrap().1.to_owned();
        loop {
            let line = process.line();
            assert!(!line.is_empty(), "the banner names the bus");
            if let Some(place) = line.trim().strip_prefix("bus: ") {
                if let Some((live, requests)) = place.split_once(", requests ") {
                    self.live = live.to_owned();
                    requests.clone_into(&mut self.requests);
                }
                break;
            }
        }
        self.process = Some(process);
    }

    /// Where the ports of the first start stay.
    pub(crate) fn fix_ports(&self) {
        let path = self.folder.join("kvbridge.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        let (_, live) = self.live.split_once("tcp://").unwrap();
        let (_, requests) = self.requests.split_once("tcp://").unwrap();
        let text = text
            .replace("listen = \"127.0.0.1:0\"", &format!("listen = \"{live}\""))
            .replace("requests = \"127.0.0.1:0\"", &format!("requests = \"{requests}\""));
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn end(&mut self) {
        let process = self.process.take().unwrap();
        assert_eq!(process.end(Some("-TERM")).0, 0);
    }

    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    pub(crate) fn signal(&self, signal: &str) {
        self.process.as_ref().unwrap().signal(signal);
    }
}

/// All three, and a client of their HTTP.
pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) bridge: Program,
    pub(crate) index: Program,
    pub(crate) client: reqwest::Client,
}

pub(crate) const KEY: &str = "fake.i=3A1.0";

impl World {
    pub(crate) async fn start(name: &str, bus: &str) -> World {
        let engine = Engine::start();
        let config = format!(
            "[[sources]]\nengine = \"vllm\"\nmodel = \"fake\"\ninstance = \"i:1\"\n\
             endpoint = \"{}\"\nreplay = \"{}\"\n\
             [bus]\nkind = \"zmq\"\nlisten = \"127.0.0.1:0\"\nrequests = \"127.0.0.1:0\"\n{bus}\n\
             [state]\ndir = \"state\"\ninterval = \"100ms\"\n",
            engine.live, engine.replay
        );
        let bridge =
            Program::start(&format!("{name}-bridge"), &config, &["--config", "kvbridge.toml"]);
        bridge.fix_ports();
        let config = format!("[bus]\nkind = \"zmq\"\nconnect = [\"{}\"]\n", bridge.requests);
        let index =
            Program::start(&format!("{name}-index"), &config, &["--config", "kvbridge.toml"]);
        let world = World { engine, bridge, index, client: crate::bridge::http_client() };
        world.burst(20).await;
        world.is_true().await;
        world
    }

    pub(crate) async fn burst(&self, count: u64) {
        self.engine.fault(&self.client, json!({"fault": "burst", "count": count})).await;
    }

    pub(crate) async fn get(&self, url: &str) -> Option<String> {
        let answer = self.client.get(url).send().await.ok()?;
        let good = answer.status().is_success();
        answer.text().await.ok().filter(|_| good)
    }

    pub(crate) async fn truth(&self) -> (Value, BTreeSet<Block>) {
        lines(&self.get(&format!("{}/truth?rank=0", self.engine.http)).await.unwrap())
    }

    pub(crate) async fn replica(&self, program: &Program) -> Value {
        let text = self.get(&format!("{}/v1/replicas/{KEY}", program.url)).await;
        text.map_or(Value::Null, |text| serde_json::from_str(&text).unwrap())
    }

    /// Waits until the index says so.
    pub(crate) async fn until(&self, what: &str, fact: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        for _ in 0..3000 {
            last = self.replica(&self.index).await;
            if fact(&last) {
                return last;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("index is not {what}: {last}, bridge {}", self.replica(&self.bridge).await)
    }

    /// Where the engine is when it has said all that it did.
    async fn engine_seq(&self) -> u64 {
        loop {
            let (head, _) = self.truth().await;
            if head["pending"] == false {
                return head["next_seq"].as_u64().unwrap();
            }
        }
    }

    /// What the index holds at that seq.
    async fn held(&self, next_seq: u64, trust: &str) -> BTreeSet<Block> {
        let url = format!("{}/v1/replicas/{KEY}/snapshot", self.index.url);
        let (header, held) = lines(&self.get(&url).await.unwrap());
        assert_eq!((&header["resume_seq"], &header["trust"]), (&json!(next_seq), &json!(trust)));
        held
    }

    /// The index is a lower bound at the engine's seq, and holds nothing that the engine has not.
    pub(crate) async fn is_lower_bound(&self, reason: &str) {
        let next_seq = self.engine_seq().await;
        self.until(&format!("a lower bound at {next_seq}"), |status| {
            (&status["trust"], &status["reason"]) == (&json!("lower_bound"), &json!(reason))
                && status["next_seq"] == next_seq
        })
        .await;
        let place = |(hash, tier, group, _): &Block| (hash.clone(), tier.clone(), *group);
        let real: BTreeSet<_> = self.truth().await.1.iter().map(place).collect();
        let held = self.held(next_seq, "lower_bound").await;
        let ghosts: Vec<_> = held.iter().filter(|block| !real.contains(&place(block))).collect();
        assert!(ghosts.is_empty(), "{ghosts:?}");
    }

    /// The index is exact at the engine's seq, with the very blocks and their copies.
    pub(crate) async fn is_true(&self) -> Value {
        let next_seq = self.engine_seq().await;
        let status = self
            .until(&format!("exact at {next_seq}"), |status| {
                status["trust"] == "exact" && status["next_seq"] == next_seq
            })
            .await;
        let (_, truth) = self.truth().await;
        let held = self.held(next_seq, "exact").await;
        let ghosts: Vec<_> = held.difference(&truth).take(3).collect();
        let missing: Vec<_> = truth.difference(&held).take(3).collect();
        assert!(ghosts.is_empty() && missing.is_empty(), "ghosts {ghosts:?}, missing {missing:?}");
        status
    }

    pub(crate) async fn metric(&self, program: &Program, line: &str) -> u64 {
        let text = self.get(&format!("{}/metrics", program.url)).await.unwrap();
        let found = text.lines().find_map(|found| found.strip_prefix(line));
        found.and_then(|found| found.trim().parse().ok()).unwrap_or(0)
    }

    /// Waits until the bridge has counted so many.
    pub(crate) async fn counts(&self, line: &str, count: u64) {
        let mut last = 0;
        for _ in 0..3000 {
            last = self.metric(&self.bridge, line).await;
            if last == count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{line} is {last}, not {count}");
    }

    /// How often the index recorded it.
    pub(crate) async fn fact(&self, fact: &str) -> u64 {
        let line = format!("kvbridge_facts_total{{replica=\"{KEY}\",fact=\"{fact}\"}}");
        self.metric(&self.index, &line).await
    }

    pub(crate) fn end(mut self) {
        self.index.end();
        self.bridge.end();
        assert_eq!(self.engine.process.end(Some("-TERM")).0, 0);
    }
}
