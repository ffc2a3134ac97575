//! All problems at once, precedence, secrets.

use expect_test::expect;

use super::*;

fn file(text: &str) -> FileText {
    FileText { name: "kvbridge.toml".to_owned(), text: text.to_owned() }
}

fn env(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

pub(super) fn loaded(text: &str, pairs: &[(&str, &str)]) -> Config {
    load(Some(&file(text)), &env(pairs), Flags::default()).unwrap()
}

pub(super) fn problems(text: &str, pairs: &[(&str, &str)]) -> String {
    load(Some(&file(text)), &env(pairs), Flags::default()).unwrap_err().to_string()
}

#[test]
fn nothing_given_is_a_whole_configuration() {
    let config = load(None, &[], Flags::default()).unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:8090");
    assert_eq!(config.recovery.replay_deadline, Duration::from_secs(5));
    assert_eq!(config.recovery.held_bytes_max, 64 * 1024 * 1024);
    assert_eq!(config.limits, Limits::default());
    assert_eq!(config.bus, BusConfig::Embedded);
}

#[test]
fn every_problem_is_reported_at_once() {
    let text = r#"
        surprise = 1
        [http]
        listen = "nowhere"
        [[sources]]
        engine = "abacus"
        endpoint = "udp://a"
        colour = "red"
        ignore_tags = ["a", 5]
        [[sources]]
        engine = "vllm"
        dp = 0
        [bus]
        kind = "pigeon"
        [recovery]
        replay_deadline = "5 parsecs"
        held_bytes = "64"
        lease = "1s"
        [limits]
        frame_max = 5
        [state]
        dir = ""
        [[sinks]]
        preset = "x"
        listen = "0.0.0.0:1"
        tiers = ["moon"]
        block_size = 0
        [[sinks]]
        preset = "dynamo"
        one_socket = true
        topic = "kv"
        block_size = 48
        engine_block_size = 32
        [[sinks]]
        name = "far"
        preset = "llm-d"
        engine_block_size = 16
        topic = "kv/{instance}"
        listen = "127.0.0.1:1"
        connect = ["epp:5557", "tcp://*:1", "tcp://a:1", "tcp://a:1"]
    "#;
    expect![[r#"
        limits.frame_max: invalid type: integer `5`, expected a size with its unit, such as "64MiB" (kvbridge.toml)
        recovery.held_bytes: expected a size such as "64MiB", got "64" (kvbridge.toml)
        recovery.replay_deadline: expected a duration such as "250ms", got "5 parsecs" (kvbridge.toml)
        sources[0].colour: unknown field `colour`, expected one of `engine`, `endpoint`, `url`, `replay`, `snapshot`, `plain_cache`, `model`, `instance`, `rank`, `dp`, `bind`, `topic`, `transport`, `ignore_tags`, `pool_blocks`, `metrics`, `members`, `flush`, `hash_scheme`, `hash_seed`, `name`, `discover`, `options` (kvbridge.toml)
        sources[0].ignore_tags[1]: invalid type: integer `5`, expected a string (kvbridge.toml)
        surprise: unknown field `surprise`, expected one of `http`, `sources`, `discovery`, `bus`, `index`, `view`, `recovery`, `limits`, `state`, `ready`, `backfill`, `shutdown`, `sinks`, `compat` (kvbridge.toml)
        http.listen: expected an address such as 127.0.0.1:8090, got "nowhere" (kvbridge.toml)
        sources[0].engine: expected one of vllm, sglang, trtllm, got "abacus" (kvbridge.toml)
        sources[0].endpoint: expected tcp://host:port, got "udp://a" (kvbridge.toml)
        sources[1].dp: expected 1 to 1024 ranks, got 0 (kvbridge.toml)
        sources[1].endpoint: is missing, expected tcp://host:port, or a url to be asked at (kvbridge.toml)
        bus.kind: expected embedded, nats or zmq, got "pigeon" (kvbridge.toml)
        recovery.lease: must be longer than recovery.idle_probe and recovery.audit (kvbridge.toml)
        state.dir: must not be empty (kvbridge.toml)
        sinks[0].preset: expected one of llm-d, dynamo, vllm, aibrix, conductor, got "x" (kvbridge.toml)
        sinks[0].listen: is not the loopback, and a reader of a sink is asked nothing and sees prompts: set insecure in the sink (kvbridge.toml)
        sinks[0].block_size: must be at least 1 (kvbridge.toml)
        sinks[1].engine_block_size: expected one that divides 48 or that it divides, got 32 (kvbridge.toml)
        sinks[1].one_socket: a reader of preset dynamo takes what comes over a socket for one replica's (kvbridge.toml)
        sinks[1].topic: must have {instance} where sockets are shared (kvbridge.toml)
        sinks[2].engine_block_size: goes with block_size, the tokens of a block that is told (kvbridge.toml)
        sinks[2].connect: does not go with listen, replay or one_socket (kvbridge.toml)
        sinks[2].connect: expected tcp://host:port, got "epp:5557" (kvbridge.toml)
        sinks[2].connect: expected a host to connect to, got "tcp://*:1" (kvbridge.toml)
        sinks[2].connect: tcp://a:1 is there twice (kvbridge.toml)
        sinks[2].topic: a reader of preset llm-d wants three parts, kv@…@…, the second {instance}, got "kv/{instance}" (kvbridge.toml)"#]]
    // A build with more presets names them too.
    .assert_eq(&problems(text, &[]).replace("conductor, smg,", "conductor,"));
}

#[test]
fn flag_wins_over_environment_over_file() {
    let text = "[http]\nlisten = \"127.0.0.1:1\"\n[recovery]\nattempts = 2\nlease = \"90s\"";
    let vars = [("KVBRIDGE__HTTP__LISTEN", "127.0.0.1:2"), ("KVBRIDGE__RECOVERY__ATTEMPTS", "3")];
    let config = loaded(text, &vars);
    assert_eq!(config.listen.port(), 2);
    assert_eq!(config.recovery.attempt_count_max, 3);
    assert_eq!(config.recovery.lease, Duration::from_secs(90));
    let flags = Flags { listen: Some("127.0.0.1:3".to_owned()), ..Flags::default() };
    let config = load(Some(&file(text)), &env(&vars), flags).unwrap();
    assert_eq!(config.listen.port(), 3);
}

#[test]
fn environment_reaches_into_lists_and_is_named_in_problems() {
    let config = loaded(
        "",
        &[
            ("KVBRIDGE__SOURCES__0__ENGINE", "vllm"),
            ("KVBRIDGE__SOURCES__0__ENDPOINT", "tcp://h:5557"),
            ("OTHER", "x"),
        ],
    );
    assert_eq!(config.sources[0].replica.instance, "h:5557");
    expect![[r#"
        http.port: unknown field `port`, expected one of `listen`, `insecure`, `tokens_file`, `tls`, `names`, `connections_max`, `header_deadline`, `body_deadline`, `stall_deadline` (KVBRIDGE__HTTP__PORT)
        sources[0].endpoint: expected tcp://host:port, got "x" (KVBRIDGE__SOURCES__0__ENDPOINT)"#]]
    .assert_eq(&problems(
        "",
        &[
            ("KVBRIDGE__HTTP__PORT", "1"),
            ("KVBRIDGE__SOURCES__0__ENGINE", "vllm"),
            ("KVBRIDGE__SOURCES__0__ENDPOINT", "x"),
        ],
    ));
}

#[test]
fn a_snapshot_socket_is_of_a_plain_engine_that_has_one() {
    let of = |engine: &str, more: &str| {
        format!("[[sources]]\nengine = \"{engine}\"\nendpoint = \"tcp://h:1\"\n{more}")
    };
    let socket = "snapshot = \"tcp://h:100\"\n";
    let config = loaded(&of("sglang", &format!("{socket}plain_cache = true\ndp = 2")), &[]);
    let ports: Vec<_> = config.sources.iter().map(|s| s.snapshot.as_ref().unwrap().port).collect();
    assert_eq!(ports, [100, 101]);
    expect!["sources[0].snapshot: needs plain_cache = true: it names neither tiers nor copies (kvbridge.toml)"]
        .assert_eq(&problems(&of("sglang", socket), &[]));
    expect!["sources[0].snapshot: this engine has no snapshots (kvbridge.toml)"]
        .assert_eq(&problems(&of("vllm", socket), &[]));
}

#[test]
fn secrets_show_nowhere() {
    let text = "[bus]\nkind = \"nats\"\nurl = \"nats://h:4222\"\ntoken = \"hunter2\"";
    let config = loaded(text, &[]);
    assert!(!format!("{config:?}").contains("hunter2"));
    let BusConfig::Nats(nats) = config.bus else { panic!("nats") };
    let NatsAuth::Token(token) = nats.auth else { panic!("token") };
    assert_eq!((token.to_string().as_str(), token.expose()), ("***", "hunter2"));
    assert!(!problems("[bus]\ntoken = 77123", &[]).contains("77123"));
    assert!(!problems("[bus]\ntoken = \"hunter2", &[]).contains("hunter2"));
}

#[test]
fn a_broken_file_names_its_line() {
    expect!["line 2 is not TOML: extra `=`, expected nothing (kvbridge.toml)"]
        .assert_eq(&problems("[http]\nlisten == 3", &[]));
}

#[test]
fn only_what_differs_is_touched() {
    let source = |port: u16, more: &str| {
        format!("[[sources]]\nengine = \"vllm\"\nendpoint = \"tcp://h:{port}\"\n{more}\n")
    };
    let running = loaded(&format!("{}{}", source(1, ""), source(2, "")), &[]);
    assert_eq!(changes(&running, &running).merged, running);
    let tail =
        "[http]\nlisten = \"127.0.0.1:1\"\n[limits]\nmatch_tokens_max = 7\nframe_max = \"1MiB\"";
    let wanted = loaded(&format!("{}{}{tail}", source(2, "topic = \"t\""), source(3, "")), &[]);
    let changes = changes(&running, &wanted);
    let ports = |sources: &[SourceConfig]| -> Vec<u16> {
        sources.iter().map(|source| source.endpoint.port).collect()
    };
    assert_eq!((ports(&changes.added), ports(&changes.changed)), (vec![3], vec![2]));
    assert_eq!(changes.removed, [running.sources[0].replica.clone()]);
    assert_eq!(changes.applied, ["limits.match_tokens_max"]);
    assert_eq!(changes.needs_restart, ["http.listen", "limits.frame_max"]);
    assert_eq!(changes.merged.listen, running.listen);
    assert_eq!(changes.merged.limits.match_token_count_max, 7);
}

#[test]
fn a_drain_fits_into_its_shutdown() {
    assert_eq!(loaded("", &[]).shutdown.drain, Duration::ZERO);
    expect!["shutdown.drain: must be shorter than shutdown.timeout (kvbridge.toml)"]
        .assert_eq(&problems("[shutdown]\ntimeout = \"1s\"\ndrain = \"1s\"", &[]));
}

/// The fields of a section, as the refusal of an unknown one lists them.
fn fields(section: &str) -> Vec<String> {
    let text = if section == "sources" {
        "[[sources]]\n\"?\" = 1".to_owned()
    } else {
        format!("[{section}]\n\"?\" = 1")
    };
    let refusal = problems(&text, &[]);
    let line = refusal.lines().find(|line| line.contains("unknown field")).unwrap();
    let (_, listed) = line.split_once(", expected ").unwrap();
    listed.split('`').skip(1).step_by(2).map(|field| format!("{section}.{field}")).collect()
}

#[test]
fn every_field_is_documented() {
    let document = include_str!("../../docs/configuration.md");
    for section in [
        "http",
        "http.tls",
        "sources",
        "discovery",
        "bus",
        "index",
        "view",
        "recovery",
        "limits",
        "state",
        "ready",
        "backfill",
        "shutdown",
        "compat.dynamo",
        "compat.kv_cache_events",
    ] {
        for field in fields(section) {
            assert!(document.contains(&format!("| `{field}` |")), "{field} is not documented");
        }
    }
}

#[test]
fn the_documented_example_is_valid() {
    let document = include_str!("../../docs/configuration.md");
    let example = document.split("```toml").nth(1).unwrap().split("```").next().unwrap();
    assert_eq!(loaded(example, &[]).sources.len(), 2);
}

#[test]
fn beyond_the_loopback_somebody_must_be_asked() {
    let open = "[http]\nlisten = \"0.0.0.0:1\"\n";
    expect!["http.listen: is not the loopback, and nobody is asked who they are: set http.tokens_file or http.tls.client_ca, or say --insecure (kvbridge.toml)"]
        .assert_eq(&problems(open, &[]));
    let flags = Flags { insecure: true, ..Flags::default() };
    assert!(load(Some(&file(open)), &[], flags).is_ok());
    let tokens = loaded(&format!("{open}tokens_file = \"t\""), &[]);
    assert_eq!(tokens.http.tokens_file, Some("t".into()));
    let mutual = format!("{open}[http.tls]\ncert = \"c\"\nkey = \"k\"\nclient_ca = \"a\"");
    assert!(loaded(&mutual, &[]).http.tls.is_some());
    let half = "[http]\nconnections_max = 0\nnames = [\"a.b\", \"a.b:1\"]\n[http.tls]\ncert = \"\"";
    expect![[r#"
        http.tls.cert: must not be empty (kvbridge.toml)
        http.tls.key: is missing, expected a PEM file (kvbridge.toml)
        http.names: expected a name such as kvbridge.example, got "a.b:1" (kvbridge.toml)
        http.connections_max: must be at least 1 (kvbridge.toml)"#]]
    .assert_eq(&problems(half, &[]));
}

#[test]
fn a_nats_bus_is_checked_as_a_whole() {
    let text = r#"
        [bus]
        kind = "nats"
        url = "nats://user:hunter2@h:4222"
        user = "u"
        token = "hunter2"
        tls = false
        tls_ca = "ca.pem"
        stream = "KV.HINTS"
        shards = "many"
        replicas = 7
        retention = "10s"
        heartbeat = "50ms"
        heartbeat_ttl = "149ms"
        spool = "1KiB"
        spool_full = "drop"
    "#;
    expect![[r#"
        bus.url: must not hold credentials: use bus.user and bus.password (kvbridge.toml)
        bus.stream: expected letters, digits, - and _ only (kvbridge.toml)
        bus.shards: expected "model" or "1" to "64", got "many" (kvbridge.toml)
        bus.replicas: expected 1 to 5, got 7 (kvbridge.toml)
        bus.heartbeat: must be at least 100ms (kvbridge.toml)
        bus.heartbeat_ttl: must be at least 3 times bus.heartbeat (kvbridge.toml)
        bus.duplicate_window: must not be longer than bus.retention (kvbridge.toml)
        bus.tls: must not be false beside bus.tls_ca or bus.tls_cert (kvbridge.toml)
        bus.spool: expected 1MiB to 16GiB (kvbridge.toml)
        bus.spool_full: expected block or resync, got "drop" (kvbridge.toml)
        bus.password: is missing beside bus.user (kvbridge.toml)"#]]
    .assert_eq(&problems(text, &[]));
    expect!["bus.spool: belongs to kind \"nats\" or \"zmq\" (kvbridge.toml)"]
        .assert_eq(&problems("[bus]\nspool = \"2MiB\"", &[]));
    let two = "[bus]\nkind = \"nats\"\nurl = \"nats://a:1,tls://b:2\"\nnkey = \"x\"\ncreds = \"y\"";
    assert!(problems(two, &[]).starts_with("bus: expected one of user and password"));
}

#[test]
fn a_zmq_bus_is_checked_as_a_whole() {
    let source = "[[sources]]\nengine = \"vllm\"\nendpoint = \"tcp://h:1\"\n";
    let text = r#"
        [bus]
        kind = "zmq"
        url = "nats://h:1"
        listen = "0.0.0.0:1"
        requests = "h:1"
        connect = ["tcp://*:1", "h:1", "tcp://h:1", "tcp://h:1"]
        journal_bytes = "2KiB"
    "#;
    expect![[r#"
        bus.url: belongs to kind "nats" (kvbridge.toml)
        bus.requests: expected an address such as 127.0.0.1:5571, got "h:1" (kvbridge.toml)
        bus.connect: host * can only be bound, not connected to (kvbridge.toml)
        bus.connect: expected tcp://host:port, got "h:1" (kvbridge.toml)
        bus.connect: tcp://h:1 is there twice (kvbridge.toml)
        bus.journal_bytes: must be at least 1MiB (kvbridge.toml)
        bus.listen: is not the loopback, and a reader of this bus is asked nothing and sees prompts: set bus.insecure, or say --insecure (kvbridge.toml)
        bus.journal: is missing: a folder to keep what is published (or state.dir, for bus in it) (kvbridge.toml)"#]]
    .assert_eq(&problems(&format!("{source}{text}"), &[]));
    let text = format!("{source}[bus]\nkind = \"zmq\"\nlisten = \"0.0.0.0:1\"\ninsecure = true\n");
    let config = loaded(&format!("{text}[state]\ndir = \"s\""), &[]);
    let BusConfig::Zmq(zmq) = config.bus else { panic!("zmq") };
    assert_eq!(zmq.journal.unwrap().to_str(), Some("s/bus"));
}
