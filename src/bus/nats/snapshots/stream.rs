//! A checkpoint file as an object: written and read by a thread, a few chunks at a time.
//!
//! The format is a stream of bytes read and written in order; the client's object store is an
//! asynchronous one. Between them stands a queue of a few pieces.

use std::{
    io::{self, Read, Write},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes, BytesMut};
use kvbridge_schemas::{SnapshotHeader, SnapshotRecord};
use tokio::{
    io::{AsyncRead, AsyncReadExt, ReadBuf},
    sync::{mpsc, oneshot},
};

use crate::{
    checkpoint::{self, Fault},
    pipeline::ViewCut,
};

/// Pieces between a thread and the server. Each is at most a chunk of an object.
const PIECES: usize = 4;

/// Bytes of a piece: what the object store makes its chunks of.
const PIECE_BYTES: usize = 128 * 1024;

/// The bytes of a view, as they are made.
pub(in crate::bus::nats) struct Writing {
    pieces: mpsc::Receiver<Bytes>,
    piece: Bytes,
}

/// Begins to write a view.
pub(in crate::bus::nats) fn bytes_of(cut: ViewCut) -> Writing {
    let (sender, pieces) = mpsc::channel(PIECES);
    // Ends when all is written or nobody reads any more.
    tokio::task::spawn_blocking(move || {
        let mut to = Pieces { sender, piece: BytesMut::new() };
        let written = checkpoint::write(&mut to, &cut.header, &cut.view);
        written.and_then(|_| to.flush())
    });
    Writing { pieces, piece: Bytes::new() }
}

impl AsyncRead for Writing {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.piece.is_empty() {
            match ready!(self.pieces.poll_recv(cx)) {
                Some(piece) => self.piece = piece,
                None => return Poll::Ready(Ok(())),
            }
        }
        let count = self.piece.len().min(buffer.remaining());
        let taken = self.piece.split_to(count);
        buffer.put_slice(&taken);
        Poll::Ready(Ok(()))
    }
}

struct Pieces {
    sender: mpsc::Sender<Bytes>,
    piece: BytesMut,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let piece = self.piece.split().freeze();
        if piece.is_empty() {
            return Ok(());
        }
        self.sender.blocking_send(piece).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// A view that is being read.
pub struct Reading {
    header: oneshot::Receiver<Result<SnapshotHeader, Fault>>,
    chunks: mpsc::Receiver<Result<Vec<SnapshotRecord>, Fault>>,
}

/// Begins to read an object.
pub fn records_of(mut object: impl AsyncRead + Unpin + Send + 'static) -> Reading {
    let (sender, pieces) = mpsc::channel(PIECES);
    tokio::spawn(async move {
        loop {
            let mut piece = BytesMut::with_capacity(PIECE_BYTES);
            // A broken object ends early, which the format notices.
            match object.read_buf(&mut piece).await {
                Ok(0) | Err(_) => return,
                Ok(_) => (),
            }
            if sender.send(piece.freeze()).await.is_err() {
                return;
            }
        }
    });
    let (header_tx, header) = oneshot::channel();
    let (chunks_tx, chunks) = mpsc::channel(PIECES);
    tokio::task::spawn_blocking(move || {
        let from = Joined { pieces, piece: Bytes::new() };
        let (header, mut records) = match checkpoint::open(from) {
            Ok((header, records)) => (Ok(header), records),
            // Whoever reads may have gone.
            Err(fault) => return drop(header_tx.send(Err(fault))),
        };
        if header_tx.send(header).is_err() {
            return;
        }
        loop {
            let chunk = records.chunk().transpose();
            let last = !matches!(chunk, Some(Ok(_)));
            if let Some(chunk) = chunk
                && chunks_tx.blocking_send(chunk).is_err()
            {
                return;
            }
            if last {
                return;
            }
        }
    });
    Reading { header, chunks }
}

impl Reading {
    /// What it is of. To be asked for once.
    pub async fn header(&mut self) -> Result<SnapshotHeader, Fault> {
        (&mut self.header).await.unwrap_or(Err(Fault::Truncated))
    }

    /// The next records; `None` behind the last, when all of it was whole.
    pub async fn chunk(&mut self) -> Option<Result<Vec<SnapshotRecord>, Fault>> {
        self.chunks.recv().await
    }
}

struct Joined {
    pieces: mpsc::Receiver<Bytes>,
    piece: Bytes,
}

impl Read for Joined {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.piece.is_empty() {
            match self.pieces.blocking_recv() {
                Some(piece) => self.piece = piece,
                None => return Ok(0),
            }
        }
        let count = self.piece.len().min(to.len());
        self.piece.copy_to_slice(&mut to[..count]);
        Ok(count)
    }
}
