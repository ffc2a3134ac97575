//! The sink of SMG's gateway, read by grpcio with SMG's own messages: whatever happens, a reader
//! ends with what the engine has, or with nothing, or is told to begin anew.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    fake_engine::peer::Pair,
    placement_world::{More, Placement},
    program::kvbridge,
    proxy::Link,
    security::Files,
    smg_reader::{Held, SmgReader},
};

const SINK: &str = "[[sinks]]\npreset = \"smg\"\nlisten = \"127.0.0.1:0\"\ngrace = \"300ms\"\n";

/// Between two looks, of which there are as many as fit into a minute.
const LOOK: Duration = Duration::from_millis(20);
const LOOKS_MAX: u32 = 3_000;

async fn start(name: &str, args: &str, sink: &'static str) -> Placement {
    Placement::start(&format!("smg-{name}"), args, More { recovery: sink, ..More::default() }).await
}

async fn lines(pair: &Pair) -> Vec<Value> {
    let (url, _) = pair.replica_url.split_once("/v1/").unwrap();
    let answer = pair.client.get(format!("{url}/v1/sinks")).send().await.unwrap();
    let answer: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    answer["sinks"].as_array().unwrap().clone()
}

/// Where the one line is read.
async fn address(pair: &Pair) -> String {
    for _ in 0..LOOKS_MAX {
        let lines = lines(pair).await;
        let address = lines.first().and_then(|line| line["listen"].as_str());
        if let Some(address) = address {
            return address.to_owned();
        }
        tokio::time::sleep(LOOK).await;
    }
    panic!("no sink is bound");
}

/// What the engine has.
async fn truth(pair: &Pair) -> Held {
    let (_, blocks) = pair.truth().await;
    blocks.into_iter().map(|(hash, tier, ..)| (hash, u64::from(tier == "device"))).collect()
}

