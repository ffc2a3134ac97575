//! What was seen → findings, as data.

use std::collections::BTreeSet;

use kvbridge_adapters_api::Counters;

use super::*;
use crate::recovery::Tick;

fn healthy() -> EngineSight {
    let stream = StreamSight {
        is_attached: true,
        batches: 9,
        last: Some(8),
        formats: BTreeSet::from(["x.map"]),
        block_sizes: BTreeSet::from([16]),
        hash_lengths: BTreeSet::from([8]),
        algorithms: BTreeSet::from(["x.sha".to_owned()]),
        ranks: BTreeSet::from([0]),
        stores: 9,
        partials: 3,
        hashes: Some(HashesSight { scheme: "x.sha", equal: 5, wrong: 0 }),
        ..StreamSight::default()
    };
    let journal = JournalSight { batches: 9, first: Some(0), last: Some(8), ..Default::default() };
    EngineSight {
        server: ServerSight::Told("x, 1 ranks".to_owned()),
        knobs: None,
        block_size: Some(16),
        algorithm: Some("sha".to_owned()),
        probe: ProbeSight::NotAsked,
        requests: None,
        listened_ms: 10_000,
        ranks: vec![RankSight {
            rank: 0,
            endpoint: "tcp://a:1".to_owned(),
            stream,
            replay: ReplaySight::Heard(journal),
        }],
        drain: DrainLook::Published,
    }
}

fn ids(found: &[Finding]) -> Vec<&'static str> {
    found.iter().map(|finding| finding.about.id).collect()
}

/// What is found beyond, or instead of, what a healthy engine shows.
#[track_caller]
fn finds(spoil: impl FnOnce(&mut EngineSight), expected: &[&str]) {
    let mut sight = healthy();
    spoil(&mut sight);
    let found = engine(&sight);
    let bad: Vec<&str> =
        found.iter().filter(|it| it.about.severity > Severity::Ok).map(|it| it.about.id).collect();
    assert_eq!(bad, expected, "{found:#?}");
}

fn stream(sight: &mut EngineSight) -> &mut StreamSight {
    &mut sight.ranks[0].stream
}

fn silent() -> StreamSight {
    StreamSight { is_attached: true, ..StreamSight::default() }
}

#[test]
fn an_engine_as_it_must_be_has_good_findings_only() {
    let found = engine(&healthy());
    let good = ["engine_told", "events_flow", "wire_form", "hashes_proven", "replay_whole"];
    assert_eq!(ids(&found), good);
    assert_eq!(worst(&found), Severity::Ok);
}

#[test]
fn a_server_says_why_nothing_can_be_listened_to() {
    let cases = [
        (ServerSight::Unreachable("refused".to_owned()), "server_unreachable"),
        (ServerSight::Untold("404".to_owned()), "sources_unknown"),
        (ServerSight::NotPublishing, "events_off"),
    ];
    for (server, id) in cases {
        let sight = EngineSight { server, ranks: Vec::new(), ..healthy() };
        assert_eq!(ids(&engine(&sight)), [id]);
    }
}

#[test]
fn silence_is_judged_by_traffic_and_by_the_other_ranks() {
    let quiet = |sight: &mut EngineSight| {
        *stream(sight) = silent();
        sight.ranks[0].replay = ReplaySight::NoJournal;
    };
    finds(quiet, &["stream_idle"]);
    finds(
        |sight| {
            quiet(sight);
            sight.requests = Some(1);
        },
        &["stream_silent"],
    );
    finds(
        |sight| {
            quiet(sight);
            sight.probe = ProbeSight::Served(1);
        },
        &["stream_silent"],
    );
    finds(
        |sight| {
            quiet(sight);
            sight.probe = ProbeSight::Failed("404".to_owned());
        },
        &["probe_failed", "stream_idle"],
    );
    finds(
        |sight| {
            let mut other = sight.ranks[0].clone();
            (other.rank, other.stream, other.replay) = (1, silent(), ReplaySight::NoJournal);
            sight.ranks.push(other);
        },
        &["rank_silent"],
    );
    finds(|sight| stream(sight).is_attached = false, &["endpoint_unreachable"]);
}

