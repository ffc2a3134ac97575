//! Sinks whose sockets several replicas share: readers that bind and are connected to, of which one
//! restarts, and one pair of sockets with a topic for each replica.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, Mutex},
};

use serde_json::Value;

use crate::{
    bridge::Bridge,
    harness::{python, until},
    oracle::lives,
    peer::{Peer, capture, root},
    program::kvbridge,
};

/// `bound_reader.py`: libzmq and msgpack's own library.
struct BoundReader {
    process: Child,
    _stdin: ChildStdin,
    port: u64,
    said: Arc<Mutex<Vec<Value>>>,
}

impl BoundReader {
    fn start(port: u64) -> BoundReader {
        let mut process = Command::new(python())
            .arg(root().join("tests/peers/bound_reader.py"))
            .arg(port.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = process.stdin.take().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let bound: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        let said = Arc::<Mutex<Vec<Value>>>::default();
        let heard = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                heard.lock().unwrap().push(serde_json::from_str(&line).unwrap());
            }
        });
        BoundReader { process, _stdin: stdin, port: bound["port"].as_u64().unwrap(), said }
    }

    fn said(&self) -> Vec<Value> {
        self.said.lock().unwrap().clone()
    }

    /// What it holds of each topic. No block is stored twice, and none is removed that it has not.
    fn holds(&self) -> BTreeMap<String, BTreeSet<u64>> {
        let mut held: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
        for message in self.said() {
            let blocks = held.entry(message["topic"].as_str().unwrap().to_owned()).or_default();
            for event in message["events"].as_array().unwrap() {
                let hashes = |name: &str| -> Vec<u64> {
                    let all = event[name].as_array().into_iter().flatten();
                    all.map(|hash| hash.as_u64().unwrap()).collect()
                };
                if event["clear"] == true {
                    blocks.clear();
                }
                for hash in hashes("store") {
                    assert!(blocks.insert(hash), "stored again without a clear: {event}");
                }
                for hash in hashes("remove") {
                    assert!(blocks.remove(&hash), "removed what was not told: {event}");
                }
            }
        }
        held
    }

    /// How often everything was gone.
    fn clears(&self) -> usize {
        let said = self.said();
        let events = said.iter().flat_map(|message| message["events"].as_array().unwrap());
        events.filter(|event| event["clear"] == true).count()
    }

    /// Ends it as `kill -9` does; a new one takes its port.
    fn restart(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        *self = BoundReader::start(self.port);
    }
}

