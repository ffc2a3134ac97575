//! The alert rules and the dashboard that are shipped speak of metrics and alarms that exist, the
//! alarms by their severity.

use std::collections::BTreeSet;

use crate::alarms::{Alarm, Severity};

const ALERTS: &str = include_str!("../../deploy/prometheus/alerts.yml");
const DASHBOARD: &str = include_str!("../../deploy/grafana/kvbridge.json");

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
fn every_metric_that_the_dashboard_shows_is_documented_or_recorded() {
    let mut known = metrics(include_str!("../../docs/specs/metrics.md"));
    let recorded = ALERTS.lines().filter_map(|line| line.trim().strip_prefix("- record: "));
    known.extend(recorded);
    // A distribution is shown by its buckets.
    let words = DASHBOARD.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
    let named: BTreeSet<&str> = words
        .filter(|word| word.starts_with("kvbridge_") || word.starts_with("kvbridge:"))
        .map(|word| word.strip_suffix("_bucket").unwrap_or(word))
        .collect();
    assert!(named.len() >= 20, "the expressions are not found: {named:?}");
    let unknown: Vec<_> = named.difference(&known).collect();
    assert!(unknown.is_empty(), "neither in docs/specs/metrics.md nor recorded: {unknown:?}");
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
