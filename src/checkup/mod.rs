//! SHELL. Sees for `doctor`: asks an engine what it is, listens to all its ranks, asks their
//! journals; asks a running kvbridge how it stands. Judges nothing.
//!
//! It reads with what the pipeline reads with, so that what it cannot read the pipeline cannot
//! either. It changes nothing, but for a probe and a drain that were asked for.

mod bridge;
mod drained;
mod probe;
mod published;
mod server;

use std::{sync::atomic::AtomicU64, time::Duration};

pub(crate) use bridge::{BridgeOrder, bridge};

use self::{probe::Probe, server::Server};
use crate::{
    clock::millis,
    config::{Problems, SourceFile},
    doctor::{
        DrainLook, EngineSight, HashesSight, ProbeSight, RankSight, ReplaySight, StreamSight,
    },
    lookout::{Asker, Page},
    pipeline::{HashStanding, HashWatch, registry},
};

/// Where progress is told.
pub(crate) type Say<'a> = &'a mut (dyn FnMut(&str) + Send);

/// What is to be looked at, and how.
pub(crate) struct Order {
    /// The engine, as the configuration would name it.
    pub(crate) source: SourceFile,
    /// How long to listen.
    pub(crate) listen: Duration,
    /// Send tiny completions meanwhile.
    pub(crate) probe: bool,
    /// Take the events of an engine that publishes none.
    pub(crate) drain: bool,
}

/// Everything that can be seen of an engine.
pub(crate) async fn engine(order: &Order, say: Say<'_>) -> Result<EngineSight, Problems> {
    let asker = Asker::new();
    let server = server::ask(&asker, &order.source, say).await?;
    let is_published = server.sources.iter().any(|source| source.polled.is_none());
    let knobs = server.engine.as_ref().and_then(|it| registry::knobs(it, !is_published));
    let mut sight = EngineSight {
        server: server.sight.clone(),
        knobs,
        block_size: server.block_size,
        algorithm: server.algorithm.clone(),
        probe: ProbeSight::NotAsked,
        requests: None,
        listened_ms: millis(order.listen),
        ranks: Vec::new(),
        drain: DrainLook::Published,
    };
    if server.sources.is_empty() {
        return Ok(sight);
    }
    let ranks = u32::try_from(server.sources.len()).unwrap_or(u32::MAX);
    let mut probe = None;
    if order.probe {
        match &server.url {
            Some(url) => match Probe::new(url, server.model.as_deref(), ranks) {
                Ok(ready) => probe = Some(ready),
                Err(why) => sight.probe = ProbeSight::Failed(why),
            },
            None => {
                let why = "the engine's server is not known: give its URL, and --endpoint";
                sight.probe = ProbeSight::Failed(why.to_owned());
            }
        }
    }
    if server.sources.iter().any(|source| source.polled.is_some()) {
        drained(order, &server, probe.as_mut(), (&mut sight, say)).await;
    } else {
        published(order, &server, (&asker, probe.as_mut()), (&mut sight, say)).await;
    }
    if let Some(probe) = probe {
        sight.probe = probe.sight();
    }
    Ok(sight)
}

/// Listens to all ranks at once, then asks their journals.
async fn published(
    order: &Order,
    server: &Server,
    (asker, probe): (&Asker, Option<&mut Probe>),
    (sight, say): (&mut EngineSight, Say<'_>),
) {
    let before = figures(asker, server).await;
    sight.block_size = sight.block_size.or(before.block_size);
    let count = server.sources.len();
    say(&format!("connecting to {count} event endpoints"));
    let attached = server.sources.iter().map(published::attach);
    let attached = futures::future::join_all(attached).await;
    say(&format!("listening to {count} ranks for {:?}", order.listen));
    let heard =
        server.sources.iter().zip(attached).map(async |(source, attached)| match attached {
            Some(subscriber) => published::hear(source, subscriber, order.listen).await,
            None => StreamSight::default(),
        });
    let served = AtomicU64::new(0);
    let (heard, ()) =
        tokio::join!(futures::future::join_all(heard), probe::during(order.listen, probe, &served));
    let after = figures(asker, server).await;
    sight.requests =
        after.requests.zip(before.requests).map(|(now, then)| now.saturating_sub(then));
    for (source, stream) in server.sources.iter().zip(heard) {
        let rank = source.replica.rank;
        let replay = if stream.is_attached {
            say(&format!("asking the journal of rank {rank}"));
            published::journal(source).await
        } else {
            ReplaySight::NotAsked
        };
        let endpoint = source.endpoint.to_string();
        sight.ranks.push(RankSight { rank, endpoint, stream, replay });
    }
}

/// Takes the events of all ranks, if that was asked for.
async fn drained(
    order: &Order,
    server: &Server,
    probe: Option<&mut Probe>,
    (sight, say): (&mut EngineSight, Say<'_>),
) {
    if !order.drain {
        sight.drain = DrainLook::NotTaken;
        return;
    }
    say(&format!("taking the engine's events for {:?}", order.listen));
    let (heard, drain) = drained::take(server, order.listen, probe).await;
    sight.drain = DrainLook::Taken(drain);
    for (source, stream) in server.sources.iter().zip(heard) {
        let (rank, endpoint) = (source.replica.rank, source.endpoint.to_string());
        let replay = ReplaySight::NoJournal;
        sight.ranks.push(RankSight { rank, endpoint, stream, replay });
    }
}

/// What the engine's metrics say, all ranks together.
#[derive(Default)]
struct Figures {
    requests: Option<u64>,
    block_size: Option<u32>,
}

async fn figures(asker: &Asker, server: &Server) -> Figures {
    let mut figures = Figures::default();
    let (Some(url), Some(engine)) = (&server.url, &server.engine) else { return figures };
    let Ok(Page::Body(text)) = asker.page(url, "/metrics").await else { return figures };
    for source in &server.sources {
        let told = registry::read_metrics(engine, &text, source.replica.rank);
        figures.block_size = figures.block_size.or(told.block_size);
        if let Some(count) = told.request_count {
            figures.requests = Some(figures.requests.unwrap_or(0).saturating_add(count));
        }
    }
    figures
}

/// What came of computing hashes again.
fn hashes(watch: Option<&HashWatch>) -> Option<HashesSight> {
    let HashStanding { scheme, equal, wrong, .. } = watch?.standing()?;
    Some(HashesSight { scheme, equal, wrong })
}
