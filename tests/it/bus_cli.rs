//! The bus from the command line: tail, replay and snapshot against a real server and real bridges.

use std::{collections::BTreeSet, path::Path, process::Output, time::Duration};

use futures::StreamExt;
use serde_json::Value;

use crate::{
    nats_server::Server,
    program::{Running, kvbridge, one_life},
};

const STREAM: &str = "KVHINTS_capture";

/// A bridge plays a recording of 62 batches onto the bus, and ends.
fn play(server: &Server, name: &str, more: &[&str]) {
    let mut command = kvbridge();
    // A hole is played slowly: what waits for the life's name on the bus goes with the view, and
    // the log would begin behind it.
    let rate = if more.is_empty() { "1000" } else { "25" };
    command
        .args(["run", "--listen", "127.0.0.1:0", "--rate", rate, "--once", "--play"])
        .arg(one_life(&format!("{name}.jsonl")))
        .args(more)
        .env("KVBRIDGE__BUS__KIND", "nats")
        .env("KVBRIDGE__BUS__URL", server.url());
    assert_eq!(Running::start(&mut command).end(None).0, 0);
}

struct Said {
    code: i32,
    lines: Vec<Value>,
    text: String,
    messages: String,
}

fn ask(server: &Server, args: &[&str]) -> Said {
    let output = kvbridge().args(args).args(["--nats", &server.url()]).output().unwrap();
    said(&output)
}

fn said(output: &Output) -> Said {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    Said {
        code: output.status.code().unwrap(),
        lines: text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect(),
        text,
        messages: String::from_utf8(output.stderr.clone()).unwrap(),
    }
}

/// The batches. Between two of them a bridge may say what it believes.
fn seqs(said: &Said) -> Vec<u64> {
    let batches = said.lines.iter().filter(|line| line["events"][0]["type"] != "trust");
    batches.map(|line| line["seq"].as_u64().unwrap()).collect()
}

/// Between two looks at what nobody announces.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Looks until it should long be there.
const LOOKS_MAX: u32 = 600;

