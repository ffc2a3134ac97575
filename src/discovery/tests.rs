//! What is opened and closed, from what was seen and when.

use super::*;
use crate::recovery::Tick;

const GRACE_MS: u64 = 30_000;

fn roster(entries: &[(&str, Place)]) -> Roster<&'static str> {
    let mut roster = Roster::new(Settings {
        refresh_ms: 30_000,
        resolve_ms: 5_000,
        grace_ms: GRACE_MS,
        retry_ms: 1_000,
        engines_max: 3,
        open_max: 4,
    });
    roster.keep(Tick(0), entries.iter().map(|(name, place)| ((*name).to_owned(), place.clone())));
    roster
}

fn address(host: &str) -> Address {
    Address { host: host.to_owned(), port: 8000, ip: host.parse().ok() }
}

fn here(host: &str) -> Place {
    Place::Here(address(host))
}

fn name() -> Place {
    Place::Name { name: "engines.test".to_owned(), port: Some(8000) }
}

fn failed(reason: &'static str) -> Refusal {
    Refusal { reason, detail: String::new() }
}

/// Performs what is due: engines answer `told`, the name leads to `found`.
fn perform(
    roster: &mut Roster<&'static str>,
    now: Tick,
    told: &Answer<&'static str>,
    found: &Result<Vec<Address>, Refusal>,
) -> Vec<String> {
    let mut done = Vec::new();
    for task in roster.due(now) {
        match task {
            Task::Resolve { number, entry, name, .. } => {
                done.push(format!("resolve {name}"));
                roster.resolved(now, (number, &entry), found.clone());
            }
            Task::Ask { number, entry, address } => {
                done.push(format!("ask {}", address.authority()));
                roster.answered(now, (number, &entry), told.clone());
            }
        }
    }
    done
}

/// Hosts with their state, and what they told.
fn shown(roster: &Roster<&'static str>) -> Vec<String> {
    let show = |it: Standing<&'static str>| {
        let told = it.told.unwrap_or("-");
        format!("{} {} {told}", it.address.host, it.state.as_str())
    };
    roster.standings().into_iter().map(show).collect()
}

fn found(hosts: &[&str]) -> Result<Vec<Address>, Refusal> {
    Ok(hosts.iter().map(|host| address(host)).collect())
}

#[test]
fn an_engine_that_is_away_is_asked_for_ever_and_less_and_less() {
    let mut roster = roster(&[("a", here("10.0.0.7"))]);
    let mut asked = Vec::new();
    while asked.len() < 8 {
        let now = roster.next_deadline().unwrap();
        asked.push(now.0 / 1_000);
        let away = Answer::Failed(failed("no_answer"));
        assert_eq!(perform(&mut roster, now, &away, &found(&[])), ["ask 10.0.0.7:8000"]);
    }
    assert_eq!(asked, [0, 1, 3, 7, 15, 31, 61, 91]);
    assert_eq!(shown(&roster), ["10.0.0.7 asking -"]);
    assert_eq!(roster.standings()[0].refusal.as_ref().unwrap().reason, "no_answer");
}

#[test]
fn what_was_told_stands_until_the_engine_says_otherwise() {
    let mut roster = roster(&[("a", here("10.0.0.7"))]);
    let mut step = |answer: Answer<&'static str>| {
        let now = roster.next_deadline().unwrap();
        perform(&mut roster, now, &answer, &found(&[]));
        (now.0, shown(&roster).concat())
    };
    assert_eq!(step(Answer::Told("x")), (0, "10.0.0.7 found x".to_owned()));
    let away = Answer::Failed(failed("timed_out"));
    assert_eq!(step(away), (30_000, "10.0.0.7 found x".to_owned()));
    assert_eq!(step(Answer::Told("y")), (31_000, "10.0.0.7 found y".to_owned()));
    let none = Answer::Nothing(failed("not_publishing"));
    assert_eq!(step(none), (61_000, "10.0.0.7 asking -".to_owned()));
}

#[test]
fn a_name_that_flaps_closes_nothing() {
    let mut roster = roster(&[("n", name())]);
    let told = Answer::Told("x");
    perform(&mut roster, Tick(0), &told, &found(&["10.0.0.1", "10.0.0.2"]));
    perform(&mut roster, Tick(0), &told, &found(&[]));
    assert_eq!(shown(&roster), ["10.0.0.1 found x", "10.0.0.2 found x"]);
    for look in 1..40_u64 {
        let hosts: &[&str] = if look % 5 == 0 { &["10.0.0.1", "10.0.0.2"] } else { &["10.0.0.1"] };
        perform(&mut roster, Tick(look * 5_000), &told, &found(hosts));
        let second = if look % 5 == 0 { "10.0.0.2 found x" } else { "10.0.0.2 missing x" };
        assert_eq!(shown(&roster), ["10.0.0.1 found x", second], "look {look}");
    }
}

