//! Names the lives of one stream's replicas and says each second how they stand.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_nats::jetstream::{
    Context,
    kv::{CreateErrorKind, Operation, Store, UpdateErrorKind},
};
use futures::TryStreamExt;
use kvbridge_schemas::{Epoch, Replica, ReplicaKey, codec, subject};
use tracing::{info, warn};

use super::{
    buckets::{self, BucketFailure},
    connect::reason,
    record,
    snapshots::{Snapshots, StoreFault},
    streams::Plan,
    tail,
};
use crate::{
    bus::{BusState, LogLife},
    clock::{Clock, millis},
    config::NatsConfig,
    shared_log::{
        Called, Name, Named, called,
        lives::{self, Question, Record, Silence, Verdict},
    },
};

/// Between two looks at lives without a name.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Longest wait between two looks at a life that cannot be named yet.
const LOOK_MS_MAX: u64 = 1_000;

/// Between two writes of newer anchors.
const ANCHOR_MS: u64 = 10_000;

/// Lives whose logs are in one stream.
#[derive(Clone, Default)]
pub(super) struct Lives(Arc<Mutex<Vec<Arc<LogLife>>>>);

impl Lives {
    /// Adds one in place of an earlier one of the same replica.
    pub(super) fn add(&self, life: Arc<LogLife>) {
        self.forget(life.replica());
        self.list().push(life);
    }

    pub(super) fn forget(&self, replica: &Replica) {
        self.list().retain(|life| life.replica() != replica);
    }

    pub(super) fn of(&self, replica: &Replica) -> Option<Arc<LogLife>> {
        self.list().iter().find(|life| life.replica() == replica).cloned()
    }

    pub(super) fn set_away(&self, away: bool) {
        for life in self.list().iter().filter(|life| life.is_away() != away) {
            life.set_away(away);
        }
    }

    /// Whether batches of any wait for a name.
    pub(super) fn wait(&self) -> bool {
        self.list().iter().any(|life| life.waits())
    }

    fn all(&self) -> Vec<Arc<LogLife>> {
        self.list().clone()
    }

    fn list(&self) -> std::sync::MutexGuard<'_, Vec<Arc<LogLife>>> {
        // Plain list changes: nothing in them can panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Works on one connection.
pub(super) struct Desk<'a> {
    lives: &'a Lives,
    bridge: &'a str,
    stream: String,
    /// Time between two heartbeats.
    beat_ms: u64,
    context: Context,
    epochs: Store,
    status: Store,
    plan: Plan,
    looks: BTreeMap<ReplicaKey, Look>,
}

/// When a life is looked at again.
struct Look {
    at_ms: u64,
    wait_ms: u64,
    anchored_at_ms: u64,
}

/// Why the desk cannot work.
pub(super) struct DeskFailure {
    pub(super) state: BusState,
    pub(super) detail: String,
}

impl From<BucketFailure> for DeskFailure {
    fn from(failure: BucketFailure) -> DeskFailure {
        let state = match failure {
            BucketFailure::Differs { .. } => BusState::SettingsDiffer,
            BucketFailure::Refused { .. } => BusState::NoStream,
        };
        DeskFailure { state, detail: failure.to_string() }
    }
}

