//! POST /register, /unregister; GET /workers: instances as sources.
//!
//! A registration is a source that came over HTTP, as of `POST /v1/sources`. Its name keeps what
//! only the indexer knows of it.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Extension,
    extract::{Request, State},
    http::{StatusCode, Uri},
    response::Response,
};
use kvbridge_schemas::{Replica, Trust};

use super::{
    Dynamo, GROUP, Refused, done,
    forms::{ListenerJson, RegisterForm, UnregisterForm, WorkerJson},
    instance_number, parameter,
};
use crate::{
    config::{EntryOrigin, SourceFile, limits},
    http::{Api, EntryStanding, Grant, SourceError, SourceRequest, body, json, sources},
    pipeline::{ReplicaHandle, registry},
};

/// What the name of a registered source begins with.
const NAME_TAG: &str = "dynamo";

pub(super) async fn register(
    State(Dynamo { api, engine }): State<Dynamo>,
    Extension(grant): Extension<Arc<Grant>>,
    request: Request,
) -> Result<Response, Refused> {
    sources::unrestricted(&grant)?;
    let bytes = body::read(&api.0, request, limits::COMPAT_BODY_BYTES_MAX).await?;
    let form: RegisterForm = body::parse(&bytes)?;
    if form.routing_group != GROUP {
        let detail = format!("expected routing_group {GROUP}: models are told apart, groups not");
        return Err(Refused::new(StatusCode::BAD_REQUEST, "routing_group", detail));
    }
    let entries = api.ask_sources(SourceRequest::List).await?;
    free(&api, &entries, &form)?;
    let rank = form.dp_rank.unwrap_or(0);
    let first = || registry::engine_names().next().map(str::to_owned);
    let source = SourceFile {
        name: Some(format!("{NAME_TAG}-{}-{rank}-{}", form.instance_id, form.block_size)),
        engine: form.engine.or(engine).or_else(first),
        endpoint: Some(form.endpoint),
        replay: form.replay_endpoint,
        model: Some(form.model_name),
        instance: Some(form.instance_id.to_string()),
        rank: Some(rank),
        ..SourceFile::default()
    };
    let added = api.ask_sources(|answer| SourceRequest::Add(Box::new(source), answer)).await?;
    match added {
        Ok(_) => Ok(done(StatusCode::CREATED)),
        Err(error @ SourceError::Wrong(_)) => {
            Err(Refused::new(StatusCode::BAD_REQUEST, "wrong_config", error.to_string()))
        }
        Err(error) => Err(refused(error)),
    }
}

/// Refuses what is there already, or does not fit what is there.
fn free(api: &Api, entries: &[EntryStanding], form: &RegisterForm) -> Result<(), Refused> {
    let conflict = |reason, detail| Err(Refused::new(StatusCode::CONFLICT, reason, detail));
    let (id, rank) = (form.instance_id, form.dp_rank.unwrap_or(0));
    let same = |replica: &&Replica| instance_number(&replica.instance) == id;
    let known: Vec<Replica> = replicas(api, entries).iter().filter(same).cloned().collect();
    if let Some(other) = known.iter().find(|replica| replica.model != form.model_name) {
        let detail = format!(
            "instance {id} is already registered for model={} routing_group={GROUP}",
            other.model
        );
        return conflict("other_model", detail);
    }
    if known.iter().any(|replica| replica.rank == rank) {
        let detail = format!("instance {id} dp_rank {rank} already registered");
        return conflict("already_registered", detail);
    }
    let used = block_sizes(api, entries, &form.model_name);
    if !used.is_empty() && !used.contains(&form.block_size) {
        let detail = format!(
            "block_size mismatch for model={} routing_group={GROUP}: existing={}, requested={}",
            form.model_name, used[0], form.block_size
        );
        return conflict("block_size_mismatch", detail);
    }
    if form.block_size == 0 {
        let detail = "expected a block_size of at least 1";
        return Err(Refused::new(StatusCode::BAD_REQUEST, "wrong_value", detail));
    }
    Ok(())
}

pub(super) async fn unregister(
    State(Dynamo { api, .. }): State<Dynamo>,
    Extension(grant): Extension<Arc<Grant>>,
    request: Request,
) -> Result<Response, Refused> {
    sources::unrestricted(&grant)?;
    let bytes = body::read(&api.0, request, limits::COMPAT_BODY_BYTES_MAX).await?;
    let form: UnregisterForm = body::parse(&bytes)?;
    let group = form.routing_group.as_deref().unwrap_or(GROUP);
    let entries = api.ask_sources(SourceRequest::List).await?;
    let is_meant = |replica: &Replica| {
        instance_number(&replica.instance) == form.instance_id
            && replica.model == form.model_name
            && form.dp_rank.is_none_or(|rank| rank == replica.rank)
            && group == GROUP
    };
    let meant: Vec<&EntryStanding> =
        entries.iter().filter(|entry| of_entry(entry).any(is_meant)).collect();
    if meant.is_empty() {
        let detail = format!("instance {} not found", form.instance_id);
        return Err(Refused::new(StatusCode::NOT_FOUND, "unknown_instance", detail));
    }
    // Looked at before any is taken away: a refusal changes nothing.
    for entry in &meant {
        if let EntryOrigin::File(at) = &entry.origin {
            return Err(refused(SourceError::OfFile(at.clone())));
        }
        if !of_entry(entry).all(is_meant) {
            let detail = "its source speaks of others too: DELETE /v1/sources takes it away whole";
            return Err(Refused::new(StatusCode::CONFLICT, "source_of_others", detail));
        }
    }
    for entry in meant {
        let name = entry.name.clone();
        let removed = api.ask_sources(|answer| SourceRequest::Remove(name, answer)).await?;
        removed.map_err(refused)?;
    }
    Ok(done(StatusCode::OK))
}

