//! One replica behind the API, without a socket.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use axum::{
    body::{Body, to_bytes},
    http::{Request, StatusCode, header},
};
use kvbridge_adapters_api::Removal;
use kvbridge_schemas::{
    BlockHash, Cursor, EngineKind, Epoch, Event, Parent, Place, Projection, Replica, Seq, Stored,
    StoredBlock, Tier, TierTrust, Tokens, Trust, content_hash,
};
use tokio::sync::{mpsc, watch};
use tower::ServiceExt;

use super::*;
use crate::{
    alarms::Watch,
    clock::Clock,
    foreman::Foreman,
    index::{Index, Published},
    pipeline::{Command, Fleet, IndexWriters, ReplicaHandle, ReplicaStatus},
    telemetry,
    view::{View, ViewSettings},
};

pub(super) const KEY: &str = "m.h=3A8000.0";

/// Where the API would listen.
const LISTEN: &str = "127.0.0.1:8090";

/// A fleet of one replica that holds the blocks [1, 2] and [3, 4].
pub(super) struct World {
    pub(super) api: Api,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) status: watch::Sender<ReplicaStatus>,
    pub(super) fleet: Arc<Fleet>,
    pub(super) view: View,
    pub(super) stop: CancellationToken,
}

pub(super) fn stored() -> Event {
    let block = |byte: u64, tokens: &[u32]| StoredBlock {
        hash: BlockHash::from_u64(byte),
        content: Some(content_hash(tokens)),
    };
    Event::Stored(Stored {
        parent: Parent::Root,
        block_size: 2,
        tokens: Tokens(vec![1, 2, 3, 4]),
        blocks: vec![block(0xa, &[1, 2]), block(0xb, &[3, 4])],
        partial: false,
        bigram: false,
        place: Place::of(Tier::Device),
        lora: None,
        lora_id: None,
        salt: None,
        extra: Vec::new(),
        session: None,
    })
}

pub(super) fn replica() -> Replica {
    Replica { model: "m".to_owned(), instance: "h:8000".to_owned(), rank: 0 }
}

pub(super) fn world(trust: Trust, limits: Limits) -> World {
    guarded(trust, limits, Access::Open)
}

pub(super) fn guarded(trust: Trust, limits: Limits, access: Access) -> World {
    let cursor = Cursor { epoch: Epoch(9), next_seq: Seq(4) };
    let settings = ViewSettings::of(Projection::Last8, Removal::PerCopy, 10);
    let (mut view, mut deltas) = (View::new(settings), Vec::new());
    view.apply(&[stored()], &mut deltas, &mut Vec::new());
    let index = Arc::new(Index::new());
    let slot = index.register(replica());
    let trust = TierTrust::all(trust);
    let published = Published { cursor, trust, reason: "contiguous", ..Published::nothing() };
    index.apply(slot, &deltas, published);
    let status = ReplicaStatus {
        trust,
        reason: "contiguous",
        since_ms: 5,
        cursor,
        blocks: view.block_counts(),
        ..ReplicaStatus::starting()
    };
    let ((status, status_rx), (commands_tx, commands)) = (watch::channel(status), mpsc::channel(1));
    let (fleet, clock, stop) = (Fleet::new(2), Clock::start(), CancellationToken::new());
    let handle = ReplicaHandle {
        replica: Arc::new(replica()),
        status: status_rx,
        commands: commands_tx,
        signs: Arc::default(),
        engine: EngineKind::Vllm,
        flush: None,
        is_bridged: false,
        life: None,
        stop: stop.child_token(),
    };
    fleet.add(replica().key(), handle);
    let fleet = Arc::new(fleet);
    let writers = Arc::new(IndexWriters::start(&index, NonZeroUsize::MIN).unwrap());
    let bus = Arc::new(crate::bus::Embedded::new(fleet.events_sender()));
    let pipeline = Pipeline {
        fleet: Arc::clone(&fleet),
        index,
        writers,
        bus,
        clock,
        sources: Arc::default(),
        drains: Arc::default(),
        leases: Arc::default(),
        budget: Arc::default(),
        sinks: Arc::default(),
        fan_out: None,
    };
    let recorder = telemetry::build_metrics().unwrap();
    let render = recorder.handle();
    let api = metrics::with_local_recorder(&recorder, || {
        let (_, alarms) = Watch::new(Arc::clone(&fleet), clock, limits::RANK_MISSING);
        let (body_deadline, stop) = (Duration::from_millis(200), stop.clone());
        Api::new(ApiParts {
            pipeline,
            limits,
            body_deadline,
            access,
            names: Names::of(&HttpConfig::default(), LISTEN.parse().unwrap()),
            alarms,
            foreman: Foreman::new(Arc::clone(&fleet), clock),
            render,
            ready: ReadyConfig::default(),
            backfill: BackfillConfig::default(),
            finds_more: false,
            stop,
        })
    });
    World { api, commands, status, fleet, view, stop }
}

impl World {
    pub(super) async fn send(
        &self,
        method: &str,
        path: &str,
        body: impl Into<Body>,
    ) -> (StatusCode, String) {
        let request = Request::builder().method(method).uri(path).body(body.into()).unwrap();
        let response = self.api.clone().router().oneshot(request).await.unwrap();
        let status = response.status();
        if status.is_client_error() || status.is_server_error() {
            let kind = response.headers().get(header::CONTENT_TYPE).unwrap();
            assert_eq!(kind, "application/problem+json");
        }
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    pub(super) async fn get(&self, path: &str) -> String {
        let (status, body) = self.send("GET", path, Body::empty()).await;
        assert_eq!(status, StatusCode::OK, "{path}: {body}");
        body
    }

    pub(super) async fn matched(&self, body: &str) -> serde_json::Value {
        let (status, text) = self.send("POST", "/v1/match", body.to_owned()).await;
        assert_eq!(status, StatusCode::OK, "{text}");
        let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
        for replica in value["replicas"].as_array_mut().unwrap() {
            assert!(replica["as_of"]["age_ms"].take().is_u64());
        }
        value
    }
}

pub(super) fn exact() -> World {
    world(Trust::Exact, Limits::default())
}