/// The key of the one replica on the stream, once something is stored there.
async fn key(server: &Server) -> String {
    for _ in 0..LOOKS_MAX {
        if let Some(first) = server.read(STREAM).await.first() {
            return first.subject.strip_prefix("kv.v1.hint.").unwrap().to_owned();
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    panic!("nothing is stored");
}

#[tokio::test]
async fn tail_shows_what_was_published_and_hides_tokens() {
    let server = Server::started("cli-tail");
    play(&server, "cli-tail", &[]);
    let key = key(&server).await;
    let count = server.read(STREAM).await.len().to_string();
    let all = ask(&server, &["tail", "--since", "10m", "--count", &count]);
    assert_eq!((all.code, seqs(&all)), (0, (0..62).collect()), "{}", all.messages);
    assert!(all.text.contains("\"tokens\":{\"count\":64}"), "{}", all.text);
    let shown = ask(&server, &["tail", "--since", "10m", "--count", "1", "--tokens"]);
    assert!(shown.lines[0]["events"][0]["tokens"].is_array(), "{}", shown.text);
    let behind = ["tail", "--replica", &key, "--from-seq", "50", "--count", "5"];
    let behind = seqs(&ask(&server, &behind));
    assert!(behind.starts_with(&[50, 51, 52, 53]), "{behind:?}");
}

/// Who waits sees what comes, also on a stream that is made meanwhile.
#[tokio::test]
async fn tail_follows_a_stream_that_comes_later() {
    let server = Server::started("cli-later");
    let mut command = kvbridge();
    command.args(["tail", "--count", "3", "--nats", &server.url()]);
    let mut tail = Running::start(&mut command);
    play(&server, "cli-later", &[]);
    let first: Value = serde_json::from_str(&tail.line()).unwrap();
    assert_eq!(first["replica"]["model"], "capture");
    assert_eq!(tail.end(None).0, 0);
}

#[tokio::test]
async fn replay_gives_a_range_and_says_what_is_missing_and_why() {
    let server = Server::started("cli-replay");
    play(&server, "cli-replay", &["--drop", "40-50", "--journal", "5"]);
    let key = key(&server).await;
    let replay = |from: &str, to: &str, more: &[&str]| {
        let args = [&["replay", "--replica", &key, "--from", from, "--to", to], more].concat();
        ask(&server, &args)
    };
    let whole = replay("3", "9", &[]);
    assert_eq!((whole.code, seqs(&whole)), (0, (3..10).collect()), "{}", whole.messages);
    assert!(whole.text.contains("\"tokens\":{\"count\":"), "{}", whole.text);
    let lost = replay("38", "70", &[]);
    assert_eq!(lost.code, 3);
    assert!(
        lost.messages.contains("a reset stands for them (permanent_hole, trust lower_bound"),
        "{}",
        lost.messages
    );
    assert!(
        lost.messages.contains("seqs 62 to 70 are missing: the log of this life ends before them"),
        "{}",
        lost.messages
    );
    let stream = server.jetstream().await.get_stream(STREAM).await.unwrap();
    let tenth = server.read(STREAM).await.iter().position(|message| message.envelope.seq.0 == 10);
    stream.purge().sequence(1 + u64::try_from(tenth.unwrap()).unwrap()).await.unwrap();
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli-replay-out.jsonl");
    let gone = replay("5", "12", &["--out", file.to_str().unwrap()]);
    assert_eq!((gone.code, gone.text.as_str()), (3, ""));
    assert!(gone.messages.contains("seqs 5 to 9 are missing: kept no more"), "{}", gone.messages);
    let written = std::fs::read_to_string(&file).unwrap();
    assert_eq!(written.lines().count(), 3, "{written}");
    let other = replay("0", "1", &["--epoch", "7"]);
    assert_eq!(other.code, 3, "{}", other.messages);
    assert!(other.messages.contains("epoch 7: 0 messages, 2 seqs missing"), "{}", other.messages);
}

#[tokio::test]
async fn a_replay_is_published_beside_the_live_path_only() {
    let server = Server::started("cli-republish");
    play(&server, "cli-republish", &[]);
    let key = key(&server).await;
    let republish = |prefix: &str, more: &[&str]| {
        let args = ["replay", "--replica", &key, "--from", "10", "--to", "19", "--republish"];
        ask(&server, &[&args[..], &[prefix], more].concat())
    };
    let refused = republish("kv.v1.hint", &["--yes"]);
    assert_eq!(refused.code, 2);
    assert!(refused.messages.contains("is the live path"), "{}", refused.messages);
    let unsure = republish("lab", &[]);
    assert_eq!(unsure.code, 2);
    assert!(unsure.messages.contains("up to 10 messages"), "{}", unsure.messages);
    let client = async_nats::connect(server.url()).await.unwrap();
    let mut lab = client.subscribe("lab.>").await.unwrap();
    client.flush().await.unwrap();
    let before = server.read(STREAM).await.len();
    let done = republish("lab", &["--yes"]);
    assert_eq!((done.code, done.text.as_str()), (0, ""), "{}", done.messages);
    let mut seqs = BTreeSet::new();
    while seqs.len() < 10 {
        let message = tokio::time::timeout(Duration::from_secs(10), lab.next()).await;
        let message = message.expect("it comes").unwrap();
        assert_eq!(message.subject.as_str(), format!("lab.{key}"));
        let headers = message.headers.unwrap();
        assert!(headers.get("Nats-Msg-Id").is_none());
        let seq: u64 = headers.get("Kvbridge-Seq").unwrap().as_str().parse().unwrap();
        seqs.insert(seq);
    }
    assert_eq!(seqs, (10..20).collect());
    assert_eq!(server.read(STREAM).await.len(), before, "the live path is as it was");
}

#[tokio::test]
async fn a_view_is_shown_saved_and_compared() {
    let server = Server::started("cli-snapshot");
    let mut command = kvbridge();
    command
        .args(["run", "--listen", "127.0.0.1:0", "--rate", "1000", "--play"])
        .arg(one_life("cli-snapshot.jsonl"))
        .env("KVBRIDGE__BUS__KIND", "nats")
        .env("KVBRIDGE__BUS__URL", server.url());
    let mut bridge = Running::start(&mut command);
    while !bridge.line().contains("trust exact") {}
    let key = key(&server).await;
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli-snapshot.view");
    let file = file.to_str().unwrap();
    // Who asks soon after another one is given the same view.
    let mut looks = 0;
    let now = loop {
        let now = ask(&server, &["snapshot", "--replica", &key, "--at", "now", "--out", file]);
        if now.code == 0 && now.text.contains("next seq 62") {
            break now.text;
        }
        looks += 1;
        assert!(looks < LOOKS_MAX, "{}{}", now.text, now.messages);
        tokio::time::sleep(LOOK_EVERY).await;
    };
    assert!(now.contains("trust exact ("), "{now}");
    // A file needs no server.
    let output = kvbridge().args(["snapshot", "--json", "--at", file]).output().unwrap();
    let saved = said(&output);
    assert_eq!(saved.lines[0]["next_seq"], 62, "{}{}", saved.text, saved.messages);
    let latest = ask(&server, &["snapshot", "--replica", &key, "--json"]);
    assert_eq!(latest.lines[0]["blocks"], saved.lines[0]["blocks"], "{}", latest.messages);
    let same = ask(&server, &["snapshot", "--replica", &key, "--diff", file, "latest"]);
    assert_eq!(same.code, 0, "{}{}", same.text, same.messages);
    assert!(same.text.ends_with("the same blocks\n"), "{}", same.text);
    assert_eq!(bridge.end(Some("-TERM")).0, 0);
    let none = ask(&server, &["snapshot", "--replica", &key, "--at", "now"]);
    assert_eq!(none.code, 1);
    assert!(none.messages.contains("none publishes it"), "{}", none.messages);
    std::fs::write(file, "no view").unwrap();
    let wrong = ask(&server, &["snapshot", "--at", file]);
    assert_eq!(wrong.code, 2, "{}", wrong.messages);
}

/// What is wrong on the command line is said before anything is connected to.
#[test]
fn wrong_flags_are_exit_2_and_an_absent_server_is_exit_1() {
    for args in [
        &["tail", "--from-seq", "1", "--nats", "nats://127.0.0.1:9"][..],
        &["tail", "--replica", "a.b", "--nats", "nats://127.0.0.1:9"],
        &["tail", "--raw", "x", "--nats", "nats://127.0.0.1:9"],
        &["tail", "--replica", "m.i.0"],
        &["replay", "--replica", "m.i.0", "--from", "2", "--to", "1", "--nats", "nats://h:9"],
        &["snapshot", "--nats", "nats://127.0.0.1:9"],
        &["snapshot", "--replica", "m.i.0", "--nats", "http://127.0.0.1:9"],
        &["snapshot", "--replica", "m.i.0", "--nats", "nats://h:9", "--token-file", "/absent"],
    ] {
        let output = kvbridge().args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", said(&output).messages);
    }
    let args = ["snapshot", "--replica", "m.i.0", "--nats", "nats://127.0.0.1:9"];
    let output = kvbridge().args(args).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output).messages);
    assert!(said(&output).messages.contains("no server answers"));
}
