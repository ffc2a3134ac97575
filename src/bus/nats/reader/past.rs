//! The log of one replica as a second journal, for the bridge that writes it.

use std::sync::Arc;

use async_trait::async_trait;
use kvbridge_adapters_api::Batch;
use kvbridge_schemas::{Replica, Seq, Trust, subject};
use tokio::sync::mpsc;
use tracing::debug;

use super::{
    Log, Reader,
    follow::created,
    replay::{Broken, Wanted, replay},
    source::Part,
};
use crate::{
    bus::Past, config::limits::BUS_ANSWER_PARTS, shared_log::Known, telemetry::BusReadMetrics,
};

/// What is on a stream of one replica.
pub(in crate::bus::nats) struct LogPast {
    reader: Arc<Reader>,
    log: Log,
    replica: Replica,
    metrics: BusReadMetrics,
}

impl LogPast {
    pub(in crate::bus::nats) fn new(reader: Arc<Reader>, replica: &Replica) -> LogPast {
        LogPast {
            log: Log::new(&reader.plan.name_of(replica)),
            reader,
            replica: replica.clone(),
            metrics: BusReadMetrics::register(&replica.key()),
        }
    }

    async fn ask(&self, start_seq: Seq, parts: mpsc::Sender<Part>) -> Result<(), Broken> {
        let session = self.reader.sessions.borrow().clone().ok_or(Broken::Away)?;
        let stream = session.context.get_stream_no_info(&self.log.name).await;
        let stream = stream.map_err(|error| Broken::server(&error))?;
        let info = stream.get_info().await.map_err(|error| Broken::server(&error))?;
        // Nothing is remembered between two looks, so any stream of this name will do.
        self.log.set_created(created(&info));
        let wanted = Wanted {
            replica: self.replica.clone(),
            subject: subject::hint(&self.replica.key()),
            known: Known::nothing(start_seq),
            metrics: self.metrics.clone(),
        };
        replay(&self.reader, &self.log, wanted, parts).await
    }
}

#[async_trait]
impl Past for LogPast {
    async fn read(&self, start_seq: Seq, batches: &mpsc::Sender<(Batch, Trust)>) {
        let (tx, mut rx) = mpsc::channel(BUS_ANSWER_PARTS);
        let forward = async {
            'answer: while let Some(part) = rx.recv().await {
                let Part::Run(parts) = part else { continue };
                for part in parts {
                    if let Part::Batch(batch, _, trust) = part
                        && batches.send((batch, trust)).await.is_err()
                    {
                        break 'answer;
                    }
                }
            }
            rx.close();
        };
        let (asked, ()) = tokio::join!(self.ask(start_seq, tx), forward);
        if let Err(error) = asked {
            debug!(replica = %self.replica.key(), %error, "the log was not read");
        }
    }
}
