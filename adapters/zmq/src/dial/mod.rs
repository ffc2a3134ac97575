//! A publisher that connects to one reader, where the reader binds: it knows when that one listens
//! and when it is gone, so that exactly it can be told everything again.
//!
//! On bytes of its own and not the library's sockets, which tell neither:
//! `docs/adr/0023-a-publisher-that-connects.md`. What is needed of the protocol is a page (`wire`).
//!
//! Each connection has a number. A message is for one of them; what was queued for one that is over
//! is thrown away, so that a reader which came back never sees the tail of what it missed.
//!
//! Not here: CURVE, PLAIN, heartbeats of the protocol (whoever publishes says something now and
//! then). A reader whose host vanished without a word is noticed when nothing can be written for
//! [`WRITE_TIMEOUT`].

mod room;
#[cfg(test)]
mod tests;
mod wire;

use std::{
    collections::BTreeSet,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tracing::{debug, info, warn};

use crate::{
    outlet::Multipart,
    retry::{Retry, RetrySettings},
    subscribe::CONNECT_TIMEOUT,
};
use room::Load;
pub use room::Place;
use wire::Heard;
pub use wire::WireError;

/// Parcels that wait for the reader. Too small: a hop for each. Too large: memory for a reader that
/// is behind. Full: whoever publishes keeps it and tells everything again.
const PARCELS_MAX: usize = 1024;

/// Bytes of them beyond which nothing more is taken, so that they never pass it by more than one
/// parcel. The same trade.
const PARCELS_BYTES_MAX: usize = 32 * 1024 * 1024;

/// A connection that ended sooner counts as none: the pauses go on growing. Too small: a peer that
/// hangs up is called without a pause. Too large: a reader that restarts often is found late.
const LIFE_MIN: Duration = Duration::from_secs(2);

/// What waits to be said of the reader. Full: reading it waits.
const EVENTS_MAX: usize = 64;

/// A message that cannot be written for so long ends the connection.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the last messages may take when everything ends.
const FINISH_TIMEOUT: Duration = Duration::from_secs(1);

/// Messages for one connection, in order.
#[derive(Debug)]
struct Parcel {
    connection: u64,
    messages: Vec<Multipart>,
    /// It takes the place of all that waits before it.
    is_last: bool,
    /// Its bytes count until it is gone.
    _load: Load,
}

/// What is known of the reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DialEvent {
    /// It listens to topics with that prefix from now on, over that connection.
    Listens {
        /// Which.
        connection: u64,
        /// What every topic begins with.
        prefix: Bytes,
    },
    /// It listens to them no more.
    Leaves {
        /// What they begin with.
        prefix: Bytes,
    },
    /// It is gone.
    Lost,
}

/// Our end of the task. Dropping it ends the task.
#[derive(Debug)]
pub struct Dial {
    parcels: mpsc::Sender<Parcel>,
    load: Load,
    is_ending: Arc<AtomicBool>,
    /// What is known of the reader.
    pub events: mpsc::Receiver<DialEvent>,
    task: JoinHandle<()>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
enum DialError {
    #[error("cannot connect")]
    Connect(#[source] io::Error),
    #[error("the connection ended")]
    Ended(#[source] io::Error),
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("nothing came for {0:?}")]
    Silent(Duration),
    #[error("it listens to more than {0} topics")]
    TooManyTopics(usize),
}

impl Dial {
    /// Connects to `host:port`, again and again. A reader that listens to more topics than that is
    /// hung up on. Must be called inside a tokio runtime.
    pub fn spawn(authority: String, topics_max: usize) -> Dial {
        let (parcels, parcels_rx) = mpsc::channel(PARCELS_MAX);
        let (events_tx, events) = mpsc::channel(EVENTS_MAX);
        let is_ending = Arc::<AtomicBool>::default();
        let dialer = Dialer {
            authority,
            parcels: parcels_rx,
            is_ending: Arc::clone(&is_ending),
            events: events_tx,
            connection: 0,
            topics_max,
        };
        let task = tokio::spawn(dialer.run());
        Dial { parcels, load: Load::default(), is_ending, events, task }
    }

    /// Room for one parcel more, if there is some. To be had before the parcel is made: that may be
    /// much work for nothing.
    pub fn place(&self) -> Option<Place<'_>> {
        if self.load.waiting() >= PARCELS_BYTES_MAX {
            return None;
        }
        let permit = self.parcels.try_reserve().ok()?;
        Some(Place::new(permit, &self.load))
    }

    /// Whether all that it was given was written, or was for a connection that is over.
    pub fn is_idle(&self) -> bool {
        self.load.waiting() == 0
    }

