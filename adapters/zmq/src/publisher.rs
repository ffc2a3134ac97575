//! The thread behind a [`Server`](crate::serve::Server): publishes, answers, one thing at a time.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::debug;
use zeromq::{RouterSocket, Socket, SocketRecv, SocketSend, XPubSocket, ZmqMessage, ZmqResult};

use crate::{
    serve::{ServeError, Shared, bind_failed},
    subscribe::bindable,
};

/// What the thread owns.
pub(crate) struct PublisherThread {
    pub(crate) endpoints: (String, String),
    pub(crate) shared: Arc<Shared>,
    pub(crate) messages: mpsc::Receiver<ZmqMessage>,
    pub(crate) subscriptions: watch::Sender<u64>,
    pub(crate) stalled: watch::Receiver<bool>,
    pub(crate) stop: CancellationToken,
}

impl PublisherThread {
    /// Returns when the server is closed; with the runtime go the listeners, the connections and
    /// the library's tasks.
    pub(crate) fn run(self, bound: oneshot::Sender<Result<(String, String), ServeError>>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let answered = match runtime {
            Ok(runtime) => return runtime.block_on(self.serve(bound)),
            Err(error) => bound.send(Err(ServeError::Thread(error))),
        };
        if answered.is_err() {
            debug!("nobody waits for the server any more");
        }
    }

    async fn serve(self, bound: oneshot::Sender<Result<(String, String), ServeError>>) {
        let (live, replay) = &self.endpoints;
        let (answer, sockets) = match bind_both(live, replay).await {
            Ok((publisher, router, endpoints)) => (Ok(endpoints), Some((publisher, router))),
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

    /// Publishes and answers, one thing at a time as an engine's one publisher thread does: every
    /// batch in an answer was published before it, and none is published between its frames.
    async fn turns(mut self, mut publisher: XPubSocket, mut router: RouterSocket) {
        loop {
            if self.stalled.wait_for(|stalled| !stalled).await.is_err() {
                return;
            }
            tokio::select! {
                biased;
                // Only looked at again at the top: a stall comes before whatever waits.
                changed = self.stalled.changed() => if changed.is_err() { return },
                // Subscriptions first: one that has arrived gets everything sent after it.
                received = publisher.recv() => count_subscription(received, &self.subscriptions),
                request = router.recv() => match request {
                    Ok(request) => answer(request, &self.shared, &mut router).await,
                    Err(_) => return,
                },
                message = self.messages.recv() => match message {
                    Some(message) => {
                        if let Err(error) = publisher.send(message).await {
                            debug!(%error, "live message not sent");
                        }
                    }
                    None => return,
                },
            }
        }
    }
}

async fn bind_both(
    live: &str,
    replay: &str,
) -> Result<(XPubSocket, RouterSocket, (String, String)), ServeError> {
    let (mut publisher, mut router) = (XPubSocket::new(), RouterSocket::new());
    let live = publisher.bind(&bindable(live)).await.map_err(bind_failed(live))?;
    let replay = router.bind(&bindable(replay)).await.map_err(bind_failed(replay))?;
    Ok((publisher, router, (live.to_string(), replay.to_string())))
}

fn count_subscription(received: ZmqResult<ZmqMessage>, subscriptions: &watch::Sender<u64>) {
    match received {
        Ok(message) => {
            if message.get(0).and_then(|frame| frame.first()) == Some(&1) {
                subscriptions.send_modify(|count| *count += 1);
            }
        }
        Err(error) => debug!(%error, "subscriber gone"),
    }
}

/// Sends all replies to one request.
async fn answer(request: ZmqMessage, shared: &Shared, router: &mut RouterSocket) {
    let Ok([identity, delimiter, start]) = <[Bytes; 3]>::try_from(request.into_vec()) else {
        return debug!("replay request is not 3 frames, ignored");
    };
    if !delimiter.is_empty() {
        return debug!("replay request has no delimiter, ignored");
    }
    for (seq, payload) in shared.replies(start_of(&start)) {
        let reply = shared.reply(identity.clone(), seq, payload);
        if let Err(error) = router.send(reply).await {
            return debug!(%error, "replay stopped, the peer is gone");
        }
    }
}

/// The start as an engine reads it: a big-endian number of any length.
fn start_of(frame: &[u8]) -> u64 {
    frame
        .iter()
        .fold(0_u64, |start, byte| start.saturating_mul(256).saturating_add(u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_is_a_number_of_any_length() {
        assert_eq!(start_of(&[]), 0);
        assert_eq!(start_of(&[0, 0, 1, 2]), 258);
        assert_eq!(start_of(&[0xff; 8]), u64::MAX);
        assert_eq!(start_of(&[0xff; 12]), u64::MAX);
    }
}
