//! A bridge that is cut off from an engine whose journal is too short takes what it missed from its
//! twin's log.

use std::{
    io::copy,
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use kvbridge::clock::Clock;
use serde_json::{Value, json};

use crate::{
    harness::{Bridge, Engine, configure, folder, until},
    nats_lives::{each_once, log_reaches, resets},
    nats_server::Server,
    oracle::{State, lives},
};

/// The bus forgets ids this fast.
const WINDOW: Duration = Duration::from_secs(1);

/// A line to an engine that can be cut.
struct Line {
    port: u16,
    /// Its connections; `None` while it is cut.
    open: Arc<Mutex<Option<Vec<TcpStream>>>>,
}

impl Line {
    fn to(engine: u64) -> Line {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let open = Arc::new(Mutex::new(Some(Vec::new())));
        let kept = Arc::clone(&open);
        let target = (Ipv4Addr::LOCALHOST, u16::try_from(engine).unwrap());
        thread::spawn(move || {
            for near in listener.incoming() {
                let near = near.unwrap();
                let Some(open) = &mut *kept.lock().unwrap() else { continue };
                let Ok(far) = TcpStream::connect(target) else { continue };
                open.extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
                let mut back = (far.try_clone().unwrap(), near.try_clone().unwrap());
                let mut forth = (near, far);
                // A line that is cut ends either with an error or with an end.
                thread::spawn(move || copy(&mut back.0, &mut back.1).ok());
                thread::spawn(move || copy(&mut forth.0, &mut forth.1).ok());
            }
        });
        Line { port, open }
    }

    fn cut(&self) {
        for socket in self.open.lock().unwrap().take().unwrap_or_default() {
            // The other end may have gone first.
            drop(socket.shutdown(Shutdown::Both));
        }
    }

    fn mend(&self) {
        *self.open.lock().unwrap() = Some(Vec::new());
    }
}

/// Two bridges on one engine, one of them behind a line, and a reader of their log.
struct World {
    server: Server,
    engine: Engine,
    line: Line,
    near: Bridge,
    far: Bridge,
    reader: Bridge,
}

fn world(test: &str) -> World {
    let server = Server::started(&format!("heal_{test}"));
    let mut engine = Engine::start();
    let line = Line::to(engine.live);
    let source = engine.source("a");
    let behind = source.replacen(&engine.live.to_string(), &line.port.to_string(), 1);
    let start = |name: &str, sources: &[String]| {
        let folder = folder(&format!("heal_{test}_{name}"));
        let bus = format!(
            "[bus]\nkind = \"nats\"\nurl = \"{}\"\nbridge = \"{name}\"\nduplicate_window = \"1s\"\n",
            server.url()
        );
        configure(&folder, sources, &bus);
        Bridge::start(&folder)
    };
    let near = start("near", &[source]);
    engine.wait_subscriber();
    let far = start("far", &[behind]);
    let reader = start("reader", &[]);
    engine.publish(10);
    for bridge in [&near, &far] {
        bridge.standing("a", "exact", 10);
    }
    log_reaches(&server, 1, 10);
    until("the far one may speak", || (far.replica("a")["life"]["state"] == "named").then_some(()));
    World { server, engine, line, near, far, reader }
}

impl World {
    /// All three are exact there, and hold what the engine does.
    fn agree(&self, next_seq: u64) {
        let truth = lives("0.32.0-basic")[0].fold(0..next_seq).redacted();
        let nothing: Vec<String> = Vec::new();
        for bridge in [&self.near, &self.far] {
            bridge.standing("a", "exact", next_seq);
        }
        until("the reader has it", || {
            let found = self.reader.replica("a");
            (found["trust"] == "exact" && found["next_seq"] == next_seq).then_some(())
        });
        for bridge in [&self.near, &self.far, &self.reader] {
            let blocks = bridge.blocks("a");
            let records: Vec<Value> =
                blocks.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert_eq!(State::of_snapshot(&records).difference(&truth), nothing);
        }
    }

    fn healed(&self) -> String {
        self.far.metric("kvbridge_facts_total{replica=\"m.a.0\",fact=\"healed_by_twin\"}")
    }

    /// The far one misses 20 batches, for longer than the bus knows ids, and comes back.
    fn misses_20(&mut self, faults: &Value) {
        self.line.cut();
        until("the far one sees it", || (self.far.replica("a")["trust"] == "none").then_some(()));
        self.engine.publish(20);
        self.near.standing("a", "exact", 30);
        log_reaches(&self.server, 1, 30);
        let clock = Clock::start();
        until("the ids are forgotten", || (clock.elapsed() > WINDOW * 2).then_some(()));
        self.engine.set(faults);
        self.line.mend();
    }

    /// The log has everything once, and no reset.
    fn nothing_lost(&self, next_seq: u64) {
        let messages = log_reaches(&self.server, 1, next_seq);
        each_once(&messages);
        assert_eq!(resets(&messages), []);
    }
}

#[test]
fn a_journal_that_begins_too_late_is_made_good_by_the_twin() {
    let mut world = world("truncated");
    world.misses_20(&json!({"hole": (0..25).collect::<Vec<u64>>()}));
    world.far.standing("a", "exact", 30);
    world.engine.publish(5);
    world.agree(35);
    world.nothing_lost(35);
    assert_eq!(world.healed(), "1");
}

#[test]
fn a_hole_in_the_journal_is_made_good_by_the_twin() {
    let mut world = world("hole");
    world.misses_20(&json!({"hole": [13, 14, 15]}));
    world.far.standing("a", "exact", 30);
    world.engine.publish(5);
    world.agree(35);
    world.nothing_lost(35);
    assert_eq!(world.healed(), "1");
}

#[test]
fn a_whole_journal_is_not_written_to_the_log_a_second_time() {
    let mut world = world("whole");
    world.misses_20(&json!({}));
    world.far.standing("a", "exact", 30);
    world.engine.publish(5);
    world.agree(35);
    world.nothing_lost(35);
    assert_eq!(world.healed(), "");
}