impl<'a> Desk<'a> {
    /// Opens the buckets.
    pub(super) async fn open(
        context: Context,
        config: &NatsConfig,
        (lives, bridge, stream): (&'a Lives, &'a str, &str),
    ) -> Result<Desk<'a>, DeskFailure> {
        Ok(Desk {
            lives,
            bridge,
            stream: stream.to_owned(),
            beat_ms: millis(config.streams.heartbeat.every),
            epochs: buckets::epochs(&context, &config.streams).await?,
            status: buckets::status(&context, &config.streams).await?,
            plan: Plan::new(&config.streams),
            context,
            looks: BTreeMap::new(),
        })
    }

    /// Until it is dropped.
    pub(super) async fn work(mut self) -> DeskFailure {
        let mut beat_at_ms = 0;
        let mut failures = 0_u32;
        loop {
            self.lives.set_away(false);
            let now_ms = Clock::steady_unix_ms();
            let beat = now_ms >= beat_at_ms;
            let done = self.round(now_ms, beat).await;
            if beat {
                beat_at_ms = now_ms.saturating_add(self.beat_ms);
            }
            match done {
                Ok(()) => failures = 0,
                Err(detail) if failures >= 10 => {
                    return DeskFailure { state: BusState::NoStream, detail };
                }
                Err(detail) => {
                    if failures == 0 {
                        warn!(stream = %self.stream, error = %detail, "bus registry");
                    }
                    failures += 1;
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn round(&mut self, now_ms: u64, beat: bool) -> Result<(), String> {
        let lives = self.lives.all();
        for life in &lives {
            self.look(life, now_ms).await?;
        }
        if !beat {
            return Ok(());
        }
        for life in &lives {
            let Some(status) = life.status(self.bridge, now_ms) else { continue };
            let key = format!("{}.{}", life.replica().key(), self.bridge);
            let text = codec::to_json_string(&status);
            self.status.put(key, text.into()).await.map_err(|error| reason(&error))?;
        }
        let here = serde_json::json!({
            "bridge": self.bridge,
            "version": env!("CARGO_PKG_VERSION"),
            "stream": self.stream,
            "replicas": lives.len(),
            "at": now_ms,
        });
        let key = format!("bridge.{}", self.bridge);
        self.status.put(key, here.to_string().into()).await.map_err(|error| reason(&error))?;
        Ok(())
    }

    async fn look(&mut self, life: &LogLife, now_ms: u64) -> Result<(), String> {
        let key = life.replica().key();
        let look = self.looks.entry(key.clone()).or_insert(Look {
            at_ms: 0,
            wait_ms: 0,
            anchored_at_ms: now_ms,
        });
        let name = life.name();
        let undecided = matches!(name, Name::Undecided);
        if undecided && look.wait_ms >= LOOK_MS_MAX {
            (look.at_ms, look.wait_ms) = (0, 0);
        }
        if now_ms < look.at_ms {
            return Ok(());
        }
        look.wait_ms = if matches!(name, Name::Named(_)) {
            LOOK_MS_MAX
        } else {
            (look.wait_ms * 2)
                .clamp(u64::try_from(LOOK_EVERY.as_millis()).unwrap_or(50), LOOK_MS_MAX)
        };
        look.at_ms = now_ms.saturating_add(look.wait_ms);
        let refresh = now_ms >= look.anchored_at_ms.saturating_add(ANCHOR_MS);
        if refresh {
            look.anchored_at_ms = now_ms;
        }
        self.compare(life, &key, refresh).await
    }

    async fn compare(&self, life: &LogLife, key: &ReplicaKey, refresh: bool) -> Result<(), String> {
        let entry = self.epochs.entry(key.as_str()).await.map_err(|error| reason(&error))?;
        let entry = entry.filter(|entry| entry.operation == Operation::Put);
        let revision = entry.as_ref().map_or(0, |entry| entry.revision);
        let record = entry.map(|entry| record::read(&entry.value)).transpose();
        let record = record.map_err(|fault| format!("registry of {key}: {fault}"))?;
        let newest = record.as_ref().map_or(Epoch(0), |record| record.life.epoch);
        let (local, own, name) = life.own(newest, Clock::steady_unix_ms());
        if own.digests.is_empty() {
            return Ok(());
        }
        if let (Name::Named(named), Some(record)) = (&name, &record)
            && record.life.epoch == named.log.epoch
        {
            if refresh && own.acked > record.published {
                let newer = lives::record(
                    Some(record),
                    &own,
                    record.life.epoch,
                    life.content(),
                    self.bridge,
                );
                self.write(key, revision, &newer).await?;
            }
            return Ok(());
        }
        let stream = self.context.get_stream(&self.stream).await.map_err(|error| reason(&error))?;
        let subject = subject::hint(key);
        let end = tail::read(&stream, &subject).await?;
        let mut question = Question {
            record: record.as_ref(),
            tail: end.tail.as_ref(),
            own: &own,
            content: life.content(),
            others: true,
            local,
            floor: life.floor(),
            now_ms: Clock::steady_unix_ms(),
        };
        let mut verdict = lives::decide(&question);
        if matches!(verdict, Verdict::Wait(Silence::OthersSpeak | Silence::SettingsDiffer)) {
            question.others = self.others_speak(key).await?;
            verdict = lives::decide(&question);
        }
        if matches!(verdict, Verdict::Mint(_)) {
            question.floor = question.floor.max(self.pointed(key).await?);
            verdict = lives::decide(&question);
        }
        let Some(Called { write, name: called }) = called(verdict, &name, &question, self.bridge)
        else {
            return Ok(());
        };
        if let Some(record) = write
            && !self.write(key, revision, &record).await?
        {
            // Somebody else was first: compared at the next look.
            return Ok(());
        }
        if called != name {
            say(key, local, &called);
        }
        life.call(local, called);
        Ok(())
    }

    /// The life that readers are sent to: its name was given, whoever has forgotten it since.
    async fn pointed(&self, key: &ReplicaKey) -> Result<Epoch, String> {
        // No bridge has stored a view here, or they are kept elsewhere.
        let Ok(views) = Snapshots::open(&self.context, &self.plan).await else {
            return Ok(Epoch(0));
        };
        match views.pointer(key).await {
            Ok(pointer) => Ok(pointer.map_or(Epoch(0), |(pointer, _)| pointer.epoch)),
            Err(StoreFault::Missing) => Ok(Epoch(0)),
            Err(StoreFault::Server(error)) => Err(error),
        }
    }

    /// Whether it is written; not if somebody else has written meanwhile.
    async fn write(
        &self,
        key: &ReplicaKey,
        revision: u64,
        record: &Record,
    ) -> Result<bool, String> {
        let bytes = record::write(record).into();
        if revision == 0 {
            return match self.epochs.create(key.as_str(), bytes).await {
                Ok(_) => Ok(true),
                Err(error) if error.kind() == CreateErrorKind::AlreadyExists => Ok(false),
                Err(error) => Err(reason(&error)),
            };
        }
        match self.epochs.update(key.as_str(), bytes, revision).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => Ok(false),
            Err(error) => Err(reason(&error)),
        }
    }

    /// Whether another bridge has said within the time to live that it follows this replica.
    async fn others_speak(&self, key: &ReplicaKey) -> Result<bool, String> {
        let keys = self.status.keys().await.map_err(|error| reason(&error))?;
        let keys: Vec<String> = keys.try_collect().await.map_err(|error| reason(&error))?;
        let prefix = format!("{key}.");
        Ok(keys.iter().filter_map(|key| key.strip_prefix(&prefix)).any(|it| it != self.bridge))
    }
}

fn say(key: &ReplicaKey, local: Epoch, name: &Name) {
    match name {
        Name::Named(Named { log, missing, .. }) => info!(
            replica = %key, %local, epoch = %log.epoch, next_seq = %log.next_seq,
            missing = missing.len(), "life named"
        ),
        Name::Asking(seq) => info!(replica = %key, %local, %seq, "life compared with the journal"),
        Name::Silent(silence @ (Silence::NotHeard | Silence::CatchingUp)) => {
            info!(replica = %key, %local, why = silence.as_str(), "life not named");
        }
        Name::Silent(silence) => {
            warn!(replica = %key, %local, why = silence.as_str(), "life not named");
        }
        Name::Undecided => (),
    }
}
