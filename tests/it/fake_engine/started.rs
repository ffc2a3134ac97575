//! The two programs of a pair, started.

use std::path::Path;

use serde_json::Value;

use crate::program::{Running, kvbridge, without_authorities};

/// A bridge, and where its first replica is.
pub(crate) fn bridge(run: &[String], state: Option<&Path>) -> (Running, String) {
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

/// A fake engine on free ports but that of its server, and where it is.
pub(crate) fn fake_engine(engine: &str, http: &str, args: &str) -> (Running, Value) {
    let mut command = kvbridge();
    command.args(["fake-engine", "--engine", engine]);
    command.args("--ports-json --pub 0 --replay 0".split(' '));
    command.args(["--http", http, "--step-ms", "1"]).args(args.split_whitespace());
    let mut fake = Running::start(&mut command);
    let ports = serde_json::from_str(&fake.line()).unwrap();
    (fake, ports)
}
