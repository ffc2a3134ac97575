//! GET /v1/replicas, /v1/replicas/{key}; POST /v1/replicas/{key}/resync.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Extension,
    extract::{Path, State},
    http::{StatusCode, Uri},
    response::{IntoResponse, Response},
};
use kvbridge_schemas::{Replica, ReplicaKey};
use serde::Serialize;

use super::{Api, Grant, Problem, Shared, admission::replica, json};
use crate::{
    alarms::HitCounts,
    bus::Name,
    doctor::DrainSight,
    jobs::Trigger,
    pipeline::{Change, HashStanding, ReplicaHandle, ReplicaStatus},
};

/// A replica's three parts.
#[derive(Serialize)]
pub(super) struct NameJson<'a> {
    model: &'a str,
    instance: &'a str,
    rank: u32,
}

impl NameJson<'_> {
    pub(super) fn of(replica: &Replica) -> NameJson<'_> {
        NameJson { model: &replica.model, instance: &replica.instance, rank: replica.rank }
    }
}

/// A replica that a request is about.
type Seen<'a> = (&'a ReplicaKey, &'a ReplicaHandle);

/// How one replica stands.
#[derive(Serialize)]
pub struct ReplicaJson<'a> {
    key: &'a str,
    replica: NameJson<'a>,
    trust: &'static str,
    reason: &'static str,
    since: u64,
    epoch: u64,
    next_seq: u64,
    blocks: BTreeMap<&'a str, u64>,
    /// What came of computing the engine's hashes again, once some were.
    #[serde(skip_serializing_if = "Option::is_none")]
    hashes: Option<HashesJson>,
    /// In the same answers as alarms: how its events are taken, while the view is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    drain: Option<DrainJson>,
    /// Only where they were asked for: a standing on the stream of events has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    alarms: Option<Vec<&'static str>>,
    /// In the same answers, where the bus names lives.
    #[serde(skip_serializing_if = "Option::is_none")]
    life: Option<LifeJson>,
    /// The rest is in the same answers too.
    #[serde(skip_serializing_if = "Option::is_none")]
    engine: Option<&'a str>,
    /// Since the cursor last moved or was proven.
    #[serde(skip_serializing_if = "Option::is_none")]
    age_ms: Option<u64>,
    /// Once something was served.
    #[serde(skip_serializing_if = "Option::is_none")]
    hits: Option<HitsJson>,
    /// Oldest first; where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Vec<ChangeJson>>,
}

/// Tokens since the start of this process, or of the engine where its own metrics are read.
#[derive(Serialize)]
struct HitsJson {
    input: u64,
    cached: u64,
    routed_input: u64,
    routed_cached: u64,
    routed_predicted: u64,
}

impl HitsJson {
    fn of(counts: HitCounts) -> Option<HitsJson> {
        let HitCounts { input, cached, routed_input, routed_cached, routed_predicted } = counts;
        let hits = HitsJson { input, cached, routed_input, routed_cached, routed_predicted };
        (counts != HitCounts::default()).then_some(hits)
    }
}

/// What a replica changed to.
#[derive(Serialize)]
struct ChangeJson {
    at: u64,
    trust: &'static str,
    reason: &'static str,
    epoch: u64,
}

impl ChangeJson {
    fn of(change: Change) -> ChangeJson {
        let Change { at_ms, trust, reason, epoch } = change;
        ChangeJson { at: at_ms, trust: trust.as_str(), reason, epoch: epoch.0 }
    }
}

/// What was seen of taking an engine's events since its traffic began.
#[derive(Serialize)]
struct DrainJson {
    requests: u64,
    empty: u64,
    at_once: u64,
    absent: u64,
    open_ms: u64,
    events: u64,
    too_long: u64,
    competing: bool,
}

impl DrainJson {
    fn of(sight: DrainSight) -> DrainJson {
        let DrainSight { requests, empty, at_once, absent, open_ms, events, too_long, .. } = sight;
        let competing = sight.is_competing;
        DrainJson { requests, empty, at_once, absent, open_ms, events, too_long, competing }
    }
}

/// A sample of announced blocks, hashed again.
#[derive(Serialize)]
struct HashesJson {
    scheme: &'static str,
    equal: u64,
    different: u64,
}

impl HashesJson {
    fn of(standing: HashStanding) -> HashesJson {
        let HashStanding { scheme, equal, different, .. } = standing;
        HashesJson { scheme, equal, different }
    }
}

