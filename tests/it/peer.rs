//! The engine's side: libzmq in a process of its own, driven by JSON lines.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{OnceLock, mpsc},
    time::Duration,
};

use serde_json::{Value, json};

/// No test waits longer for one thing.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A recording by the name of its file; without an engine's name it is one of vLLM.
pub(crate) fn recording(name: &str) -> String {
    if name.starts_with("sglang-") { name.to_owned() } else { format!("vllm-{name}") }
}

pub(crate) fn capture(name: &str) -> PathBuf {
    root().join(format!("tests/fixtures/{}.jsonl", recording(name)))
}

/// A folder that tests may write to.
pub(crate) fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// `zmq_peer.py`; killed when dropped.
pub(crate) struct Peer {
    process: Child,
    stdin: ChildStdin,
    lines: mpsc::Receiver<Value>,
    ready: Value,
}

/// The python with pyzmq. Making it may take a while, once.
fn python() -> &'static str {
    static PYTHON: OnceLock<String> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let script = root().join("tests/peers/ensure_venv.sh");
        let made = Command::new(script).stderr(Stdio::inherit()).output().unwrap();
        assert!(made.status.success(), "no python with pyzmq: the libzmq tests need it");
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    })
}

impl Peer {
    /// Plays a capture, with more options of the script.
    pub(crate) fn play(capture: &Path, options: &[&str]) -> Peer {
        let mut process = Command::new(python())
            .arg(root().join("tests/peers/zmq_peer.py"))
            .arg("--capture")
            .arg(capture)
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = process.stdin.take().unwrap();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        let (said, lines) = mpsc::sync_channel(16);
        std::thread::spawn(move || {
            for line in stdout.lines() {
                let line = serde_json::from_str(&line.unwrap()).unwrap();
                if said.send(line).is_err() {
                    return;
                }
            }
        });
        let mut peer = Peer { process, stdin, lines, ready: Value::Null };
        peer.ready = peer.line();
        peer
    }

    fn line(&self) -> Value {
        self.lines.recv_timeout(LIMIT).expect("the peer answers")
    }

    fn command(&mut self, command: &Value) -> Value {
        writeln!(self.stdin, "{command}").unwrap();
        self.line()
    }

    /// Publishes the next `count` batches; returns how many of the capture were left.
    pub(crate) fn publish(&mut self, count: u64) -> u64 {
        self.command(&json!({"cmd": "publish", "n": count}))["n"].as_u64().unwrap()
    }

    /// Waits for a subscription that came after the last start.
    pub(crate) fn wait_subscriber(&mut self) {
        assert_eq!(self.command(&json!({"cmd": "wait_subscriber"}))["event"], "subscriber");
    }

    /// Changes faults.
    pub(crate) fn set(&mut self, faults: &Value) {
        let mut command = json!({"cmd": "set"});
        command.as_object_mut().unwrap().extend(faults.as_object().unwrap().clone());
        assert_eq!(self.command(&command)["event"], "set");
    }

    /// A new life at the same ports, which plays from a position of the capture on. It has
    /// published `published` batches before anybody can ask for them.
    pub(crate) fn restart(&mut self, from: u64, published: u64) {
        let command = json!({"cmd": "restart", "from": from, "publish": published});
        assert_eq!(self.command(&command)["event"], "restarted");
    }

    /// A new life behind a proxy: its journal is new, the live connection is the old one.
    pub(crate) fn restart_unseen(&mut self, from: u64, published: u64) {
        let command =
            json!({"cmd": "restart", "from": from, "publish": published, "keep_live": true});
        assert_eq!(self.command(&command)["event"], "restarted");
    }

    fn port(&self, name: &str) -> u64 {
        self.ready[name].as_u64().unwrap()
    }

    pub(crate) fn live(&self) -> String {
        format!("tcp://127.0.0.1:{}", self.port("live_port"))
    }

    pub(crate) fn replay(&self) -> String {
        format!("tcp://127.0.0.1:{}", self.port("replay_port"))
    }

    /// Options of `kvbridge run` that read this engine.
    pub(crate) fn source(&self) -> Vec<String> {
        self.source_of("--vllm")
    }

    /// The same for an engine by its flag.
    pub(crate) fn source_of(&self, flag: &str) -> Vec<String> {
        let options = [flag, &self.live(), "--replay", &self.replay()].map(str::to_owned);
        [options.to_vec(), named()].concat()
    }

    /// The same without a journal.
    pub(crate) fn source_without_replay(&self) -> Vec<String> {
        [vec!["--vllm".to_owned(), self.live()], named()].concat()
    }
}

/// A model and an instance for the source before it.
pub(crate) fn named() -> Vec<String> {
    ["--model", "m", "--instance", "engine:8000"].map(str::to_owned).to_vec()
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
