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

mod wire;

use std::{io, time::Duration};

use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tracing::{debug, info, warn};

use crate::{
    outlet::Multipart,
    retry::{Retry, RetrySettings},
    subscribe::CONNECT_TIMEOUT,
};
use wire::Heard;
pub use wire::WireError;

/// Parcels that wait for the reader. Too small: a hop for each. Too large: memory for a reader that
/// is behind. Full: whoever publishes keeps it and tells everything again.
const PARCELS_MAX: usize = 1024;

/// What waits to be said of the reader. Full: reading it waits.
const EVENTS_MAX: usize = 64;

/// A message that cannot be written for so long ends the connection.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the last messages may take when everything ends.
const FINISH_TIMEOUT: Duration = Duration::from_secs(1);

/// Messages for one connection, in order.
#[derive(Debug)]
pub struct Parcel {
    /// The connection they are for.
    pub connection: u64,
    /// The messages.
    pub messages: Vec<Multipart>,
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
    /// What is to be told.
    pub parcels: mpsc::Sender<Parcel>,
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
}

impl Dial {
    /// Connects to `host:port`, again and again. Must be called inside a tokio runtime.
    pub fn spawn(authority: String) -> Dial {
        let (parcels, parcels_rx) = mpsc::channel(PARCELS_MAX);
        let (events_tx, events) = mpsc::channel(EVENTS_MAX);
        let dialer = Dialer { authority, parcels: parcels_rx, events: events_tx, connection: 0 };
        Dial { parcels, events, task: tokio::spawn(dialer.run()) }
    }

    /// Says what is left and ends.
    pub async fn finish(self) {
        let Dial { parcels, events, mut task } = self;
        drop(parcels);
        // Nobody hears what the reader says any more, and nobody may wait for that.
        drop(events);
        if timeout(FINISH_TIMEOUT, &mut task).await.is_err() {
            task.abort();
        }
    }
}

/// The task's side.
struct Dialer {
    authority: String,
    parcels: mpsc::Receiver<Parcel>,
    events: mpsc::Sender<DialEvent>,
    connection: u64,
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
                    (failures, retry) = (0, Retry::new(RetrySettings::default()));
                    let Err(error) = self.serve(read, write).await else { return };
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
        let listening = listen(read, self.events.clone(), self.connection);
        let writing = publish(write, &mut self.parcels, self.connection);
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
    connection: u64,
) -> DialError {
    loop {
        let event = match heard(&mut read).await {
            Ok(Heard::Listens(prefix)) => DialEvent::Listens { connection, prefix },
            Ok(Heard::Leaves(prefix)) => DialEvent::Leaves { prefix },
            Ok(Heard::Ready(_) | Heard::Other) => continue,
            Err(error) => return error,
        };
        if events.send(event).await.is_err() {
            // Nobody wants to know: what is left is still said.
            std::future::pending::<()>().await;
        }
    }
}

async fn publish(
    mut write: OwnedWriteHalf,
    parcels: &mut mpsc::Receiver<Parcel>,
    connection: u64,
) -> Result<(), DialError> {
    while let Some(parcel) = parcels.recv().await {
        if parcel.connection != connection {
            continue;
        }
        for message in &parcel.messages {
            let bytes = wire::message(message);
            let written = timeout(WRITE_TIMEOUT, write.write_all(&bytes)).await;
            written.map_err(|_| DialError::Silent(WRITE_TIMEOUT))?.map_err(DialError::Ended)?;
        }
    }
    // The end of the stream goes out behind the last byte.
    write.shutdown().await.map_err(DialError::Ended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zeromq::{Socket, SocketRecv, SubSocket};

    async fn bound(endpoint: &str) -> (SubSocket, String) {
        let mut socket = SubSocket::new();
        let bound = socket.bind(endpoint).await.unwrap().to_string();
        socket.subscribe("kv@").await.unwrap();
        (socket, bound)
    }

    async fn listens(dial: &mut Dial) -> u64 {
        match dial.events.recv().await.unwrap() {
            DialEvent::Listens { connection, prefix } => {
                assert_eq!(prefix, "kv@");
                connection
            }
            other => panic!("{other:?}"),
        }
    }

    fn message(word: &'static str) -> Multipart {
        vec![Bytes::from_static(b"kv@h:1@m"), Bytes::from_static(word.as_bytes())]
    }

    #[tokio::test]
    async fn a_reader_that_comes_back_is_known_and_sees_nothing_that_was_for_the_one_before() {
        let (mut socket, endpoint) = bound("tcp://127.0.0.1:0").await;
        let authority = endpoint.strip_prefix("tcp://").unwrap().to_owned();
        let mut dial = Dial::spawn(authority);
        let first = listens(&mut dial).await;
        let parcel = |connection, word| Parcel { connection, messages: vec![message(word)] };
        dial.parcels.send(parcel(first, "one")).await.unwrap();
        assert_eq!(socket.recv().await.unwrap().into_vec()[1], "one");
        drop(socket);
        assert_eq!(dial.events.recv().await, Some(DialEvent::Lost));
        dial.parcels.send(parcel(first, "late")).await.unwrap();
        // Its port may take a moment to be free.
        let mut again = SubSocket::new();
        while again.bind(&endpoint).await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
        again.subscribe("kv@").await.unwrap();
        let second = listens(&mut dial).await;
        assert_eq!(second, first + 1);
        dial.parcels.send(parcel(first, "late")).await.unwrap();
        dial.parcels.send(parcel(second, "two")).await.unwrap();
        dial.finish().await;
        assert_eq!(again.recv().await.unwrap().into_vec()[1], "two");
    }

    #[tokio::test]
    async fn what_is_no_reader_is_left_alone_and_tried_again() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        let _dial = Dial::spawn(authority);
        for answer in [
            &b"HTTP/1.1 400 Bad Request\r\n\r\nHTTP/1.1 400 Bad Request\r\n\r\n12345678"[..],
            &[0xff; 80],
        ] {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(answer).await.unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).await.unwrap();
            assert_eq!(all.len(), wire::GREETING_BYTES, "nothing but our greeting");
        }
    }
}
