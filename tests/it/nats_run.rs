//! The whole program on a recording, with JetStream behind it.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use kvbridge::schemas::{Event, Trust};

use crate::{
    nats_server::{Message, Server, contiguous},
    program::one_life,
};

fn kvbridge(server: &Server) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvbridge"));
    command
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .args(["--log", "off"])
        .env("KVBRIDGE__BUS__KIND", "nats")
        .env("KVBRIDGE__BUS__URL", server.url());
    command
}

const STREAM: &str = "KVHINTS_capture";

/// Batches of the engine among them.
fn data(messages: &[Message]) -> usize {
    messages.iter().filter(|message| message.id.matches('/').count() == 2).count()
}

#[tokio::test]
async fn a_recording_is_on_the_bus_batch_by_batch() {
    let server = Server::started("run");
    let status = kvbridge(&server)
        .args(["run", "--listen", "127.0.0.1:0", "--rate", "1000", "--once", "--play"])
        .arg(one_life("nats-run.jsonl"))
        .args(["--drop", "5-9,20"])
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    let messages = server.read(STREAM).await;
    assert_eq!((data(&messages), contiguous(&messages)), (62, 62));
    let resets =
        messages.iter().filter(|m| matches!(m.envelope.events.first(), Some(Event::Reset(_))));
    assert_eq!(resets.count(), 0, "the replay brought everything");
}

#[tokio::test]
async fn what_the_engine_lost_is_a_reset_over_exactly_that() {
    let server = Server::started("hole");
    let status = kvbridge(&server)
        // Slow, so that the life has its name on the bus before the hole: what waits for one when
        // the view is dropped is dropped too, and the log begins behind the hole.
        .args(["run", "--listen", "127.0.0.1:0", "--rate", "25", "--once", "--play"])
        .arg(one_life("nats-hole.jsonl"))
        .args(["--drop", "40-50", "--journal", "5"])
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    let messages = server.read(STREAM).await;
    assert_eq!(contiguous(&messages), 62);
    let resets: Vec<_> = messages
        .iter()
        .filter(|m| matches!(m.envelope.events.first(), Some(Event::Reset(_))))
        .collect();
    let [reset] = resets.as_slice() else { panic!("{resets:?}") };
    let Event::Reset(told) = &reset.envelope.events[0] else { panic!("{reset:?}") };
    assert_eq!((told.trust, told.cause.as_str()), (Trust::LowerBound, "permanent_hole"));
    assert_eq!(reset.seq, 40);
}

struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.child.kill().unwrap();
        }
    }
}

fn http(address: &str, request: &str) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

fn get(address: &str, path: &str) -> String {
    http(address, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
}

#[tokio::test]
async fn with_the_server_away_matches_go_on_and_all_is_published_later() {
    let mut server = Server::prepared("away", "");
    let mut child = kvbridge(&server)
        .args(["run", "--listen", "127.0.0.1:0", "--rate", "1000", "--play"])
        .arg(one_life("nats-away.jsonl"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let mut running = Running { child, out };
    let address = running.line().split_once("http://").unwrap().1.to_owned();
    while !running.line().contains("trust exact") {}
    let body = r#"{"model":"capture","token_ids":[1,2,3]}"#;
    let request = format!(
        "POST /v1/match HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = http(&address, &request);
    assert!(answer.contains(r#""usable":true"#), "{answer}");
    let ready = get(&address, "/readyz");
    assert!(ready.contains(r#""bus":{"kind":"nats","state":"away""#), "{ready}");
    let metrics = get(&address, "/metrics");
    assert!(metrics.contains(r#"kvbridge_bus_state{stream="KVHINTS_capture",state="away"} 1"#));
    server.start();
    for _ in 0..500 {
        // 62 batches, and what the bridge believes.
        if get(&address, "/metrics")
            .contains("kvbridge_bus_published_total{stream=\"KVHINTS_capture\"} 63")
        {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let messages = server.read(STREAM).await;
    assert_eq!((data(&messages), contiguous(&messages)), (62, 62));
    assert!(get(&address, "/readyz").contains(r#""state":"ready""#));
}

#[tokio::test]
async fn bus_status_names_what_differs_and_bus_apply_sets_it() {
    let server = Server::started("apply");
    let config = "[[sources]]\nengine = \"vllm\"\nendpoint = \"tcp://h:5557\"\nmodel = \"m\"\n";
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nats-apply.toml");
    std::fs::write(&path, config).unwrap();
    let bus = |action: &str, retention: &str| {
        let output = kvbridge(&server)
            .args(["bus", action, "--config", "nats-apply.toml"])
            .env("KVBRIDGE__BUS__RETENTION", retention)
            .output()
            .unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(bus("status", "15m"), (3, "KVHINTS_m: missing\n".to_owned()));
    let (code, out) = bus("apply", "15m");
    assert_eq!(code, 0, "{out}");
    assert!(out.starts_with("KVHINTS_m: made\nKVHINTS_m: as wanted\n"), "{out}");
    let (code, out) = bus("status", "20m");
    assert_eq!(code, 3, "{out}");
    assert!(out.ends_with("  max_age is 15m, wanted 20m\n"), "{out}");
    let (code, out) = bus("apply", "20m");
    assert_eq!(code, 0, "{out}");
    assert_eq!(bus("status", "20m").0, 0);
}
