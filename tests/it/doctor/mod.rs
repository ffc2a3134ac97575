//! `kvbridge doctor` on engines and bridges that are set up so that each finding is there.

mod bridge;
mod drained;
mod engine;
mod founding_bug;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::{
    fake_engine::started::fake_engine,
    harness::send,
    program::{Running, kvbridge},
};

/// Between two faults while a doctor looks.
const FAULT_EVERY: Duration = Duration::from_millis(50);

/// What a doctor said.
struct Look {
    code: i32,
    findings: Vec<Value>,
}

impl Look {
    /// Looks with these arguments.
    fn with(args: &[&str]) -> Look {
        let mut command = kvbridge();
        let (code, out) = Running::start(command.args(["doctor", "--json"]).args(args)).end(None);
        let said: Value = serde_json::from_str(&out).unwrap_or_default();
        let findings = said["findings"].as_array().cloned().unwrap_or_default();
        let worst = if findings.is_empty() { "" } else { said["severity"].as_str().unwrap() };
        let expected = match worst {
            "ok" | "note" => 0,
            "warning" => 1,
            _ => 2,
        };
        assert_eq!(code, expected, "{out}");
        Look { code, findings }
    }

    fn find(&self, id: &str) -> &Value {
        let found = self.findings.iter().find(|finding| finding["id"] == id);
        found.unwrap_or_else(|| panic!("no {id}: {:#?}", self.findings))
    }

    /// All that is worse than a note, without a word for each rank.
    fn troubles(&self) -> Vec<&str> {
        let severity = |finding: &&Value| {
            ["warning", "error"].contains(&finding["severity"].as_str().unwrap())
        };
        let found = self.findings.iter().filter(severity);
        let mut ids: Vec<&str> = found.map(|finding| finding["id"].as_str().unwrap()).collect();
        ids.dedup();
        ids
    }
}

/// A fake engine, and where everything of it is.
struct Fake {
    process: Running,
    ports: Value,
}

impl Fake {
    fn start(engine: &str, args: &str) -> Fake {
        let (process, ports) = fake_engine(engine, "127.0.0.1:0", args);
        Fake { process, ports }
    }

    fn url(&self) -> &str {
        self.ports["http"].as_str().unwrap()
    }

    fn live(&self, rank: usize) -> &str {
        self.ports["ranks"][rank]["live"].as_str().unwrap()
    }

    fn post(&self, path: &str, body: &str) -> String {
        let address = self.url().strip_prefix("http://").unwrap();
        let (status, answer) = send(address, ("POST", path), body).unwrap();
        assert_eq!(status, 200, "{path} {body}: {answer}");
        answer
    }

    fn fault(&self, body: &str) {
        self.post("/control", body);
    }

    /// Looks at its server, while `meanwhile` is done to it again and again.
    fn look_during(&self, args: &[&str], meanwhile: impl Fn(&Fake) + Sync) -> Look {
        let is_over = AtomicBool::new(false);
        thread::scope(|threads| {
            threads.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    meanwhile(self);
                    thread::park_timeout(FAULT_EVERY);
                }
            });
            let look = Look::with(&[&[self.url()], args].concat());
            is_over.store(true, Ordering::Relaxed);
            look
        })
    }

    fn look(&self, args: &[&str]) -> Look {
        Look::with(&[&[self.url()], args].concat())
    }

    fn end(self) {
        assert_eq!(self.process.end(Some("-TERM")).0, 0);
    }
}

/// Every finding of the table has an engine or a bridge here that is set up that way.
#[test]
fn no_finding_is_without_its_test() {
    let page = include_str!("../../../docs/doctor.md");
    let tests =
        concat!(include_str!("engine.rs"), include_str!("drained.rs"), include_str!("bridge.rs"));
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let ids: Vec<&str> = rows.map(|row| row.split('`').next().unwrap()).collect();
    assert!(!ids.is_empty());
    for id in ids {
        assert!(tests.contains(&format!("\"{id}\"")), "no test shows {id}");
    }
}