#[test]
fn a_name_that_vanishes_is_gone_after_the_grace_time_and_a_failure_proves_nothing() {
    let mut roster = roster(&[("n", name())]);
    let told = Answer::Told("x");
    perform(&mut roster, Tick(0), &told, &found(&["10.0.0.1"]));
    perform(&mut roster, Tick(1), &told, &found(&[]));
    perform(&mut roster, Tick(5_000), &told, &found(&[]));
    assert_eq!(shown(&roster), ["10.0.0.1 missing x"]);
    assert_eq!(roster.refusals()["n"].reason, "no_address");
    // No look that succeeded for a long time: nobody knows that it is gone.
    for look in 2..60_u64 {
        let silence = Err(failed("resolver_failed"));
        perform(&mut roster, Tick(look * 5_000), &told, &silence);
    }
    assert_eq!(shown(&roster), ["10.0.0.1 missing x"]);
    assert_eq!(roster.refusals()["n"].reason, "resolver_failed");
    perform(&mut roster, Tick(300_000), &told, &found(&[]));
    assert!(shown(&roster).is_empty());
    perform(&mut roster, Tick(305_000), &told, &found(&["10.0.0.1"]));
    assert_eq!(shown(&roster), ["10.0.0.1 asking -"], "it comes back as a new one");
    assert!(roster.refusals().is_empty());
}

#[test]
fn an_engine_that_moves_under_its_name_is_asked_at_once_and_stays() {
    let mut roster = roster(&[("n", name())]);
    let at = |ip: &str| {
        let host = "pod-0.engines.test".to_owned();
        Ok(vec![Address { host, port: 8000, ip: ip.parse().ok() }])
    };
    perform(&mut roster, Tick(0), &Answer::Told("x"), &at("10.0.0.1"));
    let asked = roster.due(Tick(0));
    let [Task::Ask { number, entry, .. }] = &asked[..] else { panic!("{asked:?}") };
    let tasks = roster.due(Tick(5_000));
    let [Task::Resolve { number: look, .. }] = &tasks[..] else { panic!("{tasks:?}") };
    roster.resolved(Tick(5_000), (*look, entry), at("10.0.0.2"));
    roster.answered(Tick(5_000), (*number, entry), Answer::Told("of the old one"));
    assert_eq!(shown(&roster), ["pod-0.engines.test asking -"]);
    let done = perform(&mut roster, Tick(5_000), &Answer::Told("y"), &found(&[]));
    assert_eq!(done, ["ask pod-0.engines.test:8000"]);
    assert_eq!(shown(&roster), ["pod-0.engines.test found y"]);
}

#[test]
fn neither_engines_nor_requests_are_without_bound() {
    let entries: Vec<_> = ["a", "b", "c", "d", "e", "f"].map(|it| (it, here(it))).into();
    let mut many = roster(&entries);
    let first = many.due(Tick(0));
    assert_eq!(first.len(), 4);
    assert!(many.due(Tick(0)).is_empty() && many.next_deadline().is_none());
    let Task::Ask { number, entry, .. } = &first[0] else { panic!("a request") };
    many.answered(Tick(0), (*number, entry), Answer::Told("x"));
    assert_eq!((many.next_deadline(), many.due(Tick(0)).len()), (Some(Tick(0)), 1));
    let mut named = roster(&[("n", name())]);
    perform(&mut named, Tick(0), &Answer::Told("x"), &found(&["a", "b", "c", "d"]));
    assert_eq!(named.standings().len(), 3);
    assert_eq!(named.refusals()["n"].reason, "too_many");
}

#[test]
fn an_entry_that_goes_takes_its_engines_along_and_one_that_stays_keeps_them() {
    let mut roster = roster(&[("a", here("a")), ("b", here("b"))]);
    let late = roster.due(Tick(0));
    roster.keep(Tick(1), [("b".to_owned(), here("b")), ("c".to_owned(), here("c"))]);
    for task in late {
        let Task::Ask { number, entry, .. } = task else { panic!("a request") };
        roster.answered(Tick(1), (number, &entry), Answer::Told("x"));
    }
    assert_eq!(shown(&roster), ["b found x", "c asking -"]);
    roster.keep(Tick(2), [("b".to_owned(), here("elsewhere"))]);
    assert_eq!(shown(&roster), ["elsewhere asking -"]);
}
