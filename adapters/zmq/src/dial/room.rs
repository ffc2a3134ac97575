//! What waits for a reader, in bytes.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::mpsc;

use super::Parcel;
use crate::outlet::Multipart;

/// Bytes that wait; of all parcels, or of one, which then counts until it is dropped.
#[derive(Debug, Default)]
pub(super) struct Load {
    waiting: Arc<AtomicUsize>,
    own: usize,
}

impl Load {
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    fn of(&self, messages: &[Multipart]) -> Load {
        // Never 0: what has not been written is there.
        let own = messages.iter().flatten().map(|frame| frame.len()).sum::<usize>() + 1;
        self.waiting.fetch_add(own, Ordering::AcqRel);
        Load { waiting: Arc::clone(&self.waiting), own }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.waiting.fetch_sub(self.own, Ordering::AcqRel);
    }
}

pub(super) fn parcel(
    connection: u64,
    messages: Vec<Multipart>,
    all: &Load,
    is_last: bool,
) -> Parcel {
    let load = all.of(&messages);
    Parcel { connection, messages, is_last, _load: load }
}

/// Room for one parcel.
#[derive(Debug)]
pub struct Place<'a> {
    permit: mpsc::Permit<'a, Parcel>,
    load: &'a Load,
}

impl<'a> Place<'a> {
    pub(super) fn new(permit: mpsc::Permit<'a, Parcel>, load: &'a Load) -> Place<'a> {
        Place { permit, load }
    }

    /// Messages for one connection, in order.
    pub fn fill(self, connection: u64, messages: Vec<Multipart>) {
        let parcel = parcel(connection, messages, self.load, false);
        self.permit.send(parcel);
    }
}
