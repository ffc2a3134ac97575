//! Asking for old batches: a connection for each request, closed with whoever wanted it.

use std::{io, time::Duration};

use futures::StreamExt;
use kvbridge::api::AnswerPart;
use tokio::{io::AsyncWriteExt, net::TcpStream, sync::mpsc::Sender, time::timeout};
use tokio_util::codec::FramedRead;

use crate::wire;

/// An engine that says nothing for so long will not.
const PROGRESS: Duration = Duration::from_secs(5);

/// What is asked, and where.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    pub(crate) address: String,
    pub(crate) frame_bytes_max: usize,
    pub(crate) block_size: u32,
}

impl Journal {
    /// Everything from `start` on. An answer that breaks off says so: whoever waits for its end
    /// would wait for ever. A slow reader makes the engine wait.
    pub(crate) async fn ask(self, start: u64, parts: Sender<AnswerPart>) {
        let last = match self.read(start, &parts).await {
            Ok(()) => AnswerPart::End,
            Err(_) => AnswerPart::Failed,
        };
        // Without a reader the answer is not wanted any more.
        drop(parts.send(last).await);
    }

    async fn read(&self, start: u64, parts: &Sender<AnswerPart>) -> io::Result<()> {
        let mut stream = timeout(PROGRESS, TcpStream::connect(&self.address)).await??;
        stream.write_all(format!("{start}\n").as_bytes()).await?;
        let mut lines = FramedRead::new(stream, wire::lines(self.frame_bytes_max));
        loop {
            let line = timeout(PROGRESS, lines.next()).await?;
            let line = line.ok_or(io::ErrorKind::UnexpectedEof)?.map_err(io::Error::other)?;
            if line.as_ref() == b"end" {
                return Ok(());
            }
            let batch = wire::batch(&line, self.block_size).ok_or(io::ErrorKind::InvalidData)?;
            if parts.send(AnswerPart::Batch(batch)).await.is_err() {
                return Ok(());
            }
        }
    }
}
