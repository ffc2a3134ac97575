//! SHELL. Resolves names and asks engines where their events are. What follows is decided in
//! `discovery`.
//!
//! One task for all entries. It opens no source: what it sees is one value that whoever runs the
//! pipeline compares with what is open.

mod ask;
mod resolve;

use std::{collections::BTreeMap, sync::Arc};

use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use metrics::{Gauge, gauge};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    clock::{Clock, millis},
    config::{Config, DiscoveryConfig, EngineConfig, FoundEngine, Told, limits},
    discovery::{Address, Answer, Refusal, Roster, Settings, Standing, State, Task},
    telemetry::{label, name},
};

pub(crate) use self::ask::{Asker, Page};
use self::resolve::Names;

/// What is known of all engines that are looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// How each stands.
    pub engines: Vec<Standing<Told>>,
    /// Entries whose name leads to no engine, and why.
    pub refusals: BTreeMap<String, Refusal>,
    /// The entries as they were when all this was asked.
    pub asked: BTreeMap<String, Arc<EngineConfig>>,
}

/// The task that looks.
pub struct Lookout {
    clock: Clock,
    roster: Roster<Told>,
    wanted: watch::Receiver<Arc<[EngineConfig]>>,
    engines: BTreeMap<String, Arc<EngineConfig>>,
    asker: Arc<Asker>,
    names: Arc<Names>,
    seen: watch::Sender<Arc<Seen>>,
    gauges: Vec<(State, Gauge)>,
}

/// The lookout, from outside its task.
pub struct Watched {
    /// Says which entries are wanted.
    pub wanted: watch::Sender<Arc<[EngineConfig]>>,
    /// What was seen last.
    pub seen: watch::Receiver<Arc<Seen>>,
}

/// What came of a task.
enum Done {
    Asked(u64, String, Answer<Told>),
    Resolved(u64, String, Result<Vec<Address>, Refusal>),
}

impl Seen {
    /// The sources of all engines that told where their events are, for the entries of that
    /// configuration.
    pub fn found(&self, config: &Config) -> Vec<FoundEngine> {
        let of_engine = |standing: &Standing<Told>| {
            let Standing { entry, address, told, .. } = standing;
            let engine = config.engines.iter().find(|engine| engine.name == *entry)?;
            let asked = self.asked.get(entry)?;
            let told = told.as_ref().filter(|_| asked.is_asked_as(engine))?;
            let sources = engine.sources(address, told).ok()?;
            Some(FoundEngine { entry: entry.clone(), address: address.clone(), sources })
        };
        self.engines.iter().filter_map(of_engine).collect()
    }
}

impl Lookout {
    /// A lookout for these entries.
    pub fn new(
        config: &DiscoveryConfig,
        engines: &[EngineConfig],
        clock: Clock,
    ) -> (Lookout, Watched) {
        let settings = Settings {
            refresh_ms: millis(config.refresh),
            resolve_ms: millis(config.resolve),
            grace_ms: millis(config.grace),
            retry_ms: millis(limits::DISCOVERY_RETRY.min(config.refresh)),
            engines_max: limits::DISCOVERY_ENGINES_MAX,
            open_max: limits::DISCOVERY_OPEN_MAX,
        };
        let (wanted_tx, mut wanted) = watch::channel(Arc::from(engines));
        wanted.mark_changed();
        let (seen, seen_by_others) = watch::channel(Arc::default());
        let gauge_of = |state: State| {
            let gauge = gauge!(name::DISCOVERY_ENGINES, label::STATE => state.as_str());
            gauge.set(0.0);
            (state, gauge)
        };
        let lookout = Lookout {
            clock,
            roster: Roster::new(settings),
            wanted,
            engines: BTreeMap::new(),
            asker: Arc::new(Asker::new()),
            names: Arc::new(Names::new(config.nameserver)),
            seen,
            gauges: State::ALL.map(gauge_of).into(),
        };
        (lookout, Watched { wanted: wanted_tx, seen: seen_by_others })
    }

