//! The real program beside engines on libzmq, looked at from outside: HTTP, signals, exit codes.

use std::{
    fmt::Write as _,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    sync::OnceLock,
    thread,
    time::Duration,
};

use kvbridge::clock::Clock;
use serde_json::{Value, json};

/// The longest that anything here may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks at a fact that nobody announces.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Looks until `fact` is there.
pub(crate) fn until<T>(what: &str, mut fact: impl FnMut() -> Option<T>) -> T {
    let clock = Clock::start();
    loop {
        if let Some(found) = fact() {
            return found;
        }
        assert!(clock.elapsed() < PATIENCE, "{what} did not come true");
        thread::park_timeout(LOOK_EVERY);
    }
}

/// An empty folder of one test.
pub(crate) fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if path.exists() {
        std::fs::remove_dir_all(&path).unwrap();
    }
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// An engine's two sockets: `tests/peers/zmq_peer.py` with a recording of two lives, 62 batches and
/// 4.
pub(crate) struct Engine {
    process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    pub(crate) live: u64,
    replay: u64,
}

/// Where the second life begins in the recording.
pub(crate) const SECOND_LIFE: u64 = 62;

pub(crate) fn python() -> &'static str {
    static PYTHON: OnceLock<String> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/ensure_venv.sh");
        let made = Command::new(script).stderr(Stdio::inherit()).output().unwrap();
        assert!(made.status.success(), "no python with pyzmq");
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    })
}

impl Engine {
    pub(crate) fn start() -> Engine {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        let mut process = Command::new(python())
            .arg(root.join("peers/zmq_peer.py"))
            .arg("--capture")
            .arg(root.join("fixtures/vllm-0.32.0-basic.jsonl"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let commands = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        let mut engine = Engine { process, commands, answers, live: 0, replay: 0 };
        let ready = engine.answer();
        engine.live = ready["live_port"].as_u64().unwrap();
        engine.replay = ready["replay_port"].as_u64().unwrap();
        engine
    }

    fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn command(&mut self, command: &Value) -> Value {
        writeln!(self.commands, "{command}").unwrap();
        self.answer()
    }

    pub(crate) fn publish(&mut self, n: u64) {
        assert_eq!(self.command(&json!({"cmd": "publish", "n": n}))["n"], n);
    }

    pub(crate) fn wait_subscriber(&mut self) {
        self.command(&json!({"cmd": "wait_subscriber"}));
    }

    /// Changes faults.
    pub(crate) fn set(&mut self, faults: &Value) {
        let mut command = json!({"cmd": "set"});
        command.as_object_mut().unwrap().extend(faults.as_object().unwrap().clone());
        assert_eq!(self.command(&command)["event"], "set");
    }

    /// Another life, from that place of the recording.
    pub(crate) fn restart(&mut self, from: u64) {
        self.command(&json!({"cmd": "restart", "from": from}));
    }

    /// The same as `POST /v1/sources` takes it.
    pub(crate) fn source_json(&self, name: &str, instance: &str) -> String {
        json!({
            "name": name, "engine": "vllm", "model": "m", "instance": instance,
            "endpoint": format!("tcp://127.0.0.1:{}", self.live),
            "replay": format!("tcp://127.0.0.1:{}", self.replay),
        })
        .to_string()
    }

    /// Its `[[sources]]` entry.
    pub(crate) fn source(&self, instance: &str) -> String {
        format!(
            "[[sources]]\nengine = \"vllm\"\nmodel = \"m\"\ninstance = \"{instance}\"\n\
             endpoint = \"tcp://127.0.0.1:{}\"\nreplay = \"tcp://127.0.0.1:{}\"\n",
            self.live, self.replay
        )
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// A running kvbridge.
pub(crate) struct Bridge {
    child: Child,
    address: String,
}

/// A configuration file with these sources, and a state folder beside it.
pub(crate) fn configure(folder: &Path, sources: &[String], more: &str) {
    let mut text = sources.concat();
    write!(text, "[http]\nlisten = \"127.0.0.1:0\"\n").unwrap();
    write!(text, "[state]\ndir = \"state\"\ninterval = \"50ms\"\n{more}\n").unwrap();
    std::fs::write(folder.join("kvbridge.toml"), text).unwrap();
}

/// One request to `host:port`; `None` when nobody answers.
pub(crate) fn send(
    address: &str,
    (method, path): (&str, &str),
    body: &str,
) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    );
    stream.write_all(head.as_bytes()).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

impl Bridge {
    /// The program as a command, in `folder`.
    pub(crate) fn command(folder: &Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kvbridge"));
        command.current_dir(folder).args(["--log", "off", "run"]);
        command
    }

    pub(crate) fn start(folder: &Path) -> Bridge {
        Bridge::start_as(Bridge::command(folder))
    }

    /// The same by a command of the test's own.
    pub(crate) fn start_as(mut command: Command) -> Bridge {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().split_once("http://").expect("a banner").1.to_owned();
        Bridge { child, address }
    }

    /// Where it answers.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// One request; `None` when nobody answers.
    pub(crate) fn ask(&self, method: &str, path: &str) -> Option<(u16, String)> {
        self.send(method, path, "")
    }

    /// The same with a body.
    pub(crate) fn send(&self, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
        send(&self.address, (method, path), body)
    }

    /// The lines of `/v1/events` from now on.
    pub(crate) fn events(&self) -> impl Iterator<Item = String> + use<> {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").unwrap();
        let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
        // Whoever has read the first standing is told everything from then on.
        assert!(lines.any(|line| line.starts_with("event: standing")));
        lines
    }

    /// How a replica stands; null when there is none.
    pub(crate) fn replica(&self, instance: &str) -> Value {
        let (status, body) = self.ask("GET", &format!("/v1/replicas/m.{instance}.0")).unwrap();
        if status == 200 { serde_json::from_str(&body).unwrap() } else { Value::Null }
    }

    pub(crate) fn standing(&self, instance: &str, trust: &str, next_seq: u64) -> Value {
        let mut last = Value::Null;
        let clock = Clock::start();
        until(&format!("{instance} {trust} at {next_seq}"), || {
            last = self.replica(instance);
            assert!(clock.elapsed() < PATIENCE / 2, "{instance} {trust} at {next_seq}, is {last}");
            (last["trust"] == trust && last["next_seq"] == next_seq).then(|| last.clone())
        })
    }

    /// Every block with its place and count.
    pub(crate) fn blocks(&self, instance: &str) -> String {
        let path = format!("/v1/replicas/m.{instance}.0/snapshot");
        let (status, body) = self.ask("GET", &path).unwrap();
        assert_eq!(status, 200);
        body.lines().filter(|line| line.contains("\"hash\"")).collect::<Vec<_>>().join("\n")
    }

    /// The value of a metric line that begins so.
    pub(crate) fn metric(&self, line: &str) -> String {
        let (_, text) = self.ask("GET", "/metrics").unwrap();
        let found = text.lines().find_map(|found| found.strip_prefix(line));
        found.unwrap_or_default().trim().to_owned()
    }

    /// How many files the process has open.
    pub(crate) fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    pub(crate) fn wait(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Asks for an orderly end and waits for it.
    pub(crate) fn end(self) {
        self.signal("-TERM");
        assert_eq!(self.wait().code(), Some(0));
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
