//! PUB and ROUTER of somebody who serves many readers: publishes what it is given, hands requests
//! over and sends answers back. It reads no payload and keeps nothing.
//!
//! PUB and not XPUB: the library's XPUB waits for a reader that takes nothing and so stops all of
//! them; its PUB drops for that reader alone, after 100 000 messages. They are shared by all
//! readers that are behind, so that is what such readers cost together.
//!
//! An answer is queued at its peer without a limit in bytes. Whoever answers must not answer a peer
//! again before that has read.
//!
//! A thread and runtime of its own, for the reasons given at [`serve`](mod@crate::serve).

use std::thread;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::debug;
use zeromq::{PubSocket, RouterSocket, Socket, SocketRecv, SocketSend};

use crate::{
    serve::{ServeError, bind_failed, multipart},
    subscribe::bindable,
};

/// Messages between whoever publishes and the thread. Too small: a hop for each message. Too large:
/// nothing, they are published as fast as they come. Full: the publisher waits.
const MESSAGES_MAX: usize = 256;

/// Requests that wait for whoever answers. Too small: readers that come together are not heard, and
/// some of them never ask again. Too large: memory that peers decide about. Full: a request is
/// dropped as if it had been lost.
const REQUESTS_MAX: usize = 512;

/// Bytes of a request, all frames together. Larger ones are none, and nothing of them waits.
const REQUEST_BYTES_MAX: usize = 64 * 1024;

/// Answers that wait for the thread. Too small: a hop between threads for each few, which is slow
/// where there is much to do. Too large: memory. Full: whoever answers waits.
const ANSWERS_MAX: usize = 64;

/// One message of several frames.
pub type Multipart = Vec<Bytes>;

/// A request or an answer, and the peer at the other end.
#[derive(Clone, PartialEq, Eq)]
pub struct Addressed {
    /// The peer's identity, as the ROUTER names it.
    pub peer: Bytes,
    /// The frames as they travel, with the delimiter.
    pub frames: Multipart,
}

/// Where an outlet is bound, with the real ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutletAddress {
    /// Where it publishes.
    pub live: String,
    /// Where it answers.
    pub requests: String,
}

/// Our end of the thread. Dropping it ends the thread.
#[derive(Debug)]
pub struct Outlet {
    /// Where it is bound.
    pub address: OutletAddress,
    /// What is to be published, in order.
    pub messages: mpsc::Sender<Multipart>,
    /// What peers ask.
    pub requests: mpsc::Receiver<Addressed>,
    /// What they are answered.
    pub answers: mpsc::Sender<Addressed>,
    /// Resolves when the thread has ended; its ports are free then.
    pub ended: oneshot::Receiver<()>,
    /// Ends the thread.
    pub stop: Stop,
}

/// Ends an outlet's thread when asked, or when dropped.
#[derive(Debug)]
pub struct Stop(CancellationToken);

impl Stop {
    /// Ends it.
    pub fn now(&self) {
        self.0.cancel();
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// The thread's side.
struct OutletThread {
    endpoints: OutletAddress,
    messages: mpsc::Receiver<Multipart>,
    requests: mpsc::Sender<Addressed>,
    answers: mpsc::Receiver<Addressed>,
    stop: CancellationToken,
}

impl Outlet {
    /// Binds both sockets and serves until dropped. Port 0 takes a free one.
    pub async fn bind(endpoints: OutletAddress) -> Result<Outlet, ServeError> {
        let (messages, messages_rx) = mpsc::channel(MESSAGES_MAX);
        let (requests_tx, requests) = mpsc::channel(REQUESTS_MAX);
        let (answers, answers_rx) = mpsc::channel(ANSWERS_MAX);
        let (bound_tx, bound) = oneshot::channel();
        let (ended_tx, ended) = oneshot::channel();
        let stop = CancellationToken::new();
        let outlet = OutletThread {
            endpoints,
            messages: messages_rx,
            requests: requests_tx,
            answers: answers_rx,
            stop: stop.clone(),
        };
        thread::Builder::new()
            .name("zmq-outlet".to_owned())
            .spawn(move || {
                outlet.run(bound_tx);
                drop(ended_tx);
            })
            .map_err(ServeError::Thread)?;
        let address = bound.await.map_err(|_| ServeError::Closed)??;
        Ok(Outlet { address, messages, requests, answers, ended, stop: Stop(stop) })
    }
}

impl OutletThread {
    fn run(self, bound: oneshot::Sender<Result<OutletAddress, ServeError>>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let answered = match runtime {
            Ok(runtime) => return runtime.block_on(self.serve(bound)),
            Err(error) => bound.send(Err(ServeError::Thread(error))),
        };
        if answered.is_err() {
            debug!("nobody waits for the outlet any more");
        }
    }

    async fn serve(self, bound: oneshot::Sender<Result<OutletAddress, ServeError>>) {
        let (answer, sockets) = match bind_both(&self.endpoints).await {
            Ok((publisher, router, address)) => (Ok(address), Some((publisher, router))),
            Err(error) => (Err(error), None),
        };
        // An error to send = the caller gave up, so there is nothing to serve either.
        let (Ok(()), Some((publisher, router))) = (bound.send(answer), sockets) else { return };
        let stop = self.stop.clone();
        tokio::select! {
            () = stop.cancelled() => (),
            () = self.turns(publisher, router) => (),
        }
    }

    async fn turns(mut self, mut publisher: PubSocket, mut router: RouterSocket) {
        loop {
            tokio::select! {
                // Publishing first: readers that ask much must not hold up those that follow.
                biased;
                message = self.messages.recv() => {
                    let Some(message) = message else { return };
                    if let Err(error) = publisher.send(multipart(&message)).await {
                        debug!(%error, "live message not sent");
                    }
                }
                answer = self.answers.recv() => {
                    let Some(Addressed { peer, frames }) = answer else { return };
                    let mut message = vec![peer];
                    message.extend(frames);
                    if let Err(error) = router.send(multipart(&message)).await {
                        debug!(%error, "the peer that asked is gone");
                    }
                }
                request = router.recv() => {
                    let Ok(request) = request else { return };
                    let mut frames = request.into_vec();
                    let peer = frames.remove(0);
                    if frames.iter().map(Bytes::len).sum::<usize>() > REQUEST_BYTES_MAX {
                        debug!("request dropped, it is too large");
                        continue;
                    }
                    if self.requests.try_send(Addressed { peer, frames }).is_err() {
                        debug!("request dropped, too many wait");
                    }
                }
            }
        }
    }
}

async fn bind_both(
    endpoints: &OutletAddress,
) -> Result<(PubSocket, RouterSocket, OutletAddress), ServeError> {
    let OutletAddress { live, requests } = endpoints;
    let (mut publisher, mut router) = (PubSocket::new(), RouterSocket::new());
    let bound = publisher.bind(&bindable(live)).await.map_err(bind_failed(live))?;
    let asked = router.bind(&bindable(requests)).await.map_err(bind_failed(requests))?;
    let address = OutletAddress { live: bound.to_string(), requests: asked.to_string() };
    Ok((publisher, router, address))
}

impl std::fmt::Debug for Addressed {
    // A payload holds token ids, which are customers' prompts.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Addressed({} frames)", self.frames.len())
    }
}
