//! An engine whose events are taken: why nothing comes follows from how its answers come.

use super::{Fake, Look};

/// How long a probe may show that an engine has nothing: two answers of 2 s with a pause between.
const LISTEN: [&str; 5] = ["--drain", "--probe", "--listen", "9s", "--json"];

/// What it says of an engine that was set up so.
#[track_caller]
fn finds(args: &str, fault: Option<&str>, id: &str) -> Look {
    let fake = Fake::start("trtllm", args);
    if let Some(fault) = fault {
        fake.fault(fault);
    }
    let look = fake.look(&LISTEN[..4]);
    fake.end();
    assert!(look.troubles().contains(&id), "no {id}: {:#?}", look.findings);
    look
}

#[test]
fn events_are_left_to_their_reader_unless_they_are_asked_for() {
    let fake = Fake::start("trtllm", "--drain-wait-ms 60 --blocks 256 --dp 2");
    let look = fake.look(&["--dp", "2"]);
    assert_eq!((look.code, look.troubles()), (0, vec![]));
    look.find("drain_not_taken");
    let taken = fake.look(&["--dp", "2", "--drain", "--probe", "--listen", "3s"]);
    assert_eq!((taken.code, taken.troubles()), (0, vec![]), "{:#?}", taken.findings);
    for id in ["engine_told", "events_flow", "wire_form", "hashes_proven"] {
        taken.find(id);
    }
    fake.end();
}

#[test]
fn a_server_without_the_path_is_named() {
    let fake = Fake::start("vllm", "--encoding 0.16");
    let look = fake.look(&["--engine", "trtllm", "--drain", "--listen", "2s"]);
    assert!(look.troubles().contains(&"drain_absent"), "{:#?}", look.findings);
    fake.end();
}

#[test]
fn events_that_are_off_are_named_with_the_setting() {
    let look = finds("--buffer-steps 0", None, "buffer_off");
    let setting = look.find("buffer_off")["setting"].as_str().unwrap();
    assert!(setting.contains("event_buffer_max_size"), "{setting}");
}

#[test]
fn a_server_that_no_request_wakes_is_named() {
    let latch = r#"{"fault": "latch", "on": true}"#;
    finds("--drain-wait-ms 300 --buffer-steps 0", Some(latch), "drain_latched");
}

#[test]
fn an_answer_that_traffic_holds_back_is_named() {
    finds("--rps 100 --blocks 256", None, "drain_held");
}

#[test]
fn what_the_server_says_is_compared_with_its_events() {
    let wait = "--drain-wait-ms 60 --blocks 256";
    // Too long for what was told, then too short.
    finds(&format!("{wait} --told-block-size 8"), None, "block_size_mismatch");
    finds(&format!("{wait} --told-algorithm v1_block_key"), None, "algorithm_differs");
}

#[test]
fn another_reader_is_named() {
    let fake = Fake::start("trtllm", "--drain-wait-ms 60 --blocks 256");
    let look = fake.look_during(&LISTEN[..4], |fake| {
        fake.fault(r#"{"fault": "burst", "count": 4}"#);
        fake.post("/kv_cache_events", "");
        fake.fault(r#"{"fault": "burst", "count": 1}"#);
    });
    assert!(look.troubles().contains(&"competing_consumer"), "{:#?}", look.findings);
    fake.end();
}

/// The same engine where it publishes: by its server, which does not tell of that, and by the
/// endpoint alone.
#[test]
fn what_is_published_is_looked_at_where_it_is_said_to_be() {
    let fake = Fake::start("trtllm", "--native cpp --blocks 256 --rps 50");
    let replay = fake.ports["ranks"][0]["replay"].as_str().unwrap();
    let by_server = [fake.url(), "--endpoint", fake.live(0)];
    let named = [fake.url(), "--engine", "trtllm", "--endpoint", fake.live(0)];
    let by_endpoint = [fake.live(0), "--engine", "trtllm"];
    for at in [by_server.as_slice(), &named, &by_endpoint] {
        let look = Look::with(&[at, &["--replay", replay, "--listen", "2s"]].concat());
        assert_eq!((look.code, look.troubles()), (0, vec![]), "{at:?} {:#?}", look.findings);
        for id in ["events_flow", "wire_form", "hashes_proven"] {
            look.find(id);
        }
        let form = look.find("wire_form")["detail"].as_str().unwrap();
        assert!(form.contains("trtllm.map"), "{form}");
    }
    fake.end();
}

#[test]
fn events_that_are_published_instead_are_named_with_the_setting() {
    let look = finds("--native cpp", None, "buffer_off");
    let setting = look.find("buffer_off")["setting"].as_str().unwrap();
    assert!(setting.contains("kv_events_config unset"), "{setting}");
}