    /// Says what is left and ends. Where `last` is something that takes the place of all that
    /// waits, so that a reader which is behind hears that at least.
    pub async fn finish(self, connection: u64, last: Vec<Multipart>) {
        let Dial { parcels, events, mut task, load, is_ending } = self;
        // Nobody hears what the reader says any more, and nobody may wait for that.
        drop(events);
        if !last.is_empty() {
            is_ending.store(true, Ordering::Release);
            let parcel = room::parcel(connection, last, &load, true);
            // It waits until the writer has thrown away what is before it.
            if timeout(FINISH_TIMEOUT, parcels.send(parcel)).await.is_err() {
                debug!("a reader takes nothing, and is not told that all is over");
            }
        }
        drop(parcels);
        if timeout(FINISH_TIMEOUT, &mut task).await.is_err() {
            task.abort();
        }
    }
}

/// The task's side.
struct Dialer {
    authority: String,
    parcels: mpsc::Receiver<Parcel>,
    is_ending: Arc<AtomicBool>,
    events: mpsc::Sender<DialEvent>,
    connection: u64,
    topics_max: usize,
}

impl Dialer {
    async fn run(mut self) {
        let mut retry = Retry::new(RetrySettings::default());
        let mut failures = 0_u32;
        loop {
            let opened = timeout(CONNECT_TIMEOUT, open(&self.authority)).await;
            match opened.unwrap_or(Err(DialError::Silent(CONNECT_TIMEOUT))) {
                Ok((read, write)) => {
                    self.connection += 1;
                    info!(reader = %self.authority, failures, "connected to a reader");
                    failures = 0;
                    let began = Instant::now();
                    let Err(error) = self.serve(read, write).await else { return };
                    if began.elapsed() >= LIFE_MIN {
                        retry = Retry::new(RetrySettings::default());
                    }
                    info!(reader = %self.authority, %error, "a reader is gone");
                    if self.events.send(DialEvent::Lost).await.is_err() {
                        return;
                    }
                }
                Err(error) => {
                    failures = failures.saturating_add(1);
                    // One line per outage.
                    if failures == 1 {
                        warn!(reader = %self.authority, %error, "no reader there, tried again");
                    } else {
                        debug!(reader = %self.authority, %error, failures, "no reader there");
                    }
                }
            }
            let wait = sleep(retry.next_wait());
            tokio::pin!(wait);
            // What comes meanwhile is for a connection that is over.
            loop {
                tokio::select! {
                    () = &mut wait => break,
                    parcel = self.parcels.recv() => if parcel.is_none() { return },
                }
            }
        }
    }

    /// Until the connection ends; `Ok` = everything was said and nobody has more.
    async fn serve(&mut self, read: OwnedReadHalf, write: OwnedWriteHalf) -> Result<(), DialError> {
        let listening = listen(read, self.events.clone(), (self.connection, self.topics_max));
        let writing = publish(write, &mut self.parcels, (self.connection, &self.is_ending));
        tokio::select! {
            error = listening => Err(error),
            done = writing => done,
        }
    }
}

async fn open(authority: &str) -> Result<(OwnedReadHalf, OwnedWriteHalf), DialError> {
    let stream = TcpStream::connect(authority).await.map_err(DialError::Connect)?;
    stream.set_nodelay(true).map_err(DialError::Connect)?;
    let (mut read, mut write) = stream.into_split();
    write.write_all(&wire::greeting()).await.map_err(DialError::Ended)?;
    let mut greeting = [0; wire::GREETING_BYTES];
    read.read_exact(&mut greeting).await.map_err(DialError::Ended)?;
    wire::check_greeting(&greeting)?;
    write.write_all(&wire::ready()).await.map_err(DialError::Ended)?;
    match heard(&mut read).await? {
        Heard::Ready(socket) => wire::subscribes(&socket)?,
        Heard::Listens(_) | Heard::Leaves(_) | Heard::Other => {
            return Err(WireError::NotZmtp.into());
        }
    }
    Ok((read, write))
}

async fn heard(read: &mut OwnedReadHalf) -> Result<Heard, DialError> {
    let flags = read.read_u8().await.map_err(DialError::Ended)?;
    let mut header = [0; 8];
    let header = header.get_mut(..wire::length_bytes(flags)).unwrap_or_default();
    read.read_exact(header).await.map_err(DialError::Ended)?;
    let mut body = vec![0; wire::body_length(header)?];
    read.read_exact(&mut body).await.map_err(DialError::Ended)?;
    Ok(wire::hear(flags, &body))
}

/// Says what the reader listens to, until it is gone.
async fn listen(
    mut read: OwnedReadHalf,
    events: mpsc::Sender<DialEvent>,
    (connection, topics_max): (u64, usize),
) -> DialError {
    let mut topics = BTreeSet::new();
    loop {
        let event = match heard(&mut read).await {
            Ok(Heard::Listens(prefix)) => DialEvent::Listens { connection, prefix },
            Ok(Heard::Leaves(prefix)) => DialEvent::Leaves { prefix },
            Ok(Heard::Ready(_) | Heard::Other) => continue,
            Err(error) => return error,
        };
        match &event {
            DialEvent::Listens { prefix, .. } => {
                topics.insert(prefix.clone());
            }
            DialEvent::Leaves { prefix } => {
                topics.remove(prefix);
            }
            DialEvent::Lost => (),
        }
        if topics.len() > topics_max {
            return DialError::TooManyTopics(topics_max);
        }
        if events.send(event).await.is_err() {
            // Nobody wants to know: what is left is still said.
            std::future::pending::<()>().await;
        }
    }
}

async fn publish(
    mut write: OwnedWriteHalf,
    parcels: &mut mpsc::Receiver<Parcel>,
    (connection, is_ending): (u64, &AtomicBool),
) -> Result<(), DialError> {
    while let Some(parcel) = parcels.recv().await {
        if parcel.connection != connection {
            continue;
        }
        for message in &parcel.messages {
            if is_ending.load(Ordering::Acquire) && !parcel.is_last {
                break;
            }
            let bytes = wire::message(message);
            let written = timeout(WRITE_TIMEOUT, write.write_all(&bytes)).await;
            written.map_err(|_| DialError::Silent(WRITE_TIMEOUT))?.map_err(DialError::Ended)?;
        }
    }
    // The end of the stream goes out behind the last byte.
    write.shutdown().await.map_err(DialError::Ended)
}
