//! What entries of `[[sources]]` name, and what is wrong with them.

use expect_test::expect;
use kvbridge_adapters_api::{RankStream, Streams};

use super::{
    tests::{loaded, problems},
    *,
};
use crate::discovery::Address;

#[test]
fn an_engine_that_is_asked_has_a_url_and_its_ranks_share_it() {
    let text = r#"
        [[sources]]
        engine = "trtllm"
        url = "http://h:8000/"
        rank = 2
        dp = 2
    "#;
    let config = loaded(text, &[]);
    let polled = Polled { url: "http://h:8000".to_owned(), first_rank: 2, rank_count: 2 };
    let seen: Vec<_> =
        config.sources.iter().map(|s| (s.replica.key().to_string(), &s.polled)).collect();
    assert_eq!(
        seen,
        [
            ("default.h=3A8000.2".to_owned(), &Some(polled.clone())),
            ("default.h=3A8000.3".to_owned(), &Some(polled)),
        ]
    );
    let wrong = r#"
        [[sources]]
        engine = "trtllm"
        endpoint = "tcp://h:5557"
        url = "http://h:8001"
        [[sources]]
        engine = "vllm"
        url = "http://h:8000"
        endpoint = "tcp://h:5557"
        [[sources]]
        engine = "trtllm"
        url = "http://user:secret@h:8000"
        [[sources]]
        engine = "trtllm"
        model = "a"
        url = "http://h:8000"
        [[sources]]
        engine = "trtllm"
        model = "b"
        url = "http://h:8000/"
    "#;
    expect![[r#"
        sources[0].endpoint: belongs to an engine that publishes: this one is asked at url (kvbridge.toml)
        sources[2].url: expected an address such as http://host:port, without credentials (kvbridge.toml)
        sources[3]: two sources drain one engine: use dp for its ranks (kvbridge.toml)
        sources[4]: two sources drain one engine: use dp for its ranks (kvbridge.toml)"#]].assert_eq(&problems(wrong, &[]));
}

#[test]
fn an_engine_that_can_be_asked_publishes_where_its_endpoint_alone_is_named() {
    let text = r#"
        [[sources]]
        engine = "trtllm"
        endpoint = "tcp://h:5557"
        replay = "tcp://h:5657"
        topic = "kv"
        instance = "h:8000"
        dp = 2
    "#;
    let config = loaded(text, &[]);
    assert!(config.engines.is_empty());
    let seen: Vec<_> = config
        .sources
        .iter()
        .map(|s| (s.endpoint.to_string(), s.replay.as_ref().unwrap().to_string(), &s.polled))
        .collect();
    let at = |live: &str, replay: &str| (live.to_owned(), replay.to_owned(), &None);
    assert_eq!(
        seen,
        [at("tcp://h:5557", "tcp://h:5657"), at("tcp://h:5558", "tcp://h:5658")],
        "rank r at both ports + r"
    );
    let wrong = r#"
        [[sources]]
        engine = "trtllm"
        [[sources]]
        engine = "trtllm"
        endpoint = "tcp://h:5557"
        snapshot = "tcp://h:5757"
        hash_scheme = "sha256"
    "#;
    expect![[r#"
        sources[0].url: is missing, expected http://host:port (kvbridge.toml)
        sources[1].hash_scheme: belongs to an engine whose events do not tell how blocks are hashed (kvbridge.toml)
        sources[1].snapshot: this engine has no snapshots (kvbridge.toml)"#]].assert_eq(&problems(wrong, &[]));
}

#[test]
fn ranks_follow_each_other_and_no_replica_is_named_twice() {
    let text = r#"
        [[sources]]
        engine = "vllm"
        endpoint = "tcp://h:5557"
        replay = "tcp://h:6557"
        instance = "h:8000"
        rank = 4
        dp = 2
    "#;
    let sources = loaded(text, &[]).sources;
    let seen: Vec<String> = sources
        .iter()
        .map(|s| format!("{} {} {}", s.replica.key(), s.endpoint, s.replay.as_ref().unwrap()))
        .collect();
    expect![[r#"
        [
            "default.h=3A8000.4 tcp://h:5557 tcp://h:6557",
            "default.h=3A8000.5 tcp://h:5558 tcp://h:6558",
        ]
    "#]]
    .assert_debug_eq(&seen);
    let twice = format!("{text}{text}");
    assert!(problems(&twice, &[]).contains("sources[1]: two sources speak of replica default.h"));
}

#[test]
fn an_engine_by_its_server_alone_is_asked() {
    let text = r#"
        [[sources]]
        url = "https://h:8000/"
        [[sources]]
        name = "second"
        engine = "vllm"
        url = "http://[fd00::7]:8000"
        endpoint = "tcp://*:5557"
        instance = "{ip}-{rank}"
    "#;
    let config = loaded(text, &[]);
    assert!(config.sources.is_empty() && config.has_sources());
    let names: Vec<_> = config.entries.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["https://h:8000/", "second"]);
    let wrong = r#"
        [[sources]]
        url = "http://h:8000"
        name = "a b"
        bind = true
        instance = "{pod}"
        [[sources]]
        url = "http://h:8000/"
        name = "a"
        instance = "{ip}"
        [[sources]]
        engine = "vllm"
        endpoint = "tcp://h:1"
        name = "a"
        instance = "{ip}"
        [discovery]
        refresh = "1ms"
    "#;
    expect![[r#"
        sources[0].name: expected 1 to 64 letters, digits, - _ and . only (kvbridge.toml)
        sources[0].instance: expected text with {host}, {ip}, {port} or {rank} in it, got "{pod}" (kvbridge.toml)
        sources[0].bind: belongs to an engine that connects to us (kvbridge.toml)
        sources[1].instance: {ip} needs an address: the host is a name (kvbridge.toml)
        sources[1]: two sources ask one engine: use dp for its ranks (kvbridge.toml)
        sources[2].name: two sources have the name a (kvbridge.toml)
        sources[2].instance: {ip} needs an address: the host is a name (kvbridge.toml)
        discovery.refresh: must be at least 100ms (kvbridge.toml)"#]].assert_eq(&problems(wrong, &[]));
}

#[test]
fn an_instance_is_what_its_template_makes_of_the_source() {
    let of = |endpoint: &str, more: &str| {
        let text = format!("[[sources]]\nengine = \"vllm\"\nendpoint = \"{endpoint}\"\n{more}");
        let sources = loaded(&text, &[]).sources;
        sources.into_iter().map(|source| source.replica.instance).collect::<Vec<_>>()
    };
    assert_eq!(of("tcp://h:5557", "dp = 2"), ["h:5557", "h:5557"]);
    assert_eq!(of("tcp://10.0.0.7:5557", "instance = \"{ip}:8000\""), ["10.0.0.7:8000"]);
    assert_eq!(of("tcp://h:5557", "instance = \"{host}-{rank}\"\ndp = 2"), ["h-0", "h-1"]);
}

#[test]
fn transport_is_one_of_this_build() {
    let of = |name: &str| {
        format!("[[sources]]\nengine = \"vllm\"\nendpoint = \"tcp://h:1\"\ntransport = \"{name}\"")
    };
    assert_eq!(loaded(&of("zeromq"), &[]).sources[0].transport, Transport::Zeromq);
    expect![[r#"sources[0].transport: expected zeromq or omq, got "nng" (kvbridge.toml)"#]]
        .assert_eq(&problems(&of("nng"), &[]));
    #[cfg(feature = "omq")]
    assert_eq!(loaded(&of("omq"), &[]).sources[0].transport, Transport::Omq);
    #[cfg(not(feature = "omq"))]
    expect![[r#"sources[0].transport: is not compiled into this program (cargo feature omq), got "omq" (kvbridge.toml)"#]]
        .assert_eq(&problems(&of("omq"), &[]));
}

#[test]
fn a_name_leads_to_engines_and_says_nothing_of_one_alone() {
    let text = r#"
        [[sources]]
        discover = { dns = "vllm-headless.ns.svc", port = 8000 }
        instance = "{ip}:8000"
        endpoint = "tcp://*:5557"
        engine = "vllm"
        [[sources]]
        name = "services"
        discover = { dns = "_http._tcp.sglang.ns.svc" }
        [discovery]
        nameserver = "10.0.0.10:53"
    "#;
    let config = loaded(text, &[]);
    let names: Vec<_> = config.entries.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["vllm-headless.ns.svc", "services"]);
    assert_eq!(config.discovery.nameserver.unwrap().port(), 53);
    let wrong = r#"
        [[sources]]
        discover = { dns = "a b" }
        url = "http://h:1"
        metrics = "http://h:1/metrics"
        [[sources]]
        discover = { dns = "_http._tcp.a", port = 1 }
        [[sources]]
        discover = { port = 1, colour = "red" }
        [discovery]
        resolve = "1ms"
        nameserver = "dns.example"
    "#;
    expect![[r#"
        sources[2].discover.colour: unknown field `colour`, expected `dns` or `port` (kvbridge.toml)
        sources[0].url: belongs to one engine: discover leads to any number of them (kvbridge.toml)
        sources[0].metrics: belongs to one engine: discover leads to any number of them (kvbridge.toml)
        sources[0].discover.dns: expected a name such as engines.ns.svc (kvbridge.toml)
        sources[0].discover.port: is missing, expected the HTTP port (kvbridge.toml)
        sources[1].discover.port: belongs to address records: those of services tell the port (kvbridge.toml)
        sources[2].discover.dns: is missing, expected a name (kvbridge.toml)
        discovery.nameserver: expected an address such as 10.0.0.10:53, got "dns.example" (kvbridge.toml)
        discovery.resolve: must be at least 100ms (kvbridge.toml)"#]].assert_eq(&problems(wrong, &[]));
}

#[test]
fn a_snapshot_socket_that_an_engine_tells_is_asked_where_its_operator_calls_it_plain() {
    let told = Told {
        engine: EngineKind::Sglang,
        model: None,
        streams: Some(Streams::Published(vec![RankStream {
            rank: 0,
            endpoint: "tcp://*:5".to_owned(),
            replay: None,
            snapshot: Some("tcp://*:7".to_owned()),
            topic: String::new(),
        }])),
        block_size: None,
        algorithm: None,
    };
    let address = Address { host: "10.0.0.7".to_owned(), port: 1, ip: None };
    let asked = |more: &str| {
        let text = format!("[[sources]]\nengine = \"sglang\"\nurl = \"http://h:1\"\n{more}");
        let sources = loaded(&text, &[]).engines[0].sources(&address, &told).unwrap();
        sources[0].snapshot.as_ref().map(Endpoint::to_string)
    };
    assert_eq!(asked(""), None, "it would leave out what is not the same for all");
    assert_eq!(asked("plain_cache = true").as_deref(), Some("tcp://10.0.0.7:7"));
    let configured = asked("plain_cache = true\nsnapshot = \"tcp://*:9\"");
    assert_eq!(configured.as_deref(), Some("tcp://10.0.0.7:9"));
}

/// Such a server does not tell of what it publishes.
#[test]
fn found_engines_that_can_be_asked_publish_where_their_entry_says_where() {
    let told = Told {
        engine: EngineKind::Trtllm,
        model: None,
        streams: Some(Streams::Drained),
        block_size: Some(32),
        algorithm: None,
    };
    let address = Address { host: "10.0.0.7".to_owned(), port: 8000, ip: None };
    let of = |more: &str| {
        let discover = "discover = { dns = \"engines.ns.svc\", port = 8000 }";
        let text = format!("[[sources]]\n{discover}\ndp = 2\n{more}");
        loaded(&text, &[]).engines[0].sources(&address, &told).unwrap()
    };
    assert!(of("").iter().all(|source| source.polled.is_some()));
    let published = of("endpoint = \"tcp://*:5557\"\nreplay = \"tcp://*:5657\"");
    let seen: Vec<_> = published
        .iter()
        .map(|it| (it.endpoint.to_string(), it.replay.as_ref().unwrap().to_string(), &it.polled))
        .collect();
    let at = |live: &str, replay: &str| (live.to_owned(), replay.to_owned(), &None);
    assert_eq!(
        seen,
        [
            at("tcp://10.0.0.7:5557", "tcp://10.0.0.7:5657"),
            at("tcp://10.0.0.7:5558", "tcp://10.0.0.7:5658")
        ]
    );
}
