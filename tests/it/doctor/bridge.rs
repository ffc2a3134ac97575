//! A kvbridge that runs, and the names between it and a router.

use std::{fmt::Write as _, path::Path};

use serde_json::{Value, json};

use super::{Fake, Look};
use crate::{
    harness::until,
    program::{Running, kvbridge},
};

/// A kvbridge with these options, and where it is.
fn bridge(args: &[&str]) -> (Running, String) {
    let mut command = kvbridge();
    let mut bridge = Running::start(command.args(["run", "--listen", "127.0.0.1:0"]).args(args));
    let url = bridge.line().split_once(" on ").unwrap().1.to_owned();
    (bridge, url)
}

fn get(url: &str, path: &str) -> Value {
    let address = url.strip_prefix("http://").unwrap();
    let (_, body) = crate::harness::send(address, ("GET", path), "").unwrap();
    serde_json::from_str(&body).unwrap()
}

fn names(file: &str, names: &[&str]) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
    let mut text = String::from("# of the router\n\n");
    names.iter().for_each(|name| writeln!(text, "{name}").unwrap());
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_bridge_that_is_not_there_not_ready_or_reads_nothing_is_named() {
    let gone = Look::with(&["--kvbridge", "http://127.0.0.1:9"]);
    assert_eq!(gone.troubles(), ["bridge_unreachable"]);
    let (process, url) = bridge(&["--vllm", "tcp://127.0.0.1:9"]);
    let look = Look::with(&["--kvbridge", &url]);
    assert_eq!((look.code, look.troubles()), (1, vec!["bridge_not_ready", "replica_untrusted"]));
    assert_eq!(process.end(Some("-TERM")).0, 0);
    let (process, url) = bridge(&["--engine-url", "http://127.0.0.1:9"]);
    assert!(Look::with(&["--kvbridge", &url]).troubles().contains(&"bridge_empty"));
    assert_eq!(process.end(Some("-TERM")).0, 0);
}

#[test]
fn names_are_compared_and_both_sides_can_be_looked_at_in_one_go() {
    let fake = Fake::start("vllm", "--rps 50 --blocks 256");
    let (process, url) = bridge(&["--vllm", fake.url(), "--instance", "10.0.0.7:8000"]);
    until("exact", || {
        let replicas = get(&url, "/v1/replicas");
        (replicas["replicas"][0]["trust"] == "exact").then_some(())
    });
    let equal = names("doctor_equal.txt", &["10.0.0.7:8000"]);
    let args = [fake.url(), "--listen", "2s", "--kvbridge", &url, "--router-endpoints", &equal];
    let look = Look::with(&args);
    assert_eq!((look.code, look.troubles()), (0, vec![]), "{:#?}", look.findings);
    for id in ["events_flow", "replica_trusted", "names_equal"] {
        look.find(id);
    }
    let other = names("doctor_other.txt", &["http://10.0.0.7:8000", "10.0.0.9:8000"]);
    let look = Look::with(&["--kvbridge", &url, "--router-endpoints", &other]);
    assert_eq!(look.troubles(), ["name_unknown", "name_unused"]);
    let detail = look.find("name_unknown")["detail"].as_str().unwrap();
    assert!(detail.ends_with("a scheme"), "{detail}");
    assert_eq!(process.end(Some("-TERM")).0, 0);
    fake.end();
}

#[test]
fn alarms_are_passed_on_with_what_to_do() {
    let fake = Fake::start("vllm", "--rps 50 --blocks 256");
    let folder = crate::harness::folder("doctor_alarms");
    let source = format!(
        "[[sources]]\nengine = \"vllm\"\nmodel = \"m\"\ninstance = \"i\"\nendpoint = \"{}\"\n\
         hash_scheme = \"sha256_cbor\"\nhash_seed = \"wrong\"\n",
        fake.live(0)
    );
    let path = folder.join("kvbridge.toml");
    std::fs::write(&path, source).unwrap();
    let (process, url) = bridge(&["--config", path.to_str().unwrap()]);
    let rings = |name: &str| {
        let alarms = get(&url, "/v1/alarms");
        let all = alarms["alarms"].as_array().unwrap();
        all.iter().any(|alarm| alarm["alarm"] == name).then_some(())
    };
    until("a warning", || rings("hash_scheme_mismatch"));
    until("a critical one", || {
        fake.fault(&json!({"fault": "unknown_tag"}).to_string());
        rings("undecodable_events")
    });
    let look = Look::with(&["--kvbridge", &url]);
    let critical = look.find("alarm_critical");
    assert!(critical["detail"].as_str().unwrap().starts_with("undecodable_events"));
    assert!(critical["setting"].as_str().unwrap().contains("ignore_tags"));
    let warning = look.find("alarm_warning");
    assert!(warning["cause"].as_str().unwrap().contains("hash_seed"), "{warning}");
    assert_eq!(process.end(Some("-TERM")).0, 0);
    fake.end();
}