#[test]
fn what_is_heard_is_compared_with_what_is_told() {
    finds(|sight| stream(sight).missing = 2, &["seq_missing"]);
    finds(|sight| stream(sight).fell = 1, &["seq_fell"]);
    finds(|sight| stream(sight).fault("tag"), &["events_unreadable"]);
    finds(|sight| stream(sight).ranks = BTreeSet::from([3]), &["rank_differs"]);
    finds(|sight| sight.block_size = Some(32), &["block_size_mismatch"]);
    finds(
        |sight| {
            sight.block_size = None;
            stream(sight).block_sizes.insert(64);
        },
        &["block_size_mismatch"],
    );
    // Every block is short: none is as long as the engine says.
    finds(
        |sight| {
            let heard = stream(sight);
            (heard.stores, heard.partials, heard.block_sizes) = (0, 20, BTreeSet::new());
        },
        &["block_size_mismatch"],
    );
    finds(|sight| stream(sight).hash_lengths = BTreeSet::from([8, 32]), &["hashes_whole"]);
    finds(|sight| sight.algorithm = Some("md5".to_owned()), &["algorithm_differs"]);
    finds(|sight| stream(sight).hashes = None, &["hashes_unknown"]);
    let wrong = Some(HashesSight { scheme: "x.sha", equal: 0, wrong: 3 });
    finds(|sight| stream(sight).hashes = wrong, &["hashes_wrong"]);
}

#[test]
fn a_journal_is_judged_by_its_first_batch_its_holes_and_its_end() {
    let heard = |first, missing, unended: Option<&str>| {
        let unended = unended.map(str::to_owned);
        let journal = JournalSight { batches: 4, first, last: first, missing, unended };
        move |sight: &mut EngineSight| sight.ranks[0].replay = ReplaySight::Heard(journal)
    };
    finds(heard(Some(5), 0, None), &["replay_short"]);
    finds(heard(Some(0), 1, None), &["replay_hole"]);
    finds(heard(Some(0), 0, Some("silent")), &["replay_no_end"]);
    finds(heard(Some(5), 1, Some("silent")), &["replay_hole", "replay_short", "replay_no_end"]);
    finds(heard(None, 0, None), &["replay_empty"]);
    finds(
        |sight| {
            heard(None, 0, None)(sight);
            *stream(sight) = silent();
        },
        &["stream_idle"],
    );
    let why = || "why".to_owned();
    for (replay, id) in [
        (ReplaySight::Unnamed, "replay_unnamed"),
        (ReplaySight::Unreachable(why()), "replay_unreachable"),
        (ReplaySight::Silent(why()), "replay_silent"),
    ] {
        finds(|sight| sight.ranks[0].replay = replay, &[id]);
    }
}

/// Nothing came although customers were served, answers were empty after a wait or at once.
fn empty(slow: u64, at_once: u64) -> DrainSight {
    DrainSight { requests: 3, empty: slow + at_once, at_once, ..DrainSight::default() }
}

#[test]
fn why_nothing_is_drained_follows_from_how_answers_came() {
    let busy = DrainSight { requests: 3, ..DrainSight::default() };
    let cases = [
        (DrainSight { absent: 1, ..DrainSight::default() }, Some(DrainCause::Absent)),
        (DrainSight { is_competing: true, events: 9, ..busy }, Some(DrainCause::Competing)),
        (DrainSight { too_long: 1, events: 9, ..busy }, Some(DrainCause::BlockSize)),
        (DrainSight { open_ms: HELD_MS, events: 9, ..busy }, Some(DrainCause::Held)),
        // Without traffic an answer that lasts is what the server does.
        (DrainSight { open_ms: HELD_MS, ..DrainSight::default() }, None),
        (empty(2, 0), Some(DrainCause::Off)),
        (empty(1, 4), Some(DrainCause::Off)),
        (empty(0, 2), Some(DrainCause::Latched)),
        // One may have been under way before the first request.
        (empty(1, 0), None),
        (DrainSight { events: 1, ..empty(2, 0) }, None),
        (DrainSight { requests: 0, ..empty(5, 5) }, None),
        (busy, None),
    ];
    for (sight, cause) in cases {
        assert_eq!(drain_cause(&sight), cause, "{sight:?}");
        if let Some(cause) = cause {
            let mut engine_sight = healthy();
            engine_sight.drain = DrainLook::Taken(sight);
            assert!(ids(&engine(&engine_sight)).contains(&cause.about().id));
        }
    }
    let quiet = |drain| EngineSight { drain, ranks: Vec::new(), ..healthy() };
    let told = |drain| ids(&engine(&quiet(drain)))[1];
    assert_eq!(told(DrainLook::NotTaken), "drain_not_taken");
    assert_eq!(told(DrainLook::Taken(DrainSight::default())), "stream_idle");
    assert_eq!(told(DrainLook::Taken(busy)), "stream_silent");
}

