//! How it ends: signals under load, exit codes; and a recording that comes round.

use std::process::{Command, Output};

use crate::{
    bridge::Bridge,
    oracle::lives,
    peer::{Peer, capture, scratch},
};

const RECORDING: &str = "0.32.0-basic";

fn kvbridge(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_kvbridge"))
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .args(arguments)
        .output()
        .unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn signals_end_a_busy_process_in_time() {
    for (name, signal, code) in [("stop_term", "-TERM", 0), ("stop_int", "-INT", 130)] {
        // A reader of events stays connected, and a replay stays open.
        let mut peer = Peer::play(&capture(RECORDING), &["--withhold", "5", "--stall-after", "0"]);
        let bridge = Bridge::run(name, &[peer.source()], "");
        peer.wait_subscriber();
        peer.publish(20);
        bridge.stands("none", "gap_open");
        bridge.signal(signal);
        assert_eq!(bridge.ended().0, Some(code), "{signal}");
    }
}

#[test]
fn an_address_in_use_is_exit_1() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, _, err) = kvbridge(&["run", "--listen", &address, "--vllm", "tcp://127.0.0.1:9"]);
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains(&address), "{err}");
}

#[test]
fn a_bad_configuration_names_all_its_problems_and_is_exit_2() {
    let path = scratch("stop_bad.toml");
    let text =
        "surprise = 1\n[recovery]\naudit = \"90s\"\nattempts = 0\n[bus]\nkind = \"pigeon\"\n";
    std::fs::write(&path, text).unwrap();
    let path = path.display().to_string();
    let (code, _, err) = kvbridge(&["run", "--config", &path, "--vllm", "udp://x"]);
    assert_eq!(code, Some(2), "{err}");
    for problem in
        ["surprise", "recovery.lease", "recovery.attempts", "bus.kind", "sources[0].endpoint"]
    {
        assert!(err.contains(problem), "{problem} is not in {err}");
    }
}

#[test]
fn what_tail_recorded_can_be_played() {
    let life = &lives(RECORDING)[0];
    let mut peer = Peer::play(&capture(RECORDING), &[]);
    let raw = scratch("stop_raw.jsonl").display().to_string();
    let live = peer.live();
    let arguments = ["tail", "--count", "62", "--vllm", &live, "--raw", &raw];
    let tail = std::thread::scope(|threads| {
        let tail = threads.spawn(|| kvbridge(&arguments));
        peer.wait_subscriber();
        peer.publish(62);
        tail.join().unwrap()
    });
    assert_eq!((tail.0, tail.1.lines().count()), (Some(0), 62), "{}", tail.2);
    let played = ["--play", &raw, "--rate", "1000", "--drop", "5-9,20"].map(str::to_owned);
    let bridge = Bridge::run("stop_played", &[played.to_vec()], "");
    bridge.reaches("exact", 62);
    bridge.view_is(&life.fold(0..62));
    bridge.signal("-TERM");
    let (code, out) = bridge.ended();
    assert_eq!(code, Some(0));
    assert!(out.contains("played 62 batches"), "{out}");
}
