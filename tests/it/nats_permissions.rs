//! The roles under exactly the permissions that `kvbridge bus permissions` prints.

use std::{process::Output, time::Duration};

use async_nats::{ConnectOptions, Event};
use serde_json::json;
use tokio::sync::mpsc;

use crate::{
    bus_reader::{Program, World, as_user},
    nats_server::Server,
    program::kvbridge,
};

const KEY: &str = "fake.i=3A1.0";

const LIMIT: Duration = Duration::from_secs(20);

pub(crate) fn printed(more: &[&str]) -> String {
    let mut command = kvbridge();
    command.args(["bus", "permissions", "--role", "bridge", "--role", "index", "--role", "viewer"]);
    let output = command.args(more).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn world(name: &str, permissions: &str) -> World {
    let mut server = Server::prepared(name, permissions);
    server.start();
    World::on(server, true)
}

/// What a command says as the user of a role, and its exit code.
fn ask(world: &World, role: &str, args: &[&str]) -> (i32, String) {
    let mut command = kvbridge();
    command.args(args).args(["--nats", &world.server.url()]);
    as_user(&mut command, role);
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    (status.code().unwrap(), text)
}

/// What the server refused so far.
pub(crate) fn refused(world: &World) -> Vec<String> {
    let log = world.server.log();
    log.lines().filter(|line| line.contains("Violation")).map(str::to_owned).collect()
}

/// Runs a bridge and two indexes through what they do, and asks as people do.
async fn works(world: &World) -> [Program; 3] {
    let bridge = world.bridge("200ms").await;
    let index = world.index();
    world.burst(40).await;
    world.is_true(&index).await;
    world.until_stored(&bridge, 2).await;
    world.fault(json!({"fault": "restart"})).await;
    world.burst(5).await;
    world.is_true(&bridge).await;
    world.is_true(&index).await;
    // A late one goes on from a stored view.
    let late = world.index();
    world.is_true(&late).await;
    for role in ["bridge", "index"] {
        let status = ask(world, role, &["bus", "status", "--json"]);
        assert_eq!(status.0, 0, "{role}: {}", status.1);
        let status: serde_json::Value = serde_json::from_str(&status.1).unwrap();
        let replica = &status["replicas"][0];
        assert_eq!(replica["key"], KEY, "{status}");
        assert_eq!(replica["bridges"][0]["trust"], "exact", "{status}");
        assert!(replica["view"].is_object() && replica["life"].is_object(), "{status}");
        assert_eq!(status["bridges"].as_array().unwrap().len(), 1, "{status}");
        let replay = ["replay", "--replica", KEY, "--from", "0", "--to", "3"];
        assert_eq!(ask(world, role, &replay).0, 0);
        assert_eq!(ask(world, role, &["snapshot", "--replica", KEY]).0, 0);
    }
    let now = ask(world, "index", &["snapshot", "--replica", KEY, "--at", "now"]);
    assert_eq!(now.0, 0, "{}", now.1);
    let tail = ["tail", "--since", "10m", "--count", "3"];
    assert_eq!(ask(world, "viewer", &tail).0, 0);
    let one = ["tail", "--replica", KEY, "--from-seq", "1", "--count", "2"];
    assert_eq!(ask(world, "viewer", &one).0, 0);
    assert_eq!(refused(world), Vec::<String>::new(), "they need more than is printed");
    [bridge, index, late]
}

/// Publishes as the user of a role; what the server says to it.
pub(crate) async fn publish(world: &World, role: &str, subject: &str) -> String {
    let (events_tx, mut events) = mpsc::channel(16);
    let user = (format!("kvbridge-{role}"), format!("secret-of-{role}"));
    let options = ConnectOptions::with_user_and_password(user.0, user.1);
    let options = options.event_callback(move |event| {
        let events = events_tx.clone();
        async move {
            if let Event::ServerError(error) = event {
                events.send(error.to_string()).await.unwrap();
            }
        }
    });
    let client = options.connect(world.server.url()).await.unwrap();
    client.publish(subject.to_owned(), "x".into()).await.unwrap();
    client.flush().await.unwrap();
    let said = tokio::time::timeout(LIMIT, events.recv()).await.expect("the server refuses");
    said.unwrap().to_lowercase()
}

#[tokio::test]
async fn bridge_and_index_run_under_exactly_these_and_an_index_says_nothing() {
    let world = world("permissions", &printed(&["--model", "fake"]));
    let programs = works(&world).await;
    let before = world.server.log().matches("Violation").count();
    for (role, subject) in [
        ("index", format!("kv.v1.hint.{KEY}")),
        ("index", format!("$KV.KVSTATUS.{KEY}.b")),
        ("index", format!("$KV.KVSNAPPTR.{KEY}")),
        ("index", format!("$KV.KVEPOCH.{KEY}")),
        ("index", "$O.KVSNAP.C.x".to_owned()),
        ("index", "$JS.API.STREAM.DELETE.KVHINTS_fake".to_owned()),
        ("viewer", format!("kv.v1.hint.{KEY}")),
        ("viewer", format!("kv.v1.snapshot.{KEY}")),
        ("bridge", "kv.v1.hint.other.i.0".to_owned()),
        ("bridge", "$JS.API.STREAM.UPDATE.KVHINTS_fake".to_owned()),
    ] {
        let said = publish(&world, role, &subject).await;
        assert!(said.contains("permissions violation"), "{role} to {subject}: {said}");
    }
    assert_eq!(world.server.log().matches("Violation").count(), before + 10);
    assert_eq!(ask(&world, "viewer", &["snapshot", "--replica", KEY]).0, 1);
    world.end(programs);
}

#[tokio::test]
async fn without_a_model_all_of_them_are_allowed() {
    let world = world("permissions-all", &printed(&[]));
    let programs = works(&world).await;
    world.end(programs);
}

/// Streams of a hash hold every model: what differs is where a bridge publishes.
#[test]
fn what_is_printed_goes_by_the_configuration() {
    let output = kvbridge()
        .args(["bus", "permissions", "--role", "bridge", "--model", "org/m"])
        .env("KVBRIDGE__BUS__SHARDS", "\"2\"")
        .env("KVBRIDGE__BUS__STREAM", "OTHER")
        .env("KVBRIDGE__BUS__INBOX", "_INBOX_bridge")
        .env("KVBRIDGE__BUS__KIND", "nats")
        .env("KVBRIDGE__BUS__URL", "nats://h:1")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for line in [
        "\"_INBOX_bridge.>\"",
        "\"kv.v1.in.1.org=2Fm.*.*\"",
        "\"$JS.API.STREAM.CREATE.OTHER_1\"",
        "\"$KV.OTHER_KVSNAPPTR.org=2Fm.*.*\"",
        "\"kv.v1.snapshot.org=2Fm.*.*\"",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    assert!(!text.contains("kv.v1.hint"), "{text}");
    let output = kvbridge().args(["bus", "permissions", "--role", "x"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}
