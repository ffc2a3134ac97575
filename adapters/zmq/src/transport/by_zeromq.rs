//! The sockets of the `zeromq` crate.
//!
//! It has no limit on a frame or a message and knows no command but READY; the crate's head lists
//! what that means. Its sockets reconnect by themselves or are deaf after a loss, so the first sign
//! of one is passed on and the socket is dropped.

use bytes::Bytes;
use futures::{StreamExt, channel::mpsc};
use tokio::time::timeout;
use tracing::debug;
use zeromq::{
    DealerSocket, Socket, SocketEvent, SocketOptions, SocketRecv, SocketSend, SubSocket, ZmqMessage,
};

use super::{LiveSocket, RequestSocket, SocketError, SocketLimits};
use crate::{
    serve::multipart,
    subscribe::{DetachReason, Link, bindable},
};

/// A SUB and what the library says about its connection.
pub(crate) struct Live {
    socket: SubSocket,
    monitor: mpsc::Receiver<SocketEvent>,
    bound: Option<String>,
}

impl LiveSocket for Live {
    async fn open(link: &Link, topics: &[&str], limits: SocketLimits) -> Result<Live, SocketError> {
        let mut socket = SubSocket::with_options(options(limits));
        let monitor = socket.monitor();
        let bound = match link {
            Link::Connect(endpoint) => {
                socket.connect(endpoint).await?;
                // After connect: with no subscription remembered the library registers the peer in
                // every case, and a peer that has gone is an error here.
                subscribe(&mut socket, topics, limits).await?;
                None
            }
            Link::Bind(endpoint) => {
                subscribe(&mut socket, topics, limits).await?;
                Some(socket.bind(&bindable(endpoint)).await?.to_string())
            }
        };
        Ok(Live { socket, monitor, bound })
    }

    fn bound(&self) -> Option<&str> {
        self.bound.as_deref()
    }

    async fn recv(&mut self) -> Result<Vec<Bytes>, DetachReason> {
        loop {
            tokio::select! {
                // The monitor first: the library reconnects by itself after 100 ms, and a task that
                // slept through it must see the loss before a frame of the new connection.
                biased;
                event = self.monitor.next() => match event {
                    Some(SocketEvent::Disconnected(_)) | None => return Err(DetachReason::Closed),
                    Some(_) => (),
                },
                message = self.socket.recv() => {
                    return message.map(ZmqMessage::into_vec).map_err(|error| {
                        debug!(%error, "live stream receive failed");
                        DetachReason::ReceiveFailed
                    });
                }
            }
        }
    }
}

/// A DEALER and what the library says about its connection.
pub(crate) struct Request {
    socket: DealerSocket,
    monitor: mpsc::Receiver<SocketEvent>,
}

impl RequestSocket for Request {
    async fn open(endpoint: &str, limits: SocketLimits) -> Result<Request, SocketError> {
        let mut socket = DealerSocket::with_options(options(limits));
        let monitor = socket.monitor();
        socket.connect(endpoint).await?;
        Ok(Request { socket, monitor })
    }

    async fn send(&mut self, frames: Vec<Bytes>) -> Result<(), SocketError> {
        Ok(self.socket.send(multipart(&frames)).await?)
    }

    async fn recv(&mut self) -> Result<Vec<Bytes>, DetachReason> {
        loop {
            tokio::select! {
                // Replies first: those already here were sent before the peer closed. After a close
                // the library's `recv` waits for ever, so the monitor has to tell.
                biased;
                message = self.socket.recv() => {
                    let received = message.map(ZmqMessage::into_vec);
                    return received.map_err(|_| DetachReason::ReceiveFailed);
                }
                event = self.monitor.next() => match event {
                    Some(SocketEvent::Disconnected(_)) | None => return Err(DetachReason::Closed),
                    Some(_) => (),
                },
            }
        }
    }
}

fn options(limits: SocketLimits) -> SocketOptions {
    let mut options = SocketOptions::default();
    options.connect_timeout(limits.connect_timeout);
    options
}

async fn subscribe(
    socket: &mut SubSocket,
    topics: &[&str],
    limits: SocketLimits,
) -> Result<(), SocketError> {
    for topic in topics {
        let subscribed = timeout(limits.connect_timeout, socket.subscribe(topic)).await;
        subscribed.map_err(|_| SocketError::TimedOut)??;
    }
    Ok(())
}
