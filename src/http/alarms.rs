//! GET /v1/alarms: what rings now, with what it means and what to do.

use axum::{extract::State, response::Response};
use serde::Serialize;

use super::{Api, json};

#[derive(Serialize)]
struct AlarmJson<'a> {
    replica: &'a str,
    alarm: &'static str,
    severity: &'static str,
    since: u64,
    meaning: &'static str,
    first_look: &'static str,
    action: &'static str,
}

#[derive(Serialize)]
struct AlarmsJson<'a> {
    alarms: Vec<AlarmJson<'a>>,
}

pub(super) async fn all(State(Api(api)): State<Api>) -> Response {
    let mut alarms = Vec::new();
    for (key, _) in api.pipeline.fleet.replicas() {
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
            });
        }
    }
    json(&AlarmsJson { alarms })
}
