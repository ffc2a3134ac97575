//! Engines that publish.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Fake, Look};

/// Long enough for a connection and some batches of a busy engine.
const LISTEN: [&str; 2] = ["--listen", "2s"];

const BUSY: &str = "--rps 50 --blocks 256";

/// What it says of a busy engine that was set up so.
fn of_busy(args: &str) -> Look {
    let fake = Fake::start("vllm", &format!("{BUSY} {args}"));
    let look = fake.look(&LISTEN);
    fake.end();
    look
}

/// What it says of a busy engine that is known by its sockets alone.
fn of_sockets(args: &str, more: &[&str]) -> Look {
    let fake = Fake::start("vllm", &format!("{BUSY} {args}"));
    let args = [&[fake.live(0), "--engine", "vllm"], &LISTEN[..], more].concat();
    let look = Look::with(&args);
    fake.end();
    look
}

#[test]
fn a_busy_engine_has_nothing_wrong() {
    for (engine, form) in [("vllm", "vllm.map"), ("sglang", "sglang.map")] {
        let fake = Fake::start(engine, BUSY);
        let look = fake.look(&LISTEN);
        fake.end();
        assert_eq!((look.code, look.troubles()), (0, vec![]), "{engine}: {:#?}", look.findings);
        for id in ["engine_told", "events_flow", "hashes_proven", "replay_whole"] {
            look.find(id);
        }
        assert!(look.find("wire_form")["detail"].as_str().unwrap().starts_with(form));
        let keys = |finding: &serde_json::Value| -> Vec<String> {
            finding.as_object().unwrap().keys().cloned().collect()
        };
        let all = ["cause", "detail", "id", "meaning", "setting", "severity", "subject"];
        assert!(look.findings.iter().all(|finding| keys(finding) == all));
    }
}

#[test]
fn nobody_there_and_bad_arguments_are_exit_2() {
    let nobody = Look::with(&["http://127.0.0.1:9"]);
    assert_eq!(nobody.troubles(), ["server_unreachable"]);
    let no_port = Look::with(&["tcp://127.0.0.1:9", "--engine", "vllm", "--listen", "1s"]);
    assert_eq!(no_port.troubles(), ["endpoint_unreachable"]);
    for args in [&[][..], &["tcp://127.0.0.1:9"], &["udp://x", "--engine", "vllm"]] {
        let bad = Look::with(args);
        assert_eq!((bad.code, bad.findings.len()), (2, 0), "{args:?}");
    }
}

#[test]
fn a_server_that_does_not_tell_or_has_no_events_is_named() {
    let fake = Fake::start("vllm", "--encoding 0.16");
    assert_eq!(fake.look(&LISTEN).troubles(), ["sources_unknown"]);
    fake.end();
    for engine in ["vllm", "sglang"] {
        let fake = Fake::start(engine, "--no-events");
        let look = fake.look(&LISTEN);
        assert_eq!(look.troubles(), ["events_off"]);
        let setting = look.find("events_off")["setting"].as_str().unwrap();
        assert!(engine == "sglang" || setting.contains("KV-cache events"), "{setting}");
        fake.end();
    }
}

