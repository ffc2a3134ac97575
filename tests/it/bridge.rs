//! The bridge's side: the real process, its API, and everything its event stream says.

use std::{
    fs::File,
    future::Future,
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::Value;
use tokio::runtime::Runtime;

use crate::{
    oracle::{State, Text},
    peer::{LIMIT, scratch},
};

/// Between two looks at a condition.
const POLL: Duration = Duration::from_millis(5);

/// An orderly stop is done by then.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// Quick reconnects; no probe or audit within a test, unless it sets one.
const CONFIG: &str = "[limits]\nreconnect_min = \"5ms\"\nreconnect_max = \"20ms\"\n";

/// An event of `/v1/events`: its name and its data.
type Said = (String, Value);

/// `kvbridge run`; killed when dropped.
pub(crate) struct Bridge {
    process: Child,
    out: BufReader<ChildStdout>,
    pub(crate) url: String,
    pub(crate) client: reqwest::Client,
    runtime: Runtime,
    said: Arc<Mutex<Vec<Said>>>,
}

/// Polls until `look` finds something.
async fn found<T, F: Future<Output = Option<T>>>(mut look: impl FnMut() -> F) -> Option<T> {
    let polled = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(POLL).await;
        }
    };
    tokio::time::timeout(LIMIT, polled).await.ok()
}

async fn listen(mut stream: reqwest::Response, said: Arc<Mutex<Vec<Said>>>) {
    let mut text = Vec::new();
    while let Ok(Some(chunk)) = stream.chunk().await {
        text.extend_from_slice(&chunk);
        while let Some(end) = text.windows(2).position(|pair| pair == b"\n\n") {
            let event = String::from_utf8(text.drain(..end + 2).collect()).unwrap();
            let field = |name| event.lines().find_map(|line: &str| line.strip_prefix(name));
            let (Some(name), Some(data)) = (field("event: "), field("data: ")) else { continue };
            let data = serde_json::from_str(data).unwrap();
            said.lock().unwrap().push((name.to_owned(), data));
        }
    }
}

impl Bridge {
    /// Runs with these source options and lines of configuration.
    pub(crate) fn run(name: &str, sources: &[Vec<String>], config: &str) -> Bridge {
        let bridge = Bridge::begin(name, sources, config);
        let stream = bridge.send(bridge.client.get(format!("{}/v1/events", bridge.url)));
        bridge.runtime.spawn(listen(stream, Arc::clone(&bridge.said)));
        bridge.heard("the first standing", |said| (!said.is_empty()).then_some(()));
        bridge
    }

    /// Runs without a source; nobody listens to its events.
    pub(crate) fn run_silent(name: &str, config: &str) -> Bridge {
        Bridge::begin(name, &[], config)
    }

    fn begin(name: &str, sources: &[Vec<String>], config: &str) -> Bridge {
        let path = scratch(&format!("{name}.toml"));
        std::fs::write(&path, format!("{CONFIG}{config}")).unwrap();
        let log = File::create(scratch(&format!("{name}.log"))).unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_kvbridge"))
            .current_dir(env!("CARGO_TARGET_TMPDIR"))
            .args(["--log", "debug", "run", "--listen", "127.0.0.1:0", "--config"])
            .arg(&path)
            .args(sources.concat())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut out = BufReader::new(process.stdout.take().unwrap());
        let mut banner = String::new();
        out.read_line(&mut banner).unwrap();
        let url = banner.trim_end().split_once(" on ").expect("a banner").1.to_owned();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let client = http_client();
        let said = Arc::new(Mutex::new(Vec::new()));
        Bridge { process, out, url, client, runtime, said }
    }

    /// Shows a token with every request from now on.
    pub(crate) fn sign_in(&mut self, token: &str) {
        let mut headers = reqwest::header::HeaderMap::new();
        headers.insert("authorization", format!("Bearer {token}").parse().unwrap());
        let client = reqwest::Client::builder().no_proxy().default_headers(headers);
        self.client = client.build().unwrap();
    }

