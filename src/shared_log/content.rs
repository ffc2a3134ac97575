//! A batch as an envelope's content, and back: what the bridge could not read stays lost for every
//! reader, at the very place where it was lost.
//!
//! A reader cannot learn that from what bridges say of themselves: their words come earlier or
//! later than the data, and another bridge's word may still be better.

use kvbridge_adapters_api::{Batch, Loss};
use kvbridge_schemas::{Envelope, Event};

/// The wire form that batches of a log have.
pub const FORMAT: &str = "kvbridge.envelope";

/// In a batch of which a store could not be read.
pub(super) const LOST_STORES: &str = "lost_stores";

/// In a batch of which something that may remove could not be read. To a reader it is an event type
/// like any that it does not know.
pub(super) const LOST: &str = "lost";

/// The events of an envelope, with a word for what is not among them.
pub fn events_of(events: Vec<Event>, loss: Loss) -> Vec<Event> {
    let word = match loss {
        Loss::Nothing => None,
        Loss::Stores => Some(LOST_STORES),
        Loss::MayRemove | Loss::Body => Some(LOST),
    };
    let mut events = events;
    events.extend(word.map(|word| Event::Unknown(word.to_owned())));
    events
}

/// A message of a log as the batch it carries.
pub fn batch_of(envelope: Envelope, bytes: u32) -> Batch {
    Batch {
        epoch: Some(envelope.epoch),
        incarnation: envelope.incarnation,
        seq: envelope.seq,
        span: envelope.span,
        digest: envelope.digest,
        ts: envelope.ts,
        format: FORMAT,
        hash: envelope.hash,
        rank: None,
        loss: loss_of(&envelope.events),
        events: envelope.events,
        bytes,
    }
}

/// An event of a later minor version may have removed blocks.
fn loss_of(events: &[Event]) -> Loss {
    let of = |event: &Event| match event {
        Event::Unknown(word) if word == LOST_STORES => Loss::Stores,
        Event::Unknown(_) => Loss::MayRemove,
        Event::Stored(_)
        | Event::Removed(_)
        | Event::Cleared(_)
        | Event::Reset(_)
        | Event::Moved(_)
        | Event::Trust(_) => Loss::Nothing,
    };
    let losses = events.iter().map(of);
    losses.fold(Loss::Nothing, |worst, loss| match (worst, loss) {
        (Loss::MayRemove, _) | (_, Loss::MayRemove) => Loss::MayRemove,
        (Loss::Stores, _) | (_, Loss::Stores) => Loss::Stores,
        _ => Loss::Nothing,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_bridge_could_not_read_is_lost_for_its_readers() {
        let read = |loss| loss_of(&events_of(vec![Event::Unknown(LOST_STORES.into())], loss));
        assert_eq!(loss_of(&events_of(Vec::new(), Loss::Nothing)), Loss::Nothing);
        assert_eq!(loss_of(&events_of(Vec::new(), Loss::Stores)), Loss::Stores);
        assert_eq!(loss_of(&events_of(Vec::new(), Loss::MayRemove)), Loss::MayRemove);
        assert_eq!((read(Loss::Nothing), read(Loss::MayRemove)), (Loss::Stores, Loss::MayRemove));
        assert_eq!(loss_of(&[Event::Unknown("later".into())]), Loss::MayRemove);
    }
}