impl Drop for BoundReader {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn sinks(bridge: &Bridge) -> Vec<Value> {
    let all: Value = serde_json::from_str(&bridge.get("/v1/sinks")).unwrap();
    all["sinks"].as_array().unwrap().clone()
}

/// A source of that engine under another name.
fn source(peer: &Peer, instance: &str) -> Vec<String> {
    let options = ["--vllm", &peer.live(), "--replay", &peer.replay(), "--model", "m"];
    options.iter().chain(&["--instance", instance]).map(|text| (*text).to_owned()).collect()
}

fn device(bridge: &Bridge, instance: &str) -> u64 {
    let replicas = bridge.replicas();
    let of = replicas.iter().find(|replica| replica["replica"]["instance"] == instance).unwrap();
    of["blocks"]["device"].as_u64().unwrap_or(0)
}

#[test]
fn a_reader_that_binds_and_restarts_is_told_everything_and_it_alone() {
    let life = lives("0.32.0-basic")[0].len();
    let (mut one, mut two) =
        (Peer::play(&capture("0.32.0-basic"), &[]), Peer::play(&capture("0.16.0-basic"), &[]));
    let mut readers = [BoundReader::start(0), BoundReader::start(0)];
    let sink = format!(
        "[[sinks]]\npreset = \"llm-d\"\nconnect = [\"tcp://127.0.0.1:{}\", \"tcp://127.0.0.1:{}\"]\n\
         grace = \"50ms\"\nheartbeat = \"100ms\"\n",
        readers[0].port, readers[1].port
    );
    let names = ["one:8000", "two:8000"];
    let sources = [source(&one, names[0]), source(&two, names[1])];
    let bridge = Bridge::run("sink_readers", &sources, &sink);
    one.wait_subscriber();
    two.wait_subscriber();
    one.publish(20);
    two.publish(30);
    let agree = |readers: &[BoundReader; 2]| {
        for (name, reader) in names.iter().flat_map(|name| readers.iter().map(move |r| (name, r))) {
            until("what the bridge holds", || {
                let held = reader.holds();
                let told = held.get(&format!("kv@{name}@m"))?.len();
                (u64::try_from(told).ok()? == device(&bridge, name) && told > 0).then_some(())
            });
        }
    };
    agree(&readers);
    let news = |reader: &BoundReader| {
        let said = reader.said();
        said.iter().filter(|message| message["events"] != Value::Array(Vec::new())).count()
    };
    let (told, clears) = (news(&readers[0]), readers[0].clears());
    assert!(clears >= 2, "a line begins with that everything is gone");
    readers[1].restart();
    agree(&readers);
    let first = readers[1].said();
    for name in names {
        let topic = format!("kv@{name}@m");
        let first = first.iter().find(|message| message["topic"] == topic).unwrap();
        assert_eq!((&first["seq"], &first["events"][0]["clear"]), (&0.into(), &true.into()));
    }
    // The other one goes on: it was told nothing again but that time passes.
    assert_eq!((news(&readers[0]), readers[0].clears()), (told, clears));
    one.publish(life - 20);
    two.publish(10);
    bridge.until_rank(0, "the rest", |replica| replica["next_seq"].as_u64() > Some(20));
    agree(&readers);
    for line in sinks(&bridge) {
        assert!(line.get("listen").is_none() && line["readers"][1]["listening"] == true, "{line}");
        let whole = |at: usize| line["readers"][at]["told_whole"].as_u64().unwrap();
        assert_eq!((whole(0), whole(1)), (2, 4), "two lines, the second reader twice");
    }
}

#[test]
fn replicas_that_share_a_pair_of_sockets_are_read_by_topic() {
    let (mut one, mut two) =
        (Peer::play(&capture("0.32.0-basic"), &[]), Peer::play(&capture("0.16.0-basic"), &[]));
    let sink = "[[sinks]]\npreset = \"vllm\"\nlisten = \"127.0.0.1:0\"\none_socket = true\n\
                replay = \"127.0.0.1:0\"\ngrace = \"50ms\"\nheartbeat = \"100ms\"\n";
    let names = ["one:8000", "two:8000"];
    let sources = [source(&one, names[0]), source(&two, names[1])];
    let bridge = Bridge::run("sink_topics", &sources, sink);
    one.wait_subscriber();
    two.wait_subscriber();
    one.publish(20);
    two.publish(30);
    let lines = until("both lines", || {
        let lines = sinks(&bridge);
        (lines.len() == 2 && lines.iter().all(|line| line["shown"] == true)).then_some(lines)
    });
    assert_eq!(lines[0]["listen"], lines[1]["listen"]);
    let text = |field: &str| lines[0][field].as_str().unwrap().to_owned();
    let asked = |topic: Option<&str>| {
        let mut command = Command::new(python());
        command.arg(root().join("tests/peers/ask_topic.py")).arg(text("replay")).args(topic);
        let output = command.output().unwrap();
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        let topics = said["topics"].as_object().unwrap().clone();
        // Each is whole: from 0 on, without a hole.
        for seqs in topics.values().map(|seqs| seqs.as_array().unwrap()) {
            assert!(seqs.iter().zip(0_u64..).all(|(seq, at)| *seq == at), "{seqs:?}");
        }
        topics.keys().cloned().collect::<Vec<String>>()
    };
    let topics = names.map(|name| format!("kv@{name}@m"));
    assert_eq!(asked(None), topics);
    assert_eq!(asked(Some(&topics[1])), topics[1..]);
    assert_eq!(asked(Some("kv@two:")), topics[1..], "what a topic begins with");
    assert!(asked(Some("kv@three:8000@m")).is_empty(), "the end marker alone");
    // The test of one replica sees nothing of the other.
    let output = kvbridge()
        .args(["sink", "test", "--preset", "vllm", "--count", "8", "--json"])
        .args(["--url", &bridge.url, "--replica", lines[1]["replica"].as_str().unwrap()])
        .output()
        .unwrap();
    let seen = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{seen}");
    let seen = seen.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let seen = seen.filter_map(|line| Some(line["topic"].as_str()?.to_owned()));
    assert_eq!(seen.collect::<BTreeSet<_>>(), BTreeSet::from([topics[1].clone()]));
    // Each reads one topic, and asks the one journal for what came before.
    let read = |name: &str| {
        let topic = format!("kv@{name}@m");
        let options = ["--vllm", &text("listen"), "--replay", &text("replay"), "--topic", &topic];
        let named = ["--model", "m", "--instance", name];
        options.iter().chain(&named).map(|text| (*text).to_owned()).collect::<Vec<_>>()
    };
    let reader = Bridge::run("sink_topics_reader", &[read(names[0]), read(names[1])], "");
    let agree = || {
        for name in names {
            until("the same blocks", || {
                let blocks = device(&bridge, name);
                (blocks > 0 && device(&reader, name) == blocks).then_some(())
            });
        }
        until("proof", || {
            reader.replicas().iter().all(|replica| replica["trust"] == "exact").then_some(())
        });
    };
    agree();
    one.publish(42);
    two.publish(31);
    bridge.until_rank(0, "the rest", |replica| replica["next_seq"].as_u64() > Some(20));
    agree();
    assert_ne!(device(&reader, names[0]), device(&reader, names[1]));
}

#[test]
fn the_command_is_a_reader_that_binds_and_sees_blocks_of_the_size_that_is_told() {
    let mut peer = Peer::play(&capture("0.16.0-basic"), &[]);
    // A port that is free, for the command to bind.
    let port = BoundReader::start(0).port;
    let sink = format!(
        "[[sinks]]\npreset = \"llm-d\"\nconnect = [\"tcp://127.0.0.1:{port}\"]\n\
         block_size = 32\nengine_block_size = 16\ngrace = \"50ms\"\nheartbeat = \"100ms\"\n"
    );
    let bridge = Bridge::run("sink_bound_command", &[source(&peer, "one:8000")], &sink);
    peer.wait_subscriber();
    peer.publish(30);
    until("a line", || sinks(&bridge).first().filter(|line| line["shown"] == true).map(|_| ()));
    let endpoint = format!("tcp://127.0.0.1:{port}");
    let output = kvbridge()
        .args(["sink", "test", "--preset", "llm-d", "--count", "3", "--json", "--bind", &endpoint])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let first = &lines[1];
    assert_eq!((&first["seq"], &first["topic"]), (&0.into(), &"kv@one:8000@m".into()));
    assert_eq!(first["events"][0]["event"], "cleared");
    let stored = first["events"].as_array().unwrap().iter().filter(|it| it["event"] == "stored");
    let sizes: BTreeSet<u64> = stored.map(|it| it["block_size"].as_u64().unwrap()).collect();
    assert_eq!(sizes, BTreeSet::from([32]));
    let told = sinks(&bridge)[0]["shown_blocks"].as_u64().unwrap();
    assert!(told > 0 && told < device(&bridge, "one:8000"), "{told}");
}