    /// The next line of what it says at its start.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line
    }

    fn send(&self, request: reqwest::RequestBuilder) -> reqwest::Response {
        self.runtime.block_on(request.send()).unwrap()
    }

    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// Status and body of a request.
    pub(crate) fn ask(&self, request: reqwest::RequestBuilder) -> (u16, String) {
        let response = self.send(request);
        let status = response.status().as_u16();
        (status, self.block_on(response.text()).unwrap())
    }

    pub(crate) fn get(&self, path: &str) -> String {
        let (status, body) = self.ask(self.client.get(format!("{}{path}", self.url)));
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> (u16, Value) {
        let request = self.client.post(format!("{}{path}", self.url)).body(body.to_owned());
        let (status, body) = self.ask(request);
        (status, serde_json::from_str(&body).unwrap())
    }

    /// All replicas, by rank.
    pub(crate) fn replicas(&self) -> Vec<Value> {
        let mut listed: Value = serde_json::from_str(&self.get("/v1/replicas")).unwrap();
        serde_json::from_value(listed["replicas"].take()).unwrap()
    }

    /// Waits until the replica of a rank is as wanted.
    pub(crate) fn until_rank(
        &self,
        rank: usize,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        let url = format!("{}/v1/replicas", self.url);
        let last = Mutex::new(Value::Null);
        let reached = self.block_on(found(async || {
            let body = self.client.get(&url).send().await.unwrap().text().await.unwrap();
            let mut listed: Value = serde_json::from_str(&body).unwrap();
            let replica = listed["replicas"][rank].take();
            last.lock().unwrap().clone_from(&replica);
            wanted(&replica).then_some(replica)
        }));
        reached.unwrap_or_else(|| panic!("not {what}, but {}", last.lock().unwrap()))
    }

    /// Waits for a trust and a next seq.
    pub(crate) fn reaches(&self, trust: &str, next_seq: u64) -> Value {
        self.rank_reaches(0, trust, next_seq)
    }

    pub(crate) fn rank_reaches(&self, rank: usize, trust: &str, next_seq: u64) -> Value {
        self.until_rank(rank, &format!("{trust} at {next_seq}"), |replica| {
            replica["trust"] == trust && replica["next_seq"] == next_seq
        })
    }

    /// Waits for a trust and its reason.
    pub(crate) fn stands(&self, trust: &str, reason: &str) -> Value {
        self.until_rank(0, &format!("{trust} ({reason})"), |replica| {
            replica["trust"] == trust && replica["reason"] == reason
        })
    }

    /// Waits until the event stream has told something.
    pub(crate) fn heard<T>(&self, what: &str, wanted: impl Fn(&[Said]) -> Option<T>) -> T {
        let reached = self.block_on(found(async || wanted(&self.said.lock().unwrap())));
        reached.unwrap_or_else(|| panic!("not heard: {what}"))
    }

    pub(crate) fn said(&self) -> Vec<Said> {
        self.said.lock().unwrap().clone()
    }

    /// Every trust that was ever told, in order, with its reason.
    pub(crate) fn trusts(&self) -> Vec<String> {
        let said = self.said();
        let standings = said.iter().filter(|(name, _)| name == "standing");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        standings.map(|(_, s)| format!("{} {}", text(&s["trust"]), text(&s["reason"]))).collect()
    }

    /// How often a fact of the decision table was recorded.
    pub(crate) fn fact(&self, fact: &str) -> u64 {
        self.metric("kvbridge_facts_total", &format!("fact=\"{fact}\""))
    }

    /// The sum of a counter's series that have this label.
    pub(crate) fn metric(&self, name: &str, label: &str) -> u64 {
        let text = self.get("/metrics");
        let series = text.lines().filter(|line| line.starts_with(name) && line.contains(label));
        series.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
    }

    pub(crate) fn until_fact(&self, fact: &str, count: u64) {
        for _ in 0..LIMIT.as_millis() / POLL.as_millis() {
            if self.fact(fact) >= count {
                return;
            }
            self.block_on(async { tokio::time::sleep(POLL).await });
        }
        panic!("fact {fact} has not come {count} times");
    }

    /// The view, as its snapshot tells it, is the oracle's.
    pub(crate) fn view_is(&self, oracle: &State) {
        self.rank_view_is(0, oracle);
    }

    pub(crate) fn rank_view_is(&self, rank: usize, oracle: &State) {
        let standing = self.replicas().swap_remove(rank);
        let key = standing.text("key");
        let text = self.get(&format!("/v1/replicas/{key}/snapshot"));
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [header, records @ .., end] = lines.as_slice() else { panic!("no snapshot: {text}") };
        assert_eq!(header["trust"], standing["trust"]);
        assert_eq!(header["resume_seq"], standing["next_seq"]);
        assert_eq!(header["epoch"], standing["epoch"]);
        assert_eq!(header["blocks"].as_u64(), end["blocks"].as_u64());
        assert_eq!(end["end"], true);
        assert_eq!(usize::try_from(end["blocks"].as_u64().unwrap()).unwrap(), records.len());
        let none: [String; 0] = [];
        assert_eq!(State::of_snapshot(records).difference(&oracle.redacted()), none);
    }

    /// Waits until matches are answered from a version: the index follows the view.
    pub(crate) fn until_usable(&self, next_seq: u64) {
        let url = format!("{}/v1/match", self.url);
        let usable = self.block_on(found(async || {
            let request = self.client.post(&url).body(r#"{"model":"m","token_ids":[1]}"#);
            let answer = request.send().await.unwrap().text().await.unwrap();
            let answer: Value = serde_json::from_str(&answer).unwrap();
            let replica = &answer["replicas"][0];
            let reached = replica["usable"] == true && replica["as_of"]["next_seq"] == next_seq;
            reached.then_some(())
        }));
        usable.expect("a usable answer");
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: &str) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// Waits for an orderly end: exit code and the rest of its output.
    pub(crate) fn ended(mut self) -> (Option<i32>, String) {
        let process = &mut self.process;
        let polled = async {
            loop {
                if let Some(status) = process.try_wait().unwrap() {
                    return status.code();
                }
                tokio::time::sleep(POLL).await;
            }
        };
        let code = self.runtime.block_on(async { tokio::time::timeout(STOP_LIMIT, polled).await });
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        (code.expect("it ends in time"), rest)
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// A client of plain HTTP. The TLS library wants a provider named even where none is used.
pub(crate) fn http_client() -> reqwest::Client {
    // A second install is refused, which is fine: the first one is the same.
    drop(tokio_rustls::rustls::crypto::ring::default_provider().install_default());
    reqwest::Client::builder().no_proxy().build().unwrap()
}
