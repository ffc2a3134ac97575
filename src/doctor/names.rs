//! The names a router sends to beside those of the replicas, byte for byte, and what is different
//! about a name that nearly fits.

use std::collections::BTreeSet;

use super::{
    Finding,
    table::{NAME_UNKNOWN, NAME_UNUSED, NAMES_EQUAL},
};

/// Compares them.
pub fn names(router: &[String], instances: &BTreeSet<String>) -> Vec<Finding> {
    let mut found = Vec::new();
    for name in router.iter().filter(|name| !instances.contains(*name)) {
        let near = instances.iter().find_map(|instance| {
            difference(name, instance).map(|how| format!("nearest is {instance:?}: {how}"))
        });
        let detail = near.unwrap_or_else(|| "none is near it".to_owned());
        found.push(Finding::new(&NAME_UNKNOWN, None).of(format!("{name:?}")).seen(detail));
    }
    for instance in instances.iter().filter(|instance| !router.contains(instance)) {
        found.push(Finding::new(&NAME_UNUSED, None).of(format!("{instance:?}")));
    }
    if found.is_empty() {
        let detail = format!("{} names", instances.len());
        found.push(Finding::new(&NAMES_EQUAL, None).seen(detail));
    }
    found
}

/// Takes away what does not say which server is meant.
type Strip = fn(&str) -> &str;

/// What keeps two names apart that mean one server; absent = they do not.
fn difference(one: &str, other: &str) -> Option<String> {
    let mut how = Vec::new();
    let (mut one, mut other) = (one, other);
    let steps: [(&str, Strip); 3] = [
        ("space or a line end", str::trim),
        ("a scheme", without_scheme),
        ("a slash at the end", |name| name.trim_end_matches('/')),
    ];
    for (what, step) in steps {
        if (step(one) != one) != (step(other) != other) {
            how.push(what.to_owned());
        }
        (one, other) = (step(one), step(other));
    }
    if one != other && one.eq_ignore_ascii_case(other) {
        how.push("capital letters".to_owned());
    }
    let (one, other) = (one.to_ascii_lowercase(), other.to_ascii_lowercase());
    if one != other {
        let (host, port) = split(&one);
        let (other_host, other_port) = split(&other);
        if host != other_host {
            return None;
        }
        how.push(match (port, other_port) {
            (Some(port), Some(other)) => format!("port {port} instead of {other}"),
            (Some(_), None) => "a port".to_owned(),
            (None, _) => "no port".to_owned(),
        });
    }
    Some(how.join(", "))
}

fn without_scheme(name: &str) -> &str {
    name.split_once("://").map_or(name, |(_, rest)| rest)
}

fn split(name: &str) -> (&str, Option<&str>) {
    match name.rsplit_once(':') {
        // Not inside the brackets of an IPv6 address.
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (name, None),
    }
}
