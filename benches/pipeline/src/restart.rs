//! How long a bridge is blind when it is ended and started again: its view is in a file, and counts
//! when the engine's journal has shown that it is of the same life. The other one keeps nothing.

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    burst::{self, Case},
    engine::Engine,
    folder, row,
    rows::Rows,
    server::{Kind, Programs, Server},
};

pub fn run(case: &Case, programs: &Programs, rows: &mut Rows) -> anyhow::Result<()> {
    let engine = Engine::bind(Arc::clone(&case.payloads), case.hwm, case.journal)?;
    let folder = folder()?;
    let mut server = Server::start(Kind::Ours, programs, &folder)?;
    server.register(&engine)?;
    for _ in case.payloads.iter() {
        engine.publish()?;
    }
    burst::see_last(&mut server)?;
    anyhow::ensure!(burst::settle(&mut server, case)? == 0, "not everything was read");
    let ending = Instant::now();
    server.stop()?;
    let ended = ending.elapsed();
    let starting = Instant::now();
    let mut server = Server::start(Kind::Ours, programs, &folder)?;
    let answers = starting.elapsed();
    burst::see_last(&mut server)?;
    let proven = starting.elapsed();
    anyhow::ensure!(burst::settle(&mut server, case)? == 0, "not everything came back");
    let millis = |took: Duration| took.as_secs_f64() * 1e3;
    let mut add =
        |name, took| rows.add(row(case.name, name, false), Kind::Ours.name(), millis(took));
    add("to end with a checkpoint, ms", ended);
    add("from start to the first answer, ms", answers);
    add("from start to a view that is proven, ms", proven);
    server.stop()?;
    fs::remove_dir_all(folder)?;
    Ok(())
}