#[test]
fn silence_without_traffic_is_no_error_and_a_probe_ends_it() {
    let fake = Fake::start("vllm", "--blocks 256");
    let idle = fake.look(&["--listen", "500ms"]);
    assert_eq!((idle.code, idle.troubles()), (1, vec!["stream_idle"]));
    let probed = fake.look(&["--listen", "3s", "--probe"]);
    assert_eq!((probed.code, probed.troubles()), (0, vec![]), "{:#?}", probed.findings);
    fake.fault(r#"{"fault": "drop", "count": 1000000}"#);
    let silent = fake.look(&["--listen", "3s", "--probe"]);
    assert_eq!(silent.troubles(), ["stream_silent"]);
    let setting = silent.find("stream_silent")["setting"].as_str().unwrap();
    assert!(setting.contains("enable_kv_cache_events"), "{setting}");
    fake.end();
    let full = Fake::start("vllm", "--blocks 4");
    assert_eq!(
        full.look(&["--listen", "1s", "--probe"]).troubles(),
        ["probe_failed", "stream_idle"]
    );
    full.end();
}

#[test]
fn ranks_are_looked_at_one_by_one() {
    let fake = Fake::start("vllm", &format!("{BUSY} --dp 2"));
    let other = Look::with(&[&[fake.live(1), "--engine", "vllm"], &LISTEN[..]].concat());
    assert_eq!(other.troubles(), ["rank_differs", "replay_unnamed"]);
    let address = fake.url().strip_prefix("http://").unwrap();
    let drop = r#"{"fault": "drop", "count": 1000000}"#;
    crate::harness::send(address, ("POST", "/control?rank=1"), drop).unwrap();
    let look = fake.look(&LISTEN);
    assert_eq!(look.troubles(), ["rank_silent"]);
    assert_eq!(look.find("rank_silent")["subject"], "rank 1");
    fake.end();
}

#[test]
fn what_happens_to_the_stream_meanwhile_is_seen() {
    for (fault, id) in [
        (r#"{"fault": "drop", "count": 1}"#, "seq_missing"),
        (r#"{"fault": "silent_restart"}"#, "seq_fell"),
        (r#"{"fault": "unknown_tag"}"#, "events_unreadable"),
        (r#"{"fault": "poison", "count": 1}"#, "events_unreadable"),
    ] {
        let fake = Fake::start("vllm", "--rps 200 --blocks 256");
        let turn = AtomicU64::new(0);
        let look = fake.look_during(&LISTEN, |fake| {
            // Not so often that nothing is left of the stream.
            if turn.fetch_add(1, Ordering::Relaxed).is_multiple_of(4) {
                fake.fault(fault);
            }
        });
        assert!(look.troubles().contains(&id), "{fault}: {:#?}", look.findings);
        look.find("events_flow");
        fake.end();
    }
}

#[test]
fn blocks_of_another_size_than_told_are_an_error() {
    let told = format!("{BUSY} --told-block-size 32");
    for engine in ["vllm", "sglang"] {
        let fake = Fake::start(engine, &told);
        let look = fake.look(&LISTEN);
        assert_eq!(look.troubles(), ["block_size_mismatch"]);
        let detail = look.find("block_size_mismatch")["detail"].as_str().unwrap();
        assert!(detail.starts_with("the engine says 32, blocks of this rank have 16"), "{detail}");
        fake.end();
    }
}

#[test]
fn hashes_are_looked_at() {
    assert_eq!(of_busy("--hashes bytes").find("hashes_whole")["severity"], "note");
    assert_eq!(of_busy("--hash-seed strange").find("hashes_unknown")["severity"], "note");
    let wrong = of_sockets("", &["--hash-scheme", "sha256_cbor", "--hash-seed", "wrong"]);
    assert_eq!(wrong.troubles(), ["hashes_wrong", "replay_unnamed"]);
}

#[test]
fn a_journal_is_looked_at() {
    assert_eq!(of_busy("--no-replay").troubles(), ["replay_unnamed"]);
    assert_eq!(of_busy("--buffer-steps 5").find("replay_short")["severity"], "note");
    let fake = Fake::start("vllm", "--blocks 256");
    fake.fault(r#"{"fault": "hole", "count": 1000000}"#);
    assert_eq!(fake.look(&["--listen", "3s", "--probe"]).troubles(), ["replay_empty"]);
    fake.end();
    let nobody = of_sockets("", &["--replay", "tcp://127.0.0.1:9"]);
    assert_eq!(nobody.troubles(), ["replay_unreachable"]);
    for (fault, id) in [
        (r#"{"fault": "slow_reader", "count": 0}"#, "replay_silent"),
        (r#"{"fault": "slow_reader", "count": 3}"#, "replay_no_end"),
        (r#"{"fault": "end_lost", "on": true}"#, "replay_no_end"),
        (r#"{"fault": "hole", "count": 2}"#, "replay_hole"),
    ] {
        let fake = Fake::start("vllm", BUSY);
        fake.fault(r#"{"fault": "burst", "count": 5}"#);
        fake.fault(fault);
        let look = fake.look(&LISTEN);
        assert_eq!(look.troubles(), [id], "{fault}: {:#?}", look.findings);
        fake.end();
    }
}
