//! Plays a recording as an engine: a publisher with a journal, so that a bug report can be seen
//! again.
//!
//! A seq that goes back in the recording is a restart of the engine: the server is closed and bound
//! anew at the same ports, with an empty journal, as a restarted engine would be.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, BufReader},
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use kvbridge_adapters_zmq::{Faults, ServeError, ServeSettings, Server};

use crate::capture::{CaptureError, CaptureReader, Socket};

/// How long a restarted engine waits for its subscriber. Longer than the longest reconnect delay; a
/// subscriber that is not back by then has left.
const RESUBSCRIBE_WAIT: Duration = Duration::from_secs(5);

/// A recording's live messages, in order.
#[derive(Clone, Default)]
pub struct Recording {
    /// Topic of the first message; engines have one.
    pub topic: String,
    /// Endpoint it was recorded at.
    pub endpoint: String,
    /// Seq and payload.
    batches: Vec<(u64, Bytes)>,
}

/// How to play.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaySettings {
    /// Endpoint to publish at; port 0 takes a free one.
    pub live: String,
    /// Endpoint to answer replay requests at.
    pub replay: String,
    /// Seqs kept out of the live stream; the journal has them.
    pub withheld: BTreeSet<u64>,
    /// Batches that the journal keeps.
    pub journal_count_max: usize,
    /// Batches a second.
    pub rate_hz: f64,
}

/// Why a recording cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// The file cannot be opened.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line is not of the format.
    #[error("{}:{line}", path.display())]
    Line {
        /// Which file.
        path: PathBuf,
        /// Which line.
        line: u64,
        /// Why.
        source: CaptureError,
    },
    /// No live message is in it.
    #[error("{} holds no live message", path.display())]
    Empty {
        /// Which file.
        path: PathBuf,
    },
    /// A socket failed.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

impl Recording {
    /// Reads a whole recording; it is as large as its file.
    pub fn read(path: &Path) -> Result<Recording, PlayError> {
        let file = File::open(path)
            .map_err(|source| PlayError::Unreadable { path: path.to_owned(), source })?;
        let mut recording = Recording::default();
        for (line, read) in CaptureReader::new(BufReader::new(file)) {
            let recorded =
                read.map_err(|source| PlayError::Line { path: path.to_owned(), line, source })?;
            let [topic, seq, payload] = recorded.frames.as_slice() else { continue };
            let Some((seq, _)) = seq.split_first_chunk::<8>() else { continue };
            if recorded.socket != Socket::LiveIn {
                continue;
            }
            if recording.batches.is_empty() {
                recording.topic = String::from_utf8_lossy(topic).into_owned();
                recording.endpoint = recorded.endpoint;
            }
            recording.batches.push((u64::from_be_bytes(*seq), Bytes::copy_from_slice(payload)));
        }
        if recording.batches.is_empty() {
            return Err(PlayError::Empty { path: path.to_owned() });
        }
        Ok(recording)
    }

    /// How many batches it holds.
    pub fn batch_count(&self) -> usize {
        self.batches.len()
    }

    /// `host:port` of the recorded engine.
    pub fn instance(&self) -> &str {
        self.endpoint.strip_prefix("tcp://").unwrap_or(&self.endpoint)
    }
}

/// An engine made of a recording.
pub struct Player {
    recording: Recording,
    serve: ServeSettings,
    pace: Duration,
    server: Server,
}

impl Player {
    /// Binds both sockets.
    pub async fn bind(recording: Recording, settings: PlaySettings) -> Result<Player, PlayError> {
        let mut serve = ServeSettings {
            live: settings.live,
            replay: settings.replay,
            topic: recording.topic.clone(),
            journal_count_max: settings.journal_count_max,
            faults: Faults { withheld: settings.withheld, ..Faults::default() },
            ..ServeSettings::default()
        };
        let server = Server::bind(serve.clone()).await?;
        // A restart binds the ports that the first life was given.
        serve.live = server.live().to_owned();
        serve.replay = server.replay().to_owned();
        let pace = Duration::from_secs_f64(1.0 / settings.rate_hz);
        Ok(Player { recording, serve, pace, server })
    }

    /// `host:port` of the recorded engine.
    pub fn instance(&self) -> &str {
        self.recording.instance()
    }

    /// Seq of the last batch.
    pub fn last_seq(&self) -> u64 {
        self.recording.batches.last().map_or(0, |(seq, _)| *seq)
    }

    /// Where it publishes.
    pub fn live(&self) -> &str {
        &self.serve.live
    }

    /// Where it answers replay requests.
    pub fn replay(&self) -> &str {
        &self.serve.replay
    }

    /// Waits for a first subscriber, then plays everything. The sockets stay open until the player
    /// is dropped, so that what was lost can be asked for.
    pub async fn play(&mut self) -> Result<usize, PlayError> {
        self.server.wait_subscribers(1).await?;
        let mut previous = None;
        // Bursts after a pause, so that the rate holds on average: a timer has millisecond steps.
        let mut pace = tokio::time::interval(self.pace);
        for (seq, payload) in self.recording.batches.clone() {
            if previous.is_some_and(|previous| seq <= previous) {
                self.restart().await?;
            }
            pace.tick().await;
            self.server.publish(seq, payload)?;
            previous = Some(seq);
        }
        Ok(self.recording.batch_count())
    }

    async fn restart(&mut self) -> Result<(), PlayError> {
        // Two servers cannot hold one port: a placeholder stands in while the old one closes.
        let placeholder = Server::bind(ServeSettings::default()).await?;
        std::mem::replace(&mut self.server, placeholder).close().await;
        self.server = Server::bind(self.serve.clone()).await?;
        let subscribed = self.server.wait_subscribers(1);
        match tokio::time::timeout(RESUBSCRIBE_WAIT, subscribed).await {
            Ok(subscribed) => Ok(subscribed?),
            Err(_) => Ok(()), // it plays on to nobody, as an engine does
        }
    }
}