/// How the life is named on the bus.
#[derive(Serialize)]
struct LifeJson {
    state: &'static str,
    /// Its name on the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<u64>,
    /// Why nothing is said of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'static str>,
}

impl LifeJson {
    fn of(name: &Name) -> LifeJson {
        let (state, why) = match name {
            Name::Undecided | Name::Asking(_) => ("provisional", None),
            Name::Silent(silence) => ("silent", Some(silence.as_str())),
            Name::Named(_) => ("named", None),
        };
        LifeJson { state, epoch: name.epoch().map(|epoch| epoch.0), why }
    }
}

impl<'a> ReplicaJson<'a> {
    /// The JSON of one status.
    pub fn of(
        key: &'a ReplicaKey,
        replica: &'a Replica,
        status: &'a ReplicaStatus,
    ) -> ReplicaJson<'a> {
        ReplicaJson {
            key: key.as_str(),
            replica: NameJson::of(replica),
            trust: status.trust.device.as_str(),
            reason: status.reason,
            since: status.since_ms,
            epoch: status.cursor.epoch.0,
            next_seq: status.cursor.next_seq.0,
            blocks: status.blocks.iter().map(|(tier, count)| (tier.as_str(), *count)).collect(),
            hashes: status.hashes.map(HashesJson::of),
            drain: None,
            alarms: None,
            life: None,
            engine: None,
            age_ms: None,
            hits: None,
            changes: None,
        }
    }

    fn in_full(mut self, api: &Shared, (key, handle): Seen<'a>, status: &ReplicaStatus) -> Self {
        let now = api.pipeline.clock.now();
        self.alarms = Some(api.alarms.of(key).iter().map(|it| it.alarm.as_str()).collect());
        self.life = handle.life.as_deref().map(|life| LifeJson::of(&life.name()));
        self.drain = handle.signs.drain_sight().map(DrainJson::of);
        self.engine = Some(handle.engine.as_str());
        self.age_ms = Some(now.0.saturating_sub(status.moved_at.0));
        self.hits = HitsJson::of(handle.signs.hit_counts());
        self
    }

    fn with_changes(mut self, handle: &ReplicaHandle) -> Self {
        let changes = handle.signs.changes.all();
        self.changes = Some(changes.into_iter().map(ChangeJson::of).collect());
        self
    }
}

#[derive(Serialize)]
struct ReplicasJson<'a> {
    replicas: Vec<ReplicaJson<'a>>,
}

pub(super) async fn all(
    State(Api(api)): State<Api>,
    Extension(grant): Extension<Arc<Grant>>,
    uri: Uri,
) -> Response {
    let with_changes = uri.query() == Some("changes=true");
    let statuses: Vec<_> = api
        .pipeline
        .fleet
        .replicas()
        .filter(|(_, handle)| grant.sees(&handle.replica.model))
        .map(|(key, handle)| {
            let status = handle.status.borrow().clone();
            (key, handle, status)
        })
        .collect();
    let replicas = statuses.iter().map(|(key, handle, status)| {
        let shown = ReplicaJson::of(key, &handle.replica, status);
        let shown = shown.in_full(&api, (key, handle), status);
        if with_changes { shown.with_changes(handle) } else { shown }
    });
    json(&ReplicasJson { replicas: replicas.collect() })
}

pub(super) async fn one(
    State(Api(api)): State<Api>,
    Extension(grant): Extension<Arc<Grant>>,
    Path(key): Path<String>,
) -> Result<Response, Problem> {
    let (key, handle) = replica(&api, &grant, &key)?;
    let status = handle.status.borrow().clone();
    let shown = ReplicaJson::of(&key, &handle.replica, &status);
    Ok(json(&shown.in_full(&api, (&key, &handle), &status).with_changes(&handle)))
}

#[derive(Serialize)]
struct Asked<'a> {
    key: &'a str,
    asked: &'static str,
}

/// Asks for a return to a proven state. What comes of it is seen in the replica's trust and reason.
pub(super) async fn resync(
    State(Api(api)): State<Api>,
    Extension(grant): Extension<Arc<Grant>>,
    Path(key): Path<String>,
) -> Result<Response, Problem> {
    let (key, handle) = replica(&api, &grant, &key)?;
    api.foreman.resync(Trigger::Operator, &handle)?;
    let body = json(&Asked { key: key.as_str(), asked: "resync" });
    Ok((StatusCode::ACCEPTED, body).into_response())
}