#[test]
fn a_request_that_is_open_is_timed_and_counts_begin_with_the_traffic() {
    let mut watch = DrainWatch::default();
    let mut counts = DrainCounts { asked: 1, ..DrainCounts::default() };
    let mut look = |ms, counts| {
        watch.look(Tick(ms), counts);
        watch
    };
    assert_eq!(look(100, counts).sight(0).open_ms, 0);
    assert_eq!(look(900, counts).sight(0).open_ms, 800);
    (counts.answered, counts.empty) = (1, 1);
    assert_eq!(look(1000, counts).sight(0).open_ms, 0);
    counts.asked = 2;
    assert_eq!(look(2000, counts).sight(0).open_ms, 0);
    // Another one by the next look: it began in between.
    (counts.asked, counts.answered) = (3, 2);
    assert_eq!(look(4000, counts).sight(0).open_ms, 0);
    let mut watch = look(4500, counts);
    assert_eq!((watch.sight(0).open_ms, watch.sight(0).empty), (500, 1));
    watch.begin();
    assert_eq!(watch.sight(7), DrainSight { requests: 7, open_ms: 500, ..DrainSight::default() });
    let counters = Counters::default();
    Counters::one(&counters.asked);
    assert_eq!(DrainCounts::of(&counters).asked, 1);
}

#[test]
fn seqs_are_followed_live_and_in_a_journal() {
    let (mut live, mut journal) = (StreamSight::default(), JournalSight::default());
    for seq in [4, 5, 8, 0, 1] {
        live.seq(seq);
    }
    assert_eq!((live.batches, live.last, live.missing, live.fell), (5, Some(1), 2, 1));
    for seq in [4, 5, 8] {
        journal.seq(seq);
    }
    assert_eq!((journal.first, journal.last, journal.missing), (Some(4), Some(8), 2));
}

#[test]
fn names_are_compared_byte_for_byte_and_a_near_one_is_explained() {
    let instances = BTreeSet::from(["10.0.0.7:8000".to_owned(), "[fd00::1]:80".to_owned()]);
    for (name, how) in [
        ("http://10.0.0.7:8000", "a scheme"),
        ("10.0.0.7:8000\r", "space or a line end"),
        ("10.0.0.7:8000/", "a slash at the end"),
        ("https://10.0.0.7:8000/", "a scheme, a slash at the end"),
        ("10.0.0.7", "no port"),
        ("10.0.0.7:9000", "port 9000 instead of 8000"),
        ("[FD00::1]:80", "capital letters"),
        ("10.0.0.8:8000", "none is near it"),
    ] {
        let found = names(&[name.to_owned()], &instances);
        assert_eq!(found[0].about.id, "name_unknown");
        assert!(found[0].detail.ends_with(how), "{name:?}: {}", found[0].detail);
        assert_eq!(ids(&found)[1..], ["name_unused", "name_unused"]);
    }
    let equal: Vec<String> = instances.iter().cloned().collect();
    assert_eq!(ids(&names(&equal, &instances)), ["names_equal"]);
}

#[test]
fn a_bridge_is_judged_by_its_replicas_and_alarms() {
    assert_eq!(ids(&bridge(&BridgeSight::default())), ["bridge_empty"]);
    let gone = BridgeSight { unreachable: Some("refused".to_owned()), ..BridgeSight::default() };
    assert_eq!(ids(&bridge(&gone)), ["bridge_unreachable"]);
    let replica = |trust: &str, drain| ReplicaSight {
        key: format!("m.{trust}.0"),
        trust: trust.to_owned(),
        drain,
        ..ReplicaSight::default()
    };
    let alarm = |is_critical| AlarmSight { is_critical, ..AlarmSight::default() };
    let sight = BridgeSight {
        unready: Some("503 starting".to_owned()),
        replicas: vec![replica("exact", None), replica("none", Some(empty(2, 0)))],
        alarms: vec![alarm(true), alarm(false)],
        router: Some(Vec::new()),
        ..BridgeSight::default()
    };
    let expected = [
        "bridge_not_ready",
        "replica_trusted",
        "replica_untrusted",
        "buffer_off",
        "alarm_critical",
        "alarm_warning",
        "name_unused",
    ];
    assert_eq!(ids(&bridge(&sight)), expected);
}

#[test]
fn the_table_has_one_id_each_and_its_page_says_the_same() {
    let names: BTreeSet<&str> = ALL.iter().map(|about| about.id).collect();
    assert_eq!(names.len(), ALL.len());
    let row = |about: &&About| {
        let About { id, severity, meaning, cause, .. } = about;
        format!("| `{id}` | {severity} | {meaning} | {cause} | {} |", about.setting(None))
    };
    let expected: Vec<String> = ALL.iter().map(row).collect();
    let page = include_str!("../../docs/doctor.md");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(rows, expected);
    for about in ALL {
        let is_bad = about.severity > Severity::Ok;
        assert_eq!(!about.cause.is_empty() && !about.setting.is_empty(), is_bad, "{}", about.id);
        assert!(!about.setting(None).contains('{') || about.setting.contains("{key}"));
    }
}
