//! Starts the Python peers and speaks JSON lines with them.

use std::{path::PathBuf, process::Stdio};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::OnceCell,
};

use crate::support::soon;

/// A running peer; killed when dropped.
pub(crate) struct Peer {
    process: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
    pub(crate) ready: Value,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn fixture(name: &str) -> String {
    root().join("tests/fixtures").join(name).display().to_string()
}

/// The python with pyzmq. Making it may take a while, once.
async fn python() -> &'static str {
    static PYTHON: OnceCell<String> = OnceCell::const_new();
    PYTHON
        .get_or_init(|| async {
            let script = root().join("tests/peers/ensure_venv.sh");
            let made = Command::new(script).stderr(Stdio::inherit()).output().await;
            let made = made.expect("ensure_venv.sh runs");
            assert!(made.status.success(), "no python with pyzmq: the libzmq tests need it");
            String::from_utf8(made.stdout).expect("a path").trim().to_owned()
        })
        .await
}

impl Peer {
    /// libzmq: `zmq_peer.py` with these arguments.
    pub(crate) async fn libzmq(args: &[&str]) -> Peer {
        Peer::spawn(python().await, "zmq_peer.py", args).await
    }

    /// Misbehaving: `hostile_peer.py` with these modes.
    pub(crate) async fn hostile(modes: &str, listeners: usize) -> Peer {
        Peer::spawn("python3", "hostile_peer.py", &[modes, &listeners.to_string()]).await
    }

    async fn spawn(python: &str, script: &str, args: &[&str]) -> Peer {
        let mut process = Command::new(python)
            .arg(root().join("tests/peers").join(script))
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the peer starts");
        let stdin = process.stdin.take().expect("piped");
        let stdout = BufReader::new(process.stdout.take().expect("piped")).lines();
        let mut peer = Peer { process, stdin, stdout, ready: Value::Null };
        peer.ready = peer.line().await;
        peer
    }

    /// The next line the peer says.
    pub(crate) async fn line(&mut self) -> Value {
        let line = soon(self.stdout.next_line()).await.expect("readable").expect("a line");
        serde_json::from_str(&line).expect("json")
    }

    /// Sends a command and waits for its answer.
    pub(crate) async fn command(&mut self, command: Value) -> Value {
        let line = format!("{command}\n");
        self.stdin.write_all(line.as_bytes()).await.expect("the peer listens");
        self.line().await
    }

    pub(crate) async fn publish(&mut self, n: u64) -> Value {
        self.command(json!({"cmd": "publish", "n": n})).await
    }

    pub(crate) async fn wait_subscriber(&mut self) {
        let answer = self.command(json!({"cmd": "wait_subscriber"})).await;
        assert_eq!(answer, json!({"event": "subscriber"}));
    }

    pub(crate) fn port(&self, name: &str) -> u64 {
        self.ready[name].as_u64().expect("a port")
    }

    pub(crate) fn live(&self) -> String {
        format!("tcp://127.0.0.1:{}", self.port("live_port"))
    }

    pub(crate) fn replay(&self) -> String {
        format!("tcp://127.0.0.1:{}", self.port("replay_port"))
    }

    /// Endpoints of a hostile peer's listeners.
    pub(crate) fn listeners(&self) -> Vec<String> {
        let ports = self.ready["ports"].as_array().expect("ports");
        ports.iter().map(|port| format!("tcp://127.0.0.1:{port}")).collect()
    }

    /// Neither reads nor writes nor closes until continued: what a vanished host looks like.
    pub(crate) async fn freeze(&self) {
        self.signal("-STOP").await;
    }

    pub(crate) async fn thaw(&self) {
        self.signal("-CONT").await;
    }

    async fn signal(&self, signal: &str) {
        let pid = self.process.id().expect("alive").to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().await.expect("kill runs");
        assert!(sent.success());
    }

    /// Dies like a process that ran out of memory.
    pub(crate) async fn kill(mut self) {
        self.process.kill().await.expect("killed");
    }
}
