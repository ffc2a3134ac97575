//! GET /v1/alarms: what rings now, with what it means and what to do.

use std::sync::Arc;

use axum::{Extension, extract::State, response::Response};
use serde::Serialize;

use super::{Api, Grant, json};
use crate::alarms::HitEvent;

#[derive(Serialize)]
struct AlarmJson<'a> {
    replica: &'a str,
    alarm: &'static str,
    severity: &'static str,
    since: u64,
    meaning: &'static str,
    first_look: &'static str,
    action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<&'static str>,
    /// The finding of `kvbridge doctor` that it follows from.
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'static str>,
}

#[derive(Serialize)]
struct AlarmsJson<'a> {
    alarms: Vec<AlarmJson<'a>>,
}

pub(super) async fn all(
    State(Api(api)): State<Api>,
    Extension(grant): Extension<Arc<Grant>>,
) -> Response {
    let replicas: Vec<_> = api.pipeline.fleet.replicas().collect();
    let mut alarms = Vec::new();
    for (key, handle) in &replicas {
        if !grant.sees(&handle.replica.model) {
            continue;
        }
        for raised in api.alarms.of(key) {
            let about = raised.alarm.about();
            alarms.push(AlarmJson {
                replica: key.as_str(),
                alarm: about.name,
                severity: about.severity.as_str(),
                since: raised.since_ms,
                meaning: about.meaning,
                first_look: about.first_look,
                action: about.action,
                event: raised.event.map(HitEvent::as_str),
                cause: handle.signs.cause_of(raised.alarm),
            });
        }
    }
    json(&AlarmsJson { alarms })
}