    /// Looks until stopped.
    pub async fn run(mut self, stop: CancellationToken) {
        // No more than the roster lets be open at a time.
        let mut open = FuturesUnordered::new();
        loop {
            for task in self.roster.due(self.clock.now()) {
                open.extend(self.perform(task));
            }
            tokio::select! {
                () = stop.cancelled() => return,
                Ok(()) = self.wanted.changed() => self.keep(),
                Some(done) = open.next() => self.take(done),
                () = self.clock.sleep_until(self.roster.next_deadline()) => continue,
            }
            self.show();
        }
    }

    fn keep(&mut self) {
        let wanted = self.wanted.borrow_and_update().clone();
        let now = self.clock.now();
        let place = |engine: &EngineConfig| (engine.name.clone(), engine.place.clone());
        // What is asked depends on more than the place: an entry that is asked otherwise is a new
        // one.
        let same = |engine: &&EngineConfig| {
            self.engines.get(&engine.name).is_none_or(|known| known.is_asked_as(engine))
        };
        self.roster.keep(now, wanted.iter().filter(same).map(place));
        self.roster.keep(now, wanted.iter().map(place));
        let engines = wanted.iter().map(|it| (it.name.clone(), Arc::new(it.clone())));
        self.engines = engines.collect();
    }

    fn perform(&self, task: Task) -> Option<BoxFuture<'static, Done>> {
        match task {
            Task::Ask { number, entry, address } => {
                let engine = Arc::clone(self.engines.get(&entry)?);
                let asker = Arc::clone(&self.asker);
                Some(Box::pin(async move {
                    let answer = asker.ask(&engine, &address).await;
                    Done::Asked(number, entry, answer)
                }))
            }
            Task::Resolve { number, entry, name, port } => {
                let names = Arc::clone(&self.names);
                Some(Box::pin(async move {
                    let found = names.resolve(&name, port).await;
                    Done::Resolved(number, entry, found)
                }))
            }
        }
    }

    fn take(&mut self, done: Done) {
        let now = self.clock.now();
        match done {
            Done::Asked(number, entry, answer) => {
                if let Answer::Failed(refusal) | Answer::Nothing(refusal) = &answer {
                    failed(refusal);
                }
                self.roster.answered(now, (number, &entry), answer);
            }
            Done::Resolved(number, entry, found) => {
                if let Err(refusal) = &found {
                    failed(refusal);
                }
                self.roster.resolved(now, (number, &entry), found);
            }
        }
    }

    /// Shows what is known, with a line in the log for each engine that stands otherwise.
    fn show(&self) {
        let seen = Seen {
            engines: self.roster.standings(),
            refusals: self.roster.refusals(),
            asked: self.engines.clone(),
        };
        let before = self.seen.borrow().clone();
        if *before == seen {
            return;
        }
        for (state, gauge) in &self.gauges {
            let count = seen.engines.iter().filter(|engine| engine.state == *state).count();
            gauge.set(f64::from(u32::try_from(count).unwrap_or(u32::MAX)));
        }
        for engine in seen.engines.iter().filter(|engine| !before.engines.contains(engine)) {
            tell(engine);
        }
        for (entry, refusal) in &seen.refusals {
            if before.refusals.get(entry) != Some(refusal) {
                let Refusal { reason, detail } = refusal;
                warn!(%entry, reason, detail, "the name leads to no engine");
            }
        }
        self.seen.send_replace(Arc::new(seen));
    }
}

fn tell(engine: &Standing<Told>) {
    let (entry, address) = (&engine.entry, engine.address.authority());
    let state = engine.state.as_str();
    match (&engine.refusal, &engine.told) {
        (Some(Refusal { reason, detail }), _) => {
            warn!(%entry, %address, state, reason, detail, "engine does not tell its sources");
        }
        (None, Some(told)) => {
            info!(%entry, %address, state, engine = told.engine.as_str(), "engine found");
        }
        (None, None) => (),
    }
}

fn failed(refusal: &Refusal) {
    metrics::counter!(name::DISCOVERY_FAILED, label::REASON => refusal.reason).increment(1);
}
