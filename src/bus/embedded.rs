//! The bus inside this process: readers of `/v1/events` and whoever embeds the library.

use async_trait::async_trait;
use kvbridge_schemas::ReplicaKey;
use tokio::sync::broadcast;

use super::{Bus, BusState, Full, Receipt, SharedEnvelope, Standing, Stored, Writer};
use crate::{pipeline::FleetEvent, shared_log::Outgoing};

/// A broadcast. A reader that is too slow is told how many it missed; writers never wait for one.
#[derive(Clone)]
pub struct Embedded {
    events: broadcast::Sender<FleetEvent>,
}

impl Embedded {
    /// A bus over the fleet's events.
    pub fn new(events: broadcast::Sender<FleetEvent>) -> Embedded {
        Embedded { events }
    }

    /// Tells readers what was applied.
    pub fn applied(&self, envelope: &SharedEnvelope) {
        // Without a reader nothing is missed.
        drop(self.events.send(FleetEvent::Applied(SharedEnvelope::clone(envelope))));
    }
}

impl Bus for Embedded {
    fn kind(&self) -> &'static str {
        "embedded"
    }

    fn standing(&self) -> Standing {
        Standing { state: BusState::Ready, detail: String::new() }
    }

    fn writer(&self, _key: &ReplicaKey) -> Option<Box<dyn Writer>> {
        Some(Box::new(self.clone()))
    }
}

#[async_trait]
impl Writer for Embedded {
    fn wanted(&self) -> bool {
        self.events.receiver_count() > 0
    }

    fn publish(&mut self, message: &Outgoing) -> Result<Receipt, Full> {
        self.applied(&message.envelope);
        let (stored, receipt) = Receipt::new();
        stored.send(Stored { bus_seq: None, duplicate: false }).ok();
        Ok(receipt)
    }

    async fn room(&mut self) {}
}
