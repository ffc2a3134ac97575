//! The whole program on recorded frames: run, play, tail, and a pipe that closes.

use std::{
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

fn recording() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/vllm-0.32.0-basic.jsonl")
}

/// A recording that ends before the engine's restart: 62 batches of one life.
pub(crate) fn one_life(name: &str) -> PathBuf {
    let text = std::fs::read_to_string(recording()).unwrap();
    let lives = text.lines().filter(|line| line.contains("\"socket\": \"sub\""));
    let life: Vec<&str> = lives.take(62).collect();
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, life.join("\n")).unwrap();
    path
}

pub(crate) fn kvbridge() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvbridge"));
    command.current_dir(env!("CARGO_TARGET_TMPDIR")).args(["--log", "off"]);
    command
}

/// As in a slim image, which has no certificate authorities.
pub(crate) fn without_authorities(mut command: Command) -> Command {
    command.env("SSL_CERT_FILE", "/absent").env("SSL_CERT_DIR", "/absent");
    command
}

/// A running program, killed when dropped.
pub(crate) struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Running {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Running { child, out }
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// Waits for its end, and says how it was.
    pub(crate) fn wait(&mut self) -> i32 {
        self.child.wait().unwrap().code().unwrap()
    }

    /// Ends it without a word. Returns when it is gone, and its ports with it.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn end(mut self, signal: Option<&str>) -> (i32, String) {
        if let Some(signal) = signal {
            self.signal(signal);
        }
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code().unwrap(), rest)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.child.kill().unwrap();
        }
    }
}

fn played(recording: &Path, more: &[&str]) -> (i32, String) {
    let mut command = kvbridge();
    command.args(["run", "--listen", "127.0.0.1:0", "--rate", "1000", "--once", "--play"]);
    Running::start(command.arg(recording).args(more)).end(None)
}

#[test]
fn a_played_recording_with_a_restart_ends_exact() {
    let (code, out) = played(&recording(), &[]);
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("trust exact (contiguous), next seq 4, blocks 5 on device"), "{out}");
}

#[test]
fn withheld_batches_come_back_by_replay() {
    let (code, out) = played(&one_life("withheld.jsonl"), &["--drop", "5-9,20"]);
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("trust exact"), "{out}");
    assert!(out.contains("next seq 62"), "{out}");
}

#[test]
fn a_short_journal_is_never_exact() {
    let (code, out) = played(&one_life("short.jsonl"), &["--drop", "45-55", "--journal", "5"]);
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("trust lower_bound (history_lost), next seq 62"), "{out}");
}

#[test]
fn an_interrupt_is_130_and_a_termination_is_0() {
    for (signal, expected) in [("-INT", 130), ("-TERM", 0)] {
        let mut command = kvbridge();
        command.args(["run", "--listen", "127.0.0.1:0", "--vllm", "tcp://127.0.0.1:9"]);
        let mut running = Running::start(&mut command);
        assert!(running.line().starts_with("kvbridge "));
        assert!(running.line().ends_with("late start can only be lower_bound"));
        assert_eq!(running.end(Some(signal)).0, expected);
    }
}

#[test]
fn nothing_to_read_and_wrong_flags_are_exit_2() {
    for args in [
        &["run"][..],
        &["run", "--vllm", "udp://x"],
        &["run", "--model", "m"],
        &["tail", "--raw", "x"],
        &["run", "--listen", "0.0.0.0:0", "--vllm", "tcp://127.0.0.1:9"],
    ] {
        let (code, _) = Running::start(kvbridge().args(args)).end(None);
        assert_eq!(code, 2, "{args:?}");
    }
}

#[test]
fn tail_records_an_engine_and_hides_its_tokens() {
    let recording = one_life("tail.jsonl");
    let mut play = kvbridge();
    play.args(["play", "--pub", "0", "--replay", "0", "--rate", "1000"]).arg(&recording);
    let mut play = Running::start(&mut play);
    let endpoint = play.line().strip_prefix("publishes at ").unwrap().to_owned();
    let raw = Path::new(env!("CARGO_TARGET_TMPDIR")).join("raw.jsonl");
    let mut tail = kvbridge();
    tail.args(["tail", "--count", "62", "--vllm", &endpoint, "--model", "capture"]);
    let (code, out) = Running::start(tail.arg("--raw").arg(&raw)).end(None);
    assert_eq!((code, out.lines().count()), (0, 62));
    assert!(out.contains("\"tokens\":{\"count\":64}"), "{out}");
    let decode = |path: &Path| {
        let output = kvbridge().args(["decode", "--engine", "vllm"]).arg(path).output().unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        // The engine speaks at another port than it did when it was recorded.
        let events = text.lines().map(|line| line.split_once("\"rank\"").unwrap().1.to_owned());
        events.collect::<Vec<_>>()
    };
    assert_eq!(decode(&raw), decode(&recording));
    assert_eq!(play.end(Some("-INT")).0, 130);
}

#[test]
fn tail_reads_a_running_kvbridge() {
    let mut run = kvbridge();
    run.args(["run", "--listen", "127.0.0.1:0", "--rate", "20", "--play"]);
    let mut run = Running::start(run.arg(one_life("bridge.jsonl")));
    let url = run.line().split_once(" on ").unwrap().1.to_owned();
    let mut tail = kvbridge();
    let (code, out) = Running::start(tail.args(["tail", "--count", "3", "--url", &url])).end(None);
    assert_eq!(code, 0, "{out}");
    assert_eq!(out.lines().filter(|line| line.contains("\"events\"")).count(), 3, "{out}");
    assert_eq!(run.end(Some("-TERM")).0, 0);
}

#[test]
fn a_closed_pipe_is_a_success() {
    let mut decode = kvbridge();
    let mut decode = Running::start(decode.args(["decode", "--engine", "vllm"]).arg(recording()));
    assert!(decode.line().starts_with('{'));
    let Running { child, out } = &mut decode;
    *out = BufReader::new(
        Command::new("true").stdout(Stdio::piped()).spawn().unwrap().stdout.take().unwrap(),
    );
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn completions_and_the_version_are_printed() {
    for shell in ["bash", "zsh", "fish"] {
        let (code, out) = Running::start(kvbridge().args(["completions", shell])).end(None);
        assert_eq!(code, 0);
        assert!(out.contains("check-config"), "{shell}");
    }
    let (code, out) = Running::start(kvbridge().arg("--version")).end(None);
    assert_eq!(code, 0);
    assert!(out.starts_with(concat!("kvbridge ", env!("CARGO_PKG_VERSION"))), "{out}");
}

#[test]
fn health_is_0_while_ready_and_1_afterwards() {
    let mut run = kvbridge();
    run.args(["run", "--listen", "127.0.0.1:0", "--vllm", "tcp://127.0.0.1:9"]);
    // Its engine never answers, and nobody waits for it.
    run.env("KVBRIDGE__READY__MAX_WAIT", "1ms");
    let mut run = Running::start(&mut run);
    let url = run.line().split_once(" on ").unwrap().1.to_owned();
    let health = |path: &str| {
        let mut health = without_authorities(kvbridge());
        Running::start(health.args(["health", "--url", &format!("{url}{path}")])).end(None)
    };
    let (code, out) = health("/readyz");
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("\"ready\":true"), "{out}");
    assert_eq!(health("/nowhere"), (1, String::new()));
    assert_eq!(run.end(Some("-TERM")).0, 0);
    assert_eq!(health("/readyz").0, 1);
}
