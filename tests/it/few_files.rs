//! No file descriptor is left: what is open goes on, and what must be opened waits for one.

use std::{net::TcpStream, process::Command};

use crate::{
    harness::{Bridge, Engine, SECOND_LIFE, configure, folder, until},
    lifecycle_restart::alone,
};

/// Enough to start with, and soon used up.
const FILES: usize = 64;

/// The program with no more files than that.
fn with_few_files(command: &Command) -> Command {
    let mut few = Command::new("sh");
    few.args(["-c", &format!("ulimit -n {FILES}; exec \"$0\" \"$@\"")]);
    few.arg(command.get_program()).args(command.get_args());
    few.current_dir(command.get_current_dir().unwrap());
    few
}

#[test]
fn without_files_the_stream_goes_on_and_a_restart_is_learnt_when_there_are_some() {
    let folder = folder("few_files");
    let mut engine = Engine::start();
    configure(&folder, &[engine.source("a")], "");
    let bridge = Bridge::start_as(with_few_files(&Bridge::command(&folder)));
    engine.wait_subscriber();
    engine.publish(20);
    bridge.standing("a", "exact", 20);
    let mut events = bridge.events();
    let mut tells = |what: &str| events.any(|line| line.contains(what));

    let address = bridge.url().trim_start_matches("http://").to_owned();
    let mut held = Vec::new();
    until("no file is left", || {
        // Beyond those that are accepted some wait before the door.
        held.push(TcpStream::connect(&address).unwrap());
        (bridge.open_files() >= FILES).then_some(())
    });
    engine.publish(10);
    assert!(tells("\"seq\":29"), "the live stream needs no new file");

    engine.restart(SECOND_LIFE);
    assert!(tells("\"trust\":\"none\""), "nothing is believed of an engine that is away");
    drop(held);
    engine.publish(4);
    bridge.standing("a", "exact", 4);
    assert_eq!(bridge.blocks("a"), alone(), "nothing of the life before is left");
    bridge.end();
}
