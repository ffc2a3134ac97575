//! The live connection: kept up for ever, every break told before what comes after it.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
    time::Duration,
};

use futures::StreamExt;
use kvbridge::{
    adapters::Opening,
    api::{Counters, SourceEvent},
};
use tokio::{net::TcpStream, sync::mpsc::Sender};
use tokio_util::codec::FramedRead;

use crate::wire;

/// Connects, reads, and connects again, until it is aborted. The queue needs room for two.
pub(crate) async fn keep(opening: Opening, block_size: u32, queue: Sender<SourceEvent>) {
    let (first, longest) = opening.reconnect;
    let mut wait = first;
    loop {
        match TcpStream::connect(opening.endpoint.authority()).await {
            Ok(stream) => {
                wait = first;
                Counters::one(&opening.counters.attached);
                tell(&queue, SourceEvent::Attached).await;
                read(stream, &opening, block_size, &queue).await;
                tell(&queue, SourceEvent::Detached).await;
            }
            Err(_) => {
                Counters::one(&opening.counters.connect_failed);
            }
        }
        tokio::time::sleep(jittered(wait)).await;
        wait = (wait * 2).min(longest);
    }
}

/// Reads to the end of the connection. A reader that is too slow makes nobody wait: what finds no
/// room is dropped, and so says one Overflowed, as soon as there is room for it and a batch behind.
async fn read(stream: TcpStream, opening: &Opening, block_size: u32, queue: &Sender<SourceEvent>) {
    let mut lines = FramedRead::new(stream, wire::lines(opening.frame_bytes_max));
    let mut dropped = false;
    loop {
        tokio::select! {
            biased;
            room = queue.reserve_many(2), if dropped => {
                let Some(room) = room.ok().and_then(|mut room| room.next()) else { return };
                room.send(SourceEvent::Overflowed);
                dropped = false;
            }
            line = lines.next() => {
                let Some(Ok(line)) = line else { break };
                Counters::one(&opening.counters.frames);
                Counters::add(&opening.counters.bytes, line.len());
                let Some(batch) = wire::batch(&line, block_size) else {
                    // A number is missing that nobody can tell: something was lost here.
                    Counters::one(&opening.counters.malformed);
                    dropped = true;
                    continue;
                };
                if dropped || queue.try_send(SourceEvent::Live(batch)).is_err() {
                    Counters::one(&opening.counters.overflowed);
                    dropped = true;
                }
            }
        }
    }
    if dropped {
        tell(queue, SourceEvent::Overflowed).await;
    }
}

/// Control events wait for room: none is ever dropped.
async fn tell(queue: &Sender<SourceEvent>, event: SourceEvent) {
    // Without a reader this task is about to be aborted.
    drop(queue.send(event).await);
}

/// Between half of it and all of it: engines that come back are not met by everybody at once.
fn jittered(wait: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish() % 1000;
    wait / 2 + wait / 2 * u32::try_from(random).unwrap_or(0) / 1000
}
