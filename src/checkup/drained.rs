//! An engine that publishes nothing: its events are taken, as the pipeline takes them.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::future::{join_all, pending};
use kvbridge_adapters_api::{Counters, Delivery, Loss, Source, SourceEvent};
use kvbridge_schemas::Epoch;
use tokio::time::sleep;

use super::{
    probe::{self, Probe},
    server::Server,
};
use crate::{
    clock::Clock,
    config::SourceConfig,
    doctor::{DrainCounts, DrainSight, DrainWatch, HELD_MS, StreamSight},
    pipeline::registry::{self, Drains, Opened},
};

/// Between two looks at how the request under way stands.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long the last answer is waited for once nobody listens: by then it counts as held back.
const LAST_ANSWER: Duration = Duration::from_millis(HELD_MS + 1_000);

/// What came of all ranks in so much time, and how.
pub(super) async fn take(
    server: &Server,
    listen: Duration,
    probe: Option<&mut Probe>,
) -> (Vec<StreamSight>, DrainSight) {
    let drains = Drains::default();
    let opened = server.sources.iter().map(|source| {
        let opened = registry::open(source, &server.config, (&drains, None));
        opened.map(|opened| (source, opened)).map_err(|error| error.to_string())
    });
    let mut opened: Vec<_> = opened.collect();
    // All ranks are read by one task, which counts the same for each of them.
    let counters = opened.iter().find_map(|it| it.as_ref().ok().map(counters));
    let counters = counters.unwrap_or_default();
    let (served, clock) = (AtomicU64::new(0), Clock::start());
    let mut watch = DrainWatch::default();
    let readers = join_all(opened.iter_mut().map(async |opened| match opened {
        Ok((source, opened)) => read(source, opened.source.as_mut(), listen).await,
        Err(why) => {
            let mut heard = StreamSight::default();
            heard.fault(why.clone());
            heard
        }
    }));
    let probes = async {
        probe::during(listen, probe, &served).await;
        pending::<Infallible>().await
    };
    let heard = tokio::select! {
        heard = readers => heard,
        never = probes => match never {},
        never = follow(&mut watch, (clock, &counters), &served) => match never {},
    };
    watch.look(clock.now(), DrainCounts::of(&counters));
    (heard, watch.sight(served.load(Ordering::Relaxed)))
}

fn counters((_, opened): &(&SourceConfig, Opened)) -> Arc<Counters> {
    Arc::clone(&opened.counters)
}

/// Looks again and again, and counts from the first request on that is known to be a customer's.
async fn follow(
    watch: &mut DrainWatch,
    (clock, counters): (Clock, &Counters),
    served: &AtomicU64,
) -> Infallible {
    let mut has_begun = false;
    loop {
        watch.look(clock.now(), DrainCounts::of(counters));
        if !has_begun && served.load(Ordering::Relaxed) > 0 {
            has_begun = true;
            watch.begin();
        }
        sleep(LOOK_EVERY).await;
    }
}

/// What one rank is told, until nobody listens and the answer under way is over.
async fn read(config: &SourceConfig, source: &mut dyn Source, listen: Duration) -> StreamSight {
    let mut heard = StreamSight::default();
    let mut hashes = registry::hash_watch(config);
    source.begin(None);
    let (end, last) = (sleep(listen), sleep(listen + LAST_ANSWER));
    tokio::pin!(end, last);
    let mut is_over = false;
    loop {
        let delivery = tokio::select! {
            () = &mut end, if !is_over => {
                is_over = true;
                source.wind_up();
                continue;
            }
            () = &mut last => break,
            delivery = source.next() => delivery,
        };
        match delivery {
            Some(Delivery::Event(SourceEvent::Attached)) => heard.is_attached = true,
            Some(Delivery::Event(SourceEvent::Live(batch))) => {
                heard.seq(batch.seq.0);
                heard.batch(&batch);
                if batch.loss != Loss::Nothing {
                    heard.fault("an event, or some of its blocks");
                }
                if let Some(hashes) = &mut hashes {
                    hashes.look(Epoch(1), &batch);
                }
            }
            Some(_) => (),
            None => break,
        }
    }
    heard.hashes = super::hashes(hashes.as_ref());
    heard
}
