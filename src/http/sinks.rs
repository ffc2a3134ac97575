//! GET /v1/sinks: where routers are fed, and what they have.

use std::sync::Arc;

use axum::{Extension, extract::State, response::Response};
use kvbridge_schemas::ReplicaKey;
use serde::Serialize;

use super::{Api, Grant, json};
use crate::sinks::{LineStanding, ReaderStanding};

#[derive(Serialize)]
struct LineJson<'a> {
    sink: &'a str,
    preset: &'static str,
    replica: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    listen: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replay: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    topic: &'a str,
    next_seq: u64,
    shown: bool,
    shown_blocks: u64,
    hidden_blocks: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    readers: Vec<ReaderJson<'a>>,
}

#[derive(Serialize)]
struct ReaderJson<'a> {
    endpoint: &'a str,
    listening: bool,
    told_whole: u64,
}

impl<'a> ReaderJson<'a> {
    fn of(reader: &'a ReaderStanding) -> ReaderJson<'a> {
        ReaderJson {
            endpoint: &reader.endpoint,
            listening: reader.is_listening,
            told_whole: reader.told_whole_count,
        }
    }
}

impl<'a> LineJson<'a> {
    fn of(((sink, key), line): &'a ((String, ReplicaKey), LineStanding)) -> LineJson<'a> {
        LineJson {
            sink,
            preset: line.preset,
            replica: key.as_str(),
            listen: line.live.as_deref(),
            replay: line.replay.as_deref(),
            topic: &line.topic,
            next_seq: line.next_seq,
            shown: line.is_shown,
            shown_blocks: line.shown_count,
            hidden_blocks: line.hidden_count,
            readers: line.readers.iter().map(ReaderJson::of).collect(),
        }
    }
}

#[derive(Serialize)]
struct LinesJson<'a> {
    sinks: Vec<LineJson<'a>>,
}

pub(super) async fn all(
    State(Api(api)): State<Api>,
    Extension(grant): Extension<Arc<Grant>>,
) -> Response {
    let lines = api.pipeline.sinks.lines();
    let seen = lines.iter().filter(|((_, key), _)| {
        let handle = api.pipeline.fleet.get(key);
        handle.is_some_and(|handle| grant.sees(&handle.replica.model))
    });
    json(&LinesJson { sinks: seen.map(LineJson::of).collect() })
}
