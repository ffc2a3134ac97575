//! A reader of the ZeroMQ bus on libzmq: `tests/peers/zmq_bus_reader.py`, written from
//! `docs/specs/bus_zmq.md` alone.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::{Value, json};

use crate::harness::python;

pub(crate) struct Client {
    process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// A replay, put together from its parts.
#[derive(Debug)]
pub(crate) struct Replay {
    pub(crate) first: u64,
    pub(crate) seqs: Vec<u64>,
    /// What it says of trust, and where.
    pub(crate) said: Vec<(u64, String)>,
}

#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) epoch: u64,
    pub(crate) promised: u64,
    pub(crate) records: u64,
}

impl Client {
    pub(crate) fn connect(requests: &str) -> Client {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/zmq_bus_reader.py");
        let mut process = Command::new(python())
            .arg(script)
            .arg(requests)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let commands = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        Client { process, commands, answers }
    }

    fn command(&mut self, command: &Value) -> Value {
        writeln!(self.commands, "{command}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{command}: {error}: {line}"))
    }

    /// Frames as they are; nobody answers.
    pub(crate) fn send(&mut self, frames: &[&str]) {
        self.command(&json!({"cmd": "send", "frames": frames}));
    }

    /// A well-formed request that shows this ticket, without waiting for the answer.
    pub(crate) fn send_query(&mut self, ticket: u64, words: &[&str]) {
        self.command(&json!({"cmd": "send_query", "ticket": ticket, "words": words}));
    }

    /// The word of an answer and its parts: texts as they are, numbers as 16 hex digits.
    pub(crate) fn ask(&mut self, words: &[&str]) -> Vec<String> {
        let answer = self.command(&json!({"cmd": "ask", "words": words}));
        serde_json::from_value(answer["parts"].clone()).unwrap()
    }

    pub(crate) fn subscribe(&mut self, live: &str, key: &str) {
        self.command(&json!({"cmd": "subscribe", "live": live, "key": key}));
    }

    /// The next heartbeat.
    pub(crate) fn heartbeat(&mut self) -> Value {
        self.command(&json!({"cmd": "heartbeat"}))["status"].clone()
    }

    /// So many live messages: their life and their seqs.
    pub(crate) fn live(&mut self, count: usize) -> (u64, Vec<u64>) {
        let answer = self.command(&json!({"cmd": "live", "count": count}));
        let seqs = serde_json::from_value(answer["seqs"].clone()).unwrap();
        (answer["epoch"].as_u64().unwrap(), seqs)
    }

    pub(crate) fn replay(&mut self, key: &str, epoch: u64, first: u64) -> Replay {
        let answer =
            self.command(&json!({"cmd": "replay", "key": key, "epoch": epoch, "first": first}));
        let seqs = serde_json::from_value(answer["seqs"].clone()).unwrap();
        let said = serde_json::from_value(answer["said"].clone()).unwrap();
        Replay { first: answer["first"].as_u64().unwrap(), seqs, said }
    }

    pub(crate) fn snapshot(&mut self, key: &str) -> Snapshot {
        let answer = self.command(&json!({"cmd": "snapshot", "key": key}));
        let number = |name: &str| answer[name].as_u64().unwrap_or_else(|| panic!("{answer}"));
        Snapshot {
            epoch: number("epoch"),
            promised: number("promised"),
            records: number("records"),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
