//! `smg_reader.py`: grpcio and the messages of SMG's own package, and what it holds.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, Mutex, OnceLock},
};

use serde_json::Value;

use crate::{harness::until, peer::root};

/// One stream.
pub(crate) struct SmgReader {
    process: Child,
    stdin: ChildStdin,
    said: Arc<Mutex<Vec<Value>>>,
}

/// A block where it is: (hash, 1 = device).
pub(crate) type Held = BTreeSet<(String, u64)>;

fn python() -> &'static str {
    static PYTHON: OnceLock<String> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/ensure_smg.sh");
        let made = Command::new(script).stderr(Stdio::inherit()).output().unwrap();
        assert!(made.status.success(), "no python with smg-grpc-proto");
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    })
}

impl SmgReader {
    /// Opens a stream behind that number; 0 = all that there is.
    pub(crate) fn open(address: &str, start: u64, more: &[&str]) -> SmgReader {
        let authority = address.split_once("://").map_or(address, |(_, authority)| authority);
        let mut process = Command::new(python())
            .arg(root().join("tests/peers/smg_reader.py"))
            .args([authority, &start.to_string()])
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = process.stdin.take().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let said = Arc::<Mutex<Vec<Value>>>::default();
        let heard = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                heard.lock().unwrap().push(serde_json::from_str(&line).unwrap());
            }
        });
        SmgReader { process, stdin, said }
    }

    /// A slow one reads on.
    pub(crate) fn reads_on(&mut self) {
        self.stdin.write_all(b"\n").unwrap();
    }

    /// Its batches.
    pub(crate) fn batches(&self) -> Vec<Value> {
        let said = self.said.lock().unwrap();
        said.iter().filter(|line| line["seq"].is_u64()).cloned().collect()
    }

    /// The status that ended the stream.
    pub(crate) fn ended(&self) -> String {
        until("the end of a stream", || {
            let said = self.said.lock().unwrap();
            said.last()?["end"].as_str().map(str::to_owned)
        })
    }

    /// The number of the newest batch.
    pub(crate) fn newest(&self) -> u64 {
        self.batches().last().and_then(|batch| batch["seq"].as_u64()).unwrap_or(0)
    }

    /// What it holds on top of `before`. Numbers have no hole; no block is stored twice or behind
    /// one that is not there, and none is removed that was not told.
    pub(crate) fn holds(&self, before: &Held) -> Held {
        let (mut held, mut last) = (before.clone(), None);
        for batch in self.batches() {
            let seq = batch["seq"].as_u64().unwrap();
            assert!(last.is_none_or(|last| last + 1 == seq), "a hole before {seq}");
            last = Some(seq);
            for event in batch["events"].as_array().unwrap() {
                let tier = event[1].as_u64().unwrap_or(0);
                let hashes = event[2].as_array().into_iter().flatten();
                let hashes = hashes.map(|hash| hash.as_str().unwrap().to_owned());
                match event[0].as_str().unwrap() {
                    "clear" => held.clear(),
                    "store" => {
                        if let Some(parent) = event[3].as_str() {
                            assert!(
                                held.contains(&(parent.to_owned(), tier)),
                                "no parent: {event}"
                            );
                        }
                        for hash in hashes {
                            assert!(held.insert((hash, tier)), "stored again: {event}");
                        }
                    }
                    _ => {
                        for hash in hashes {
                            assert!(held.remove(&(hash, tier)), "was not told: {event}");
                        }
                    }
                }
            }
        }
        held
    }

    /// How often everything was gone.
    pub(crate) fn clears(&self) -> usize {
        let batches = self.batches();
        let events = batches.iter().flat_map(|batch| batch["events"].as_array().unwrap());
        events.filter(|event| event[0] == "clear").count()
    }
}

impl Drop for SmgReader {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
