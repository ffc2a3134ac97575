//! The process ends and comes back; the engine goes on, or does not.

use std::{fs, path::Path, process::Stdio};

use crate::harness::{Bridge, Engine, SECOND_LIFE, configure, folder, until};

/// A bridge that has read `n` batches of the first life, exactly.
fn begun(name: &str, n: u64) -> (std::path::PathBuf, Engine, Bridge) {
    let folder = folder(name);
    let mut engine = Engine::start();
    configure(&folder, &[engine.source("a")], "");
    let bridge = Bridge::start(&folder);
    engine.wait_subscriber();
    engine.publish(n);
    bridge.standing("a", "exact", n);
    (folder, engine, bridge)
}

fn checkpoint(folder: &Path) -> std::path::PathBuf {
    folder.join("state/m.a.0.ckpt")
}

#[test]
fn the_same_engine_is_exact_again_with_the_same_blocks() {
    let (folder, mut engine, bridge) = begun("restart_same", 30);
    let before = (bridge.replica("a")["epoch"].clone(), bridge.blocks("a"));
    assert!(!before.1.is_empty());
    bridge.end();
    let bridge = Bridge::start(&folder);
    let after = bridge.standing("a", "exact", 30);
    assert_eq!((after["epoch"].clone(), bridge.blocks("a")), before);
    let restored = bridge.metric("kvbridge_checkpoints_loaded_total{outcome=\"restored\"}");
    assert_eq!(restored, "1");
    engine.publish(5);
    assert_eq!(bridge.standing("a", "exact", 35)["epoch"], before.0);
    // Killed, and the engine goes on: what is missing comes from the journal.
    until("a checkpoint", || {
        (bridge.metric("kvbridge_checkpoints_written_total") != "0").then_some(())
    });
    bridge.signal("-KILL");
    bridge.wait();
    engine.publish(7);
    let bridge = Bridge::start(&folder);
    assert_eq!(bridge.standing("a", "exact", 42)["epoch"], before.0);
}

#[test]
fn an_engine_that_restarted_meanwhile_is_a_new_epoch() {
    let (folder, mut engine, bridge) = begun("restart_engine", 30);
    let before = bridge.replica("a")["epoch"].as_u64().unwrap();
    bridge.end();
    engine.restart(SECOND_LIFE);
    engine.publish(2);
    let bridge = Bridge::start(&folder);
    engine.wait_subscriber();
    engine.publish(2);
    let after = bridge.standing("a", "exact", 4);
    assert!(after["epoch"].as_u64().unwrap() > before);
    assert_eq!(bridge.blocks("a"), alone());
}

#[test]
fn an_engine_that_restarted_past_the_old_seq_is_a_new_epoch() {
    let (folder, mut engine, bridge) = begun("restart_past", 3);
    let before = bridge.replica("a")["epoch"].as_u64().unwrap();
    bridge.end();
    engine.restart(SECOND_LIFE);
    engine.publish(4);
    let bridge = Bridge::start(&folder);
    let after = bridge.standing("a", "exact", 4);
    assert!(after["epoch"].as_u64().unwrap() > before);
    assert_eq!(bridge.blocks("a"), alone());
}

/// The second life as a bridge sees it that knows no other.
pub(crate) fn alone() -> String {
    let folder = folder(&format!("restart_alone_{:?}", std::thread::current().id()));
    let mut engine = Engine::start();
    engine.restart(SECOND_LIFE);
    configure(&folder, &[engine.source("a")], "");
    let bridge = Bridge::start(&folder);
    engine.wait_subscriber();
    engine.publish(4);
    bridge.standing("a", "exact", 4);
    bridge.blocks("a")
}

#[test]
fn a_damaged_checkpoint_is_not_trusted_and_does_not_hurt() {
    let (folder, mut engine, bridge) = begun("restart_damaged", 20);
    let (epoch, blocks) = (bridge.replica("a")["epoch"].as_u64().unwrap(), bridge.blocks("a"));
    bridge.end();
    let path = checkpoint(&folder);
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.len() - 40;
    bytes[at] ^= 1;
    fs::write(&path, bytes).unwrap();
    let bridge = Bridge::start(&folder);
    // The journal holds the whole life: it is learnt again, under a name above the old one.
    let after = bridge.standing("a", "exact", 20);
    assert!(after["epoch"].as_u64().unwrap() > epoch);
    assert_eq!(bridge.blocks("a"), blocks);
    let refused = bridge.metric("kvbridge_checkpoints_loaded_total{outcome=\"corrupted\"}");
    assert_eq!(refused, "1");
    engine.publish(1);
    bridge.standing("a", "exact", 21);
}

#[test]
fn two_processes_on_one_folder_are_refused() {
    let (folder, _engine, _bridge) = begun("restart_two", 1);
    let second = Bridge::command(&folder).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(second.status.code(), Some(2));
    let message = String::from_utf8(second.stderr).unwrap();
    assert!(message.contains("is in use by another process"), "{message}");
}