/// The reader ends with that.
async fn agrees(reader: &SmgReader, before: &Held, wanted: &Held) {
    for _ in 0..LOOKS_MAX {
        if reader.holds(before) == *wanted {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
    let held = reader.holds(before);
    let ghosts = held.difference(wanted).count();
    panic!("{ghosts} ghosts, {} missing", wanted.difference(&held).count());
}

/// The bridge is exact, and so is the reader.
async fn is_true(pair: &Pair, reader: &SmgReader, before: &Held) -> Held {
    pair.is_true().await;
    let wanted = truth(pair).await;
    assert!(!wanted.is_empty());
    agrees(reader, before, &wanted).await;
    wanted
}

#[tokio::test]
async fn a_fresh_reader_has_all_and_one_that_comes_back_what_it_lacks() {
    let placement = start("resume", "--blocks 96", SINK).await;
    let pair = &placement.pair;
    pair.burst(40).await;
    let address = address(pair).await;
    let reader = SmgReader::open(&address, 0, &[]);
    is_true(pair, &reader, &Held::new()).await;
    let first = reader.batches()[0].clone();
    assert_eq!(first["events"][0][0], "clear");
    assert_eq!(first["snapshot"], json!([0, 1]));
    pair.burst(40).await;
    let held = is_true(pair, &reader, &Held::new()).await;
    let newest = reader.newest();
    drop(reader);
    pair.burst(20).await;
    let reader = SmgReader::open(&address, newest, &[]);
    is_true(pair, &reader, &held).await;
    assert_eq!(reader.batches()[0]["seq"], newest + 1);
    assert_eq!(reader.clears(), 0);
    let readers = lines(pair).await[0]["readers"].clone();
    assert_eq!((readers.as_array().unwrap().len(), &readers[0]["listening"]), (1, &json!(true)));
    placement.pair.end();
}

#[tokio::test]
async fn a_number_whose_past_is_gone_is_out_of_range() {
    let mut placement = start("expired", "--blocks 96", SINK).await;
    let first = address(&placement.pair).await;
    let reader = SmgReader::open(&first, 0, &[]);
    is_true(&placement.pair, &reader, &Held::new()).await;
    let newest = reader.newest();
    for start in [1, newest + 1_000_000_000, u64::MAX] {
        assert_eq!(SmgReader::open(&first, start, &[]).ended(), "OUT_OF_RANGE", "{start}");
    }
    // Another process: its line is another one, and no number of the one before is in it.
    placement.pair.kill_and_start(async |pair| pair.burst(5).await).await;
    let second = address(&placement.pair).await;
    assert_eq!(SmgReader::open(&second, newest, &[]).ended(), "OUT_OF_RANGE");
    placement.pair.burst(5).await;
    let reader = SmgReader::open(&second, 0, &[]);
    is_true(&placement.pair, &reader, &Held::new()).await;
    let unknown = SmgReader::open(&second, 0, &["--service", "some.Engine"]);
    assert_eq!(unknown.ended(), "UNIMPLEMENTED");
    placement.pair.end();
}

#[tokio::test]
async fn every_engine_s_service_has_the_stream() {
    let placement = start("services", "--blocks 96", SINK).await;
    let address = address(&placement.pair).await;
    for service in [
        "vllm.grpc.engine.VllmEngine",
        "sglang.grpc.scheduler.SglangScheduler",
        "trtllm.TrtllmService",
        "tokenspeed.grpc.scheduler.TokenSpeedScheduler",
    ] {
        let reader = SmgReader::open(&address, 0, &["--service", service]);
        is_true(&placement.pair, &reader, &Held::new()).await;
    }
    placement.pair.end();
}

#[tokio::test]
async fn an_engine_that_starts_anew_and_a_burst_that_is_lost_leave_no_ghost() {
    let placement = start("restart", "--blocks 96 --host-blocks 40", SINK).await;
    let pair = &placement.pair;
    pair.burst(40).await;
    let reader = SmgReader::open(&address(pair).await, 0, &[]);
    let device = |held: Held| held.into_iter().filter(|(_, tier)| *tier == 1).collect::<Held>();
    let settled = async |pair: &Pair, reader: &SmgReader| {
        pair.reach("exact").await;
        let wanted = device(truth(pair).await);
        agrees(reader, &Held::new(), &wanted).await;
    };
    settled(pair, &reader).await;
    let clears = reader.clears();
    pair.fault(json!({"fault": "restart"})).await;
    pair.burst(30).await;
    settled(pair, &reader).await;
    assert!(reader.clears() > clears, "what was before is gone");
    for _ in 0..5 {
        pair.fault(json!({"fault": "drop", "count": 9})).await;
        pair.burst(20).await;
        settled(pair, &reader).await;
    }
    placement.pair.end();
}

#[tokio::test]
async fn what_nobody_believes_is_gone_after_the_grace_and_comes_back() {
    let placement = start("untrusted", "--blocks 96", SINK).await;
    let pair = &placement.pair;
    let reader = SmgReader::open(&address(pair).await, 0, &[]);
    is_true(pair, &reader, &Held::new()).await;
    placement.live.set(Link::Cut);
    placement.replay.set(Link::Cut);
    placement.falls_back("none", "detached").await;
    agrees(&reader, &Held::new(), &Held::new()).await;
    // One that comes now is told that nothing is there.
    let late = SmgReader::open(&address(pair).await, 0, &[]);
    agrees(&late, &Held::from([("x".to_owned(), 1)]), &Held::new()).await;
    placement.live.set(Link::Open);
    placement.replay.set(Link::Open);
    pair.burst(5).await;
    is_true(pair, &reader, &Held::new()).await;
    is_true(pair, &late, &Held::new()).await;
    placement.pair.end();
}

const BEATING: &str =
    "[[sinks]]\npreset = \"smg\"\nlisten = \"127.0.0.1:0\"\nheartbeat = \"1ms\"\n";

#[tokio::test]
async fn a_slow_reader_loses_its_stream_and_begins_anew() {
    let placement = start("slow", "--blocks 8192", BEATING).await;
    let pair = &placement.pair;
    let address = address(pair).await;
    let mut slow = SmgReader::open(&address, 0, &["--slow"]);
    let other = SmgReader::open(&address, 0, &[]);
    is_true(pair, &other, &Held::new()).await;
    let cut = "kvbridge_sink_streams_cut_total{sink=\"smg\"} 1";
    // More than a window and all buffers hold, then as many batches as may wait.
    for prompt in 0..200_u32 {
        let tokens: Vec<u32> = (0..4_096).map(|at| prompt * 5_000 + at).collect();
        pair.complete(&tokens, 1, "fake").await;
        if pair.bridge_metrics().await.contains(cut) {
            break;
        }
    }
    for _ in 0..LOOKS_MAX {
        if pair.bridge_metrics().await.contains(cut) {
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    assert!(pair.bridge_metrics().await.contains(cut), "nobody was cut off");
    slow.reads_on();
    assert_eq!(slow.ended(), "DATA_LOSS");
    // The other one was not held up.
    is_true(pair, &other, &Held::new()).await;
    let again = SmgReader::open(&address, 0, &[]);
    is_true(pair, &again, &Held::new()).await;
    placement.pair.end();
}

#[tokio::test]
async fn an_orderly_end_says_that_everything_is_gone() {
    let placement = start("end", "--blocks 96", SINK).await;
    let reader = SmgReader::open(&address(&placement.pair).await, 0, &[]);
    is_true(&placement.pair, &reader, &Held::new()).await;
    placement.pair.end();
    assert_eq!(reader.ended(), "DATA_LOSS");
    assert_eq!(reader.holds(&Held::new()), Held::new());
}

#[tokio::test]
async fn a_running_sink_is_tried_message_by_message() {
    let placement = start("tried", "--blocks 96", SINK).await;
    placement.pair.burst(20).await;
    let at = address(&placement.pair).await;
    let (url, _) = placement.pair.replica_url.split_once("/v1/").unwrap();
    for from in [["--url", url], ["--endpoint", &at]] {
        let mut command = kvbridge();
        command.args(["sink", "test", "--preset", "smg", "--count", "2", "--json"]).args(from);
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{text}");
        let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!((&last["messages"], &last["broken"]), (&json!(2), &json!(0)));
        assert!(text.contains("\"event\":\"cleared\"") && !text.contains("token_ids"), "{text}");
    }
    placement.pair.end();
}

#[tokio::test]
async fn a_reader_shows_a_token_and_is_encrypted() {
    let files = Files::make("smg-guard");
    let tokens = "[[tokens]]\ntoken = \"0123456789abcdef-all\"\nscopes = [\"tokens\"]\n\
                  [[tokens]]\ntoken = \"0123456789abcdef-read\"\nscopes = [\"read\"]\n\
                  [[tokens]]\ntoken = \"0123456789abcdef-other\"\nscopes = [\"tokens\"]\n\
                  models = [\"other\"]\n";
    files.write("sink-tokens.toml", tokens);
    let sink = format!(
        "{SINK}tokens_file = \"{}\"\ntls = {{ cert = \"{}\", key = \"{}\" }}\n",
        files.path("sink-tokens.toml"),
        files.path("cert.pem"),
        files.path("key.pem"),
    );
    let placement = start("guard", "--blocks 96", sink.leak()).await;
    let address = address(&placement.pair).await;
    assert!(address.starts_with("https://"), "{address}");
    let ca = files.path("ca.pem");
    let with = |token: &str| SmgReader::open(&address, 0, &["--ca", &ca, "--token", token]);
    let reader = with("0123456789abcdef-all");
    is_true(&placement.pair, &reader, &Held::new()).await;
    assert_eq!(with("0123456789abcdef-read").ended(), "PERMISSION_DENIED");
    assert_eq!(with("0123456789abcdef-other").ended(), "PERMISSION_DENIED");
    assert_eq!(with("0123456789abcdef-none").ended(), "UNAUTHENTICATED");
    assert_eq!(SmgReader::open(&address, 0, &["--ca", &ca]).ended(), "UNAUTHENTICATED");
    assert_eq!(SmgReader::open(&address, 0, &[]).ended(), "UNAVAILABLE");
    placement.pair.end();
}
