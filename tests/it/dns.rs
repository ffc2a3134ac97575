//! Engines behind a name: they come, they flap, and they go after the grace time.

use std::{fmt::Write as _, net::Ipv4Addr, path::Path};

use serde_json::Value;

use crate::{
    dns_server::{NameServer, Zone},
    harness::{Bridge, folder, send, until},
    program::{Running, kvbridge},
};

const FIRST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const SECOND: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// An engine on an address of this machine, and where its server is.
struct Fake {
    address: String,
    _process: Running,
}

impl Fake {
    fn start(ip: Ipv4Addr, port: u16) -> Fake {
        let mut command = kvbridge();
        command.args(["fake-engine", "--engine", "vllm", "--model", "m", "--blocks", "64"]);
        command.args(["--ports-json", "--step-ms", "1", "--pub", "0", "--replay", "0"]);
        command.args(["--host", &ip.to_string(), "--http", &format!("{ip}:{port}")]);
        let mut process = Running::start(&mut command);
        let ports: Value = serde_json::from_str(&process.line()).unwrap();
        let address = ports["http"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
        Fake { address, _process: process }
    }

    fn port(&self) -> u16 {
        self.address.rsplit(':').next().unwrap().parse().unwrap()
    }

    fn burst(&self) {
        let fault = r#"{"fault": "burst", "count": 3}"#;
        assert_eq!(send(&self.address, ("POST", "/control"), fault).unwrap().0, 200);
    }
}

/// As it stands in a replica's key.
fn encoded(instance: &str) -> String {
    instance.replace('.', "=2E").replace(':', "=3A")
}

fn configure(folder: &Path, names: &NameServer, port: u16, grace: &str) {
    let mut text = String::from("[http]\nlisten = \"127.0.0.1:0\"\n");
    let nameserver = names.address;
    write!(
        text,
        "[[sources]]\nname = \"pods\"\ndiscover = {{ dns = \"engines.test\", port = {port} }}\n\
         instance = \"{{ip}}:{{port}}\"\n\
         [[sources]]\nname = \"services\"\ndiscover = {{ dns = \"_http._tcp.engines.test\" }}\n\
         instance = \"{{host}}\"\n\
         [discovery]\nrefresh = \"100ms\"\nresolve = \"100ms\"\ngrace = \"{grace}\"\n\
         nameserver = \"{nameserver}\"\n"
    )
    .unwrap();
    std::fs::write(folder.join("kvbridge.toml"), text).unwrap();
}

/// Exact after traffic; its epoch.
fn exact(bridge: &Bridge, instance: &str) -> u64 {
    let replica = until(&format!("{instance} exact"), || {
        let replica = bridge.replica(&encoded(instance));
        (replica["trust"] == "exact").then_some(replica)
    });
    replica["epoch"].as_u64().unwrap()
}

/// Why an entry's name leads nowhere, and its engines with their states.
fn entry(bridge: &Bridge, name: &str) -> String {
    let (_, body) = bridge.ask("GET", "/v1/sources").unwrap();
    let body: Value = serde_json::from_str(&body).unwrap();
    let entry = body["sources"].as_array().unwrap().iter().find(|it| it["name"] == name).unwrap();
    let mut text = entry["reason"].as_str().unwrap_or("-").to_owned();
    for engine in entry["engines"].as_array().unwrap() {
        write!(text, " {}", engine["state"].as_str().unwrap()).unwrap();
    }
    text
}

fn until_entry(bridge: &Bridge, name: &str, wanted: &str) {
    until(&format!("{name}: {wanted}"), || (entry(bridge, name) == wanted).then_some(()));
}

/// One engine behind an address record and a service.
fn zone(port: u16) -> Zone {
    Zone {
        addresses: [("engines.test", vec![FIRST]), ("e0.engines.test", vec![FIRST])].into(),
        services: [("_http._tcp.engines.test", vec![("e0.engines.test", port)])].into(),
        fails: false,
    }
}

#[test]
fn a_name_that_flaps_or_fails_changes_no_epoch() {
    let first = Fake::start(FIRST, 0);
    let port = first.port();
    let second = Fake::start(SECOND, port);
    let names = NameServer::start(zone(port));
    let folder = folder("dns_flaps");
    configure(&folder, &names, port, "10m");
    let bridge = Bridge::start(&folder);
    until_entry(&bridge, "pods", "- found");
    until_entry(&bridge, "services", "- found");
    first.burst();
    let by_address = format!("127.0.0.1:{port}");
    let epochs = [exact(&bridge, &by_address), exact(&bridge, "e0.engines.test")];
    names.change(|zone| zone.addresses.get_mut("engines.test").unwrap().push(SECOND));
    until_entry(&bridge, "pods", "- found found");
    second.burst();
    exact(&bridge, &format!("127.0.0.2:{port}"));
    let taken = std::mem::take(&mut *names.zone.lock().unwrap());
    until_entry(&bridge, "pods", "no_address missing missing");
    until_entry(&bridge, "services", "no_address missing");
    names.change(|zone| zone.fails = true);
    until_entry(&bridge, "pods", "resolver_failed missing missing");
    names.change(|zone| *zone = taken);
    until_entry(&bridge, "pods", "- found found");
    until_entry(&bridge, "services", "- found");
    assert_eq!([exact(&bridge, &by_address), exact(&bridge, "e0.engines.test")], epochs);
    bridge.end();
}

#[test]
fn an_engine_whose_name_vanished_is_closed_after_the_grace_time_and_may_come_back() {
    let engine = Fake::start(FIRST, 0);
    let port = engine.port();
    let names = NameServer::start(zone(port));
    let folder = folder("dns_vanishes");
    configure(&folder, &names, port, "300ms");
    let bridge = Bridge::start(&folder);
    until_entry(&bridge, "pods", "- found");
    engine.burst();
    let instance = format!("127.0.0.1:{port}");
    exact(&bridge, &instance);
    names.change(|zone| drop(zone.addresses.remove("engines.test")));
    until_entry(&bridge, "pods", "no_address");
    until("it is closed", || bridge.replica(&encoded(&instance)).is_null().then_some(()));
    exact(&bridge, "e0.engines.test");
    names.change(|zone| drop(zone.addresses.insert("engines.test", vec![FIRST])));
    exact(&bridge, &instance);
    bridge.end();
}
