//! What reads one rank of an engine that is drained.

use std::sync::Arc;

use async_trait::async_trait;
use kvbridge_adapters_api::{Capabilities, Delivery, RequestRefused, Source, SourceRequest};
use kvbridge_schemas::{Seq, SnapshotRecord};
use tokio::sync::mpsc;

use crate::{Poller, capabilities};

/// One rank of an engine as a source.
#[derive(Debug)]
pub struct RankSource {
    pub(crate) events: mpsc::Receiver<Delivery>,
    pub(crate) at: Option<usize>,
    pub(crate) poller: Arc<Poller>,
}

#[async_trait]
impl Source for RankSource {
    fn capabilities(&self) -> Capabilities {
        capabilities()
    }

    fn begin(&mut self, kept: Option<(Seq, Vec<SnapshotRecord>)>) {
        if let Some(at) = self.at {
            self.poller.begin(at, kept);
        }
    }

    async fn next(&mut self) -> Option<Delivery> {
        self.events.recv().await
    }

    fn request(&mut self, request: SourceRequest) -> Result<(), RequestRefused> {
        match request {
            SourceRequest::Replay { .. } | SourceRequest::Snapshot { .. } => {
                Err(RequestRefused::Unsupported)
            }
            SourceRequest::Cancel => Ok(()),
        }
    }

    fn wind_up(&mut self) -> bool {
        self.poller.wind_up();
        true
    }
}
