//! How far requests are apart.

use super::script::{Script, vllm_like};

/// Two looks are closer to each other than the longest interval.
fn script() -> Script {
    Script::new(vllm_like()).paced(50, 20_000)
}

#[test]
fn looks_that_find_nothing_wrong_do_not_make_a_repair_wait() {
    let mut script = script();
    script.run("attach; live 0; live 1; live 2");
    for _ in 0..12 {
        let said = script.run("wait 11000; batch 0; batch 1; batch 2; end");
        assert!(said.contains("request_replay 0") && said.contains("replayed"), "{said}");
    }
    let said = script.run("live 4; wait 80");
    assert!(said.contains("request_replay 0"), "{said}");
}

#[test]
fn an_engine_that_has_said_nothing_yet_does_not_make_a_repair_wait() {
    let mut script = script();
    script.run("attach");
    for _ in 0..12 {
        let said = script.run("wait 11000; end");
        assert!(said.contains("request_replay 0") && said.contains("end_only"), "{said}");
    }
    let said = script.run("live 0; live 2; wait 80");
    assert!(said.contains("request_replay 0"), "{said}");
}

#[test]
fn trouble_makes_requests_rarer() {
    let mut script = script();
    script.run("attach; live 0; live 1; live 2; live 4; failed");
    let asked = |script: &mut Script| script.run("wait 10; failed").contains("request_replay");
    let waits: Vec<usize> =
        (0..3).map(|_| (0..200).take_while(|_| !asked(&mut script)).count()).collect();
    assert!(waits.is_sorted() && waits[2] > 3 * waits[0] / 2, "{waits:?}");
}
