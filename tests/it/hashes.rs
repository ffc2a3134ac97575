//! Announced tokens against announced hashes, through the whole program on a recorded engine that
//! hashed with `sha256` and PYTHONHASHSEED=0.

use crate::harness::{Bridge, Engine, configure, folder, until};

#[test]
fn a_sample_is_hashed_again_and_a_wrong_seed_rings() {
    let folder = folder("hashes");
    let mut engine = Engine::start();
    let source = |instance: &str, more: &str| engine.source(instance) + more;
    let told = "hash_scheme = \"sha256\"\nhash_seed = \"0\"\n";
    let wrong = "hash_scheme = \"sha256\"\nhash_seed = \"1\"\n";
    // Of the third nothing is told, and the seeds that could be guessed do not fit: no fault.
    let sources = [source("right", told), source("wrong", wrong), source("untold", "")];
    configure(&folder, &sources, "");
    let bridge = Bridge::start(&folder);
    for _ in 0..3 {
        engine.wait_subscriber();
    }
    engine.publish(30);
    let right = bridge.standing("right", "exact", 30);
    assert_eq!(right["hashes"]["scheme"], "vllm.sha256", "{right}");
    assert_eq!(right["hashes"]["different"], 0, "{right}");
    assert!(right["hashes"]["equal"].as_u64().unwrap() >= 20, "{right}");
    let wrong = bridge.standing("wrong", "exact", 30);
    assert_eq!(wrong["hashes"]["equal"], 0, "{wrong}");
    assert!(bridge.standing("untold", "exact", 30)["hashes"].is_null());
    let rings = |instance: &str| {
        let (_, replica) = bridge.ask("GET", &format!("/v1/replicas/m.{instance}.0")).unwrap();
        replica.contains("\"hash_scheme_mismatch\"").then_some(())
    };
    until("the alarm", || rings("wrong"));
    assert_eq!((rings("right"), rings("untold")), (None, None));
}