pub(super) async fn all(
    State(Dynamo { api, .. }): State<Dynamo>,
    Extension(grant): Extension<Arc<Grant>>,
    uri: Uri,
) -> Result<Response, Refused> {
    let entries = api.ask_sources(SourceRequest::List).await?;
    let group = parameter(&uri, "routing_group");
    let model = parameter(&uri, "model_name");
    let mut workers = BTreeMap::<(String, String), WorkerJson>::new();
    let replicas = replicas(&api, &entries).into_iter().filter(|replica| {
        grant.sees(&replica.model)
            && model.as_ref().is_none_or(|model| *model == replica.model)
            && group.as_deref().is_none_or(|group| group == GROUP)
    });
    for replica in replicas {
        let listener = listener(&api, &entries, &replica);
        let sizes = block_sizes(&api, &entries, &replica.model);
        let key = (replica.model.clone(), replica.instance.clone());
        let worker = workers.entry(key).or_insert_with(|| WorkerJson {
            instance_id: instance_number(&replica.instance),
            source: "zmq",
            status: listener.status,
            model_name: replica.model,
            routing_group: GROUP,
            // As the indexer says it of one whose size is not known.
            block_size: sizes.first().copied().unwrap_or(0),
            endpoints: BTreeMap::new(),
            listeners: BTreeMap::new(),
            instance: replica.instance,
        });
        if listener.status == PENDING {
            worker.status = PENDING;
        }
        worker.endpoints.insert(replica.rank, listener.endpoint.clone());
        worker.listeners.insert(replica.rank, listener);
    }
    Ok(json(&workers.into_values().collect::<Vec<_>>()))
}

const PENDING: &str = "pending";

/// `active` means proven here: what the indexer calls so may be wrong.
fn listener(api: &Api, entries: &[EntryStanding], replica: &Replica) -> ListenerJson {
    let handle = api.0.pipeline.fleet.get(&replica.key());
    let reason = |handle: ReplicaHandle| {
        let status = handle.status.borrow();
        (status.trust.device == Trust::None).then_some(status.reason)
    };
    let reason = handle.map_or(Some("not_open"), reason);
    ListenerJson {
        endpoint: entries.iter().find_map(|entry| place(entry, replica)).unwrap_or_default(),
        status: if reason.is_some() { PENDING } else { "active" },
        last_error: reason.map(str::to_owned),
    }
}

/// Where a replica is read, if that entry speaks of it.
fn place(entry: &EntryStanding, replica: &Replica) -> Option<String> {
    if entry.replicas.contains(replica) {
        return Some(entry.place.clone());
    }
    let engine = entry.engines.iter().find(|engine| engine.replicas.contains(replica))?;
    Some(engine.address.clone())
}

fn of_entry(entry: &EntryStanding) -> impl Iterator<Item = &Replica> {
    entry.replicas.iter().chain(entry.engines.iter().flat_map(|engine| &engine.replicas))
}

/// All replicas: those that are open, and those that entries name.
fn replicas(api: &Api, entries: &[EntryStanding]) -> Vec<Replica> {
    let open = api.0.pipeline.fleet.replicas().map(|(_, handle)| (*handle.replica).clone());
    let named = entries.iter().flat_map(of_entry).cloned();
    let all: BTreeMap<_, _> = named.chain(open).map(|replica| (replica.key(), replica)).collect();
    all.into_values().collect()
}

/// Tokens per block of a model: as its blocks have it, else as it was registered.
fn block_sizes(api: &Api, entries: &[EntryStanding], model: &str) -> Vec<u32> {
    let held = api.0.pipeline.index.block_sizes(model);
    if !held.is_empty() {
        return held;
    }
    let of_model = |entry: &&EntryStanding| of_entry(entry).any(|replica| replica.model == model);
    entries.iter().filter(of_model).filter_map(|entry| registered_size(&entry.name)).collect()
}

fn registered_size(name: &str) -> Option<u32> {
    let parts: Vec<&str> = name.split('-').collect();
    match parts.as_slice() {
        [NAME_TAG, _, _, size] => size.parse().ok(),
        _ => None,
    }
}

fn refused(error: SourceError) -> Refused {
    crate::http::Problem::from(error).into()
}
