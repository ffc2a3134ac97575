//! `kvbridge decode`: lines, messages and exit codes.

use std::{
    path::PathBuf,
    process::{Command, Output},
};

use expect_test::expect;

fn decode(name: &str, text: Option<&str>) -> (i32, String, String) {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    if let Some(text) = text {
        std::fs::write(&path, text).unwrap();
    }
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_kvbridge"))
        .args(["decode", "--engine", "vllm", name])
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .output()
        .unwrap();
    (status.code().unwrap(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// ts 1.0, one AllBlocksCleared, rank 3.
const CLEARED: &str = "93cb3ff0000000000000919 1b0416c6c426c6f636b73436c656172656403";

fn live(seq: u64, payload_hex: &str) -> String {
    let payload = payload_hex.replace(' ', "");
    format!(
        "{{\"t\":1.0,\"socket\":\"sub\",\"dir\":\"in\",\"endpoint\":\"tcp://h:5557\",\
         \"frames_hex\":[\"\",\"{seq:016x}\",\"{payload}\"]}}\n"
    )
}

#[test]
fn one_line_for_each_live_message() {
    let mark = "{\"t\":1,\"socket\":\"mark\",\"note\":\"x\",\"frames_hex\":[]}\n";
    let replay = live(0, CLEARED).replace("\"sub\"", "\"replay\"");
    let text = [live(7, CLEARED), mark.to_owned(), replay, live(8, "92cb3ff000000000000090")];
    let (code, out, err) = decode("good.jsonl", Some(&text.concat()));
    assert_eq!((code, err.as_str()), (0, ""));
    expect![[r#"
        {"v":1,"replica":{"model":"capture","instance":"h:5557","rank":3},"epoch":0,"seq":7,"span":1,"digest":"036b28d8d0e767654de5f0e977de842c","trust":"none","ts":1000000,"engine":{"kind":"vllm","format":"vllm.array"},"hash":{"scheme":"unknown","block_size":0},"events":[{"type":"cleared","scope":["device"],"cause":"engine"}]}
        {"v":1,"replica":{"model":"capture","instance":"h:5557","rank":0},"epoch":0,"seq":8,"span":1,"digest":"612250f5aea19576c060a59ec12b479c","trust":"none","ts":1000000,"engine":{"kind":"vllm","format":"vllm.array"},"hash":{"scheme":"unknown","block_size":0},"events":[]}
    "#]].assert_eq(&out);
}

#[test]
fn what_cannot_be_read_is_told_with_its_line_and_exit_2() {
    let text = [live(1, "c1"), live(2, CLEARED), "{}\n".to_owned()].concat();
    let (code, out, err) = decode("bad.jsonl", Some(&text));
    assert_eq!((code, out.lines().count()), (2, 1));
    expect![[r#"
        bad.jsonl:1: payload is not a batch
        bad.jsonl:3: not a recorded line: wrong fields at column 2
    "#]]
    .assert_eq(&err);
}

#[test]
fn an_unreadable_file_is_exit_1() {
    let (code, out, err) = decode("absent.jsonl", None);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.starts_with("cannot read absent.jsonl"), "{err}");
}
