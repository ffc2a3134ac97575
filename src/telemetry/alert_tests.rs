//! The alert rules that are shipped speak of metrics and alarms that exist, by their severity.

use std::collections::BTreeSet;

use crate::alarms::{Alarm, Severity};

const ALERTS: &str = include_str!("../../deploy/prometheus/alerts.yml");

/// Names in a text that begin with `kvbridge_`.
fn metrics(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
    words.filter(|word| word.starts_with("kvbridge_")).collect()
}

#[test]
fn every_metric_that_an_alert_names_is_documented() {
    let documented = metrics(include_str!("../../docs/specs/metrics.md"));
    let named = metrics(ALERTS);
    assert!(named.len() >= 8, "the rules are not found: {named:?}");
    let unknown: Vec<_> = named.difference(&documented).collect();
    assert!(unknown.is_empty(), "not in docs/specs/metrics.md: {unknown:?}");
}

#[test]
fn the_critical_alarms_are_the_critical_alerts_and_all_others_are_warnings() {
    let critical: Vec<&str> = Alarm::ALL
        .into_iter()
        .filter(|alarm| alarm.about().severity == Severity::Critical)
        .map(Alarm::as_str)
        .collect();
    for operator in ["=~", "!~"] {
        let (_, rest) = ALERTS.split_once(&format!("kvbridge_alarm{{alarm{operator}\"")).unwrap();
        let (names, _) = rest.split_once('"').unwrap();
        assert_eq!(names.split('|').collect::<Vec<_>>(), critical, "alarm{operator}");
    }
}
