//! One connection for everything but publishing: it is made again, with back-off, until the end.
//!
//! Publishers have connections of their own, because what they must do when one is lost would hurt
//! readers, and the reverse.

use async_nats::{Client, ConnectOptions, Event, jetstream::Context};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    connect::{ConnectFailure, connect, jetstream},
    publisher::random_part,
};
use crate::{
    bus::{BusState, Standing},
    config::NatsConfig,
};

/// A connection, as long as it lasts.
#[derive(Clone)]
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) context: Context,
    /// Cancelled when the connection is over. What was asked over it is never answered then, or
    /// only after seconds.
    pub(super) lost: CancellationToken,
}

/// The connection in force; `None` while there is none.
pub(super) type Sessions = watch::Receiver<Option<Session>>;

/// Keeps one connection until stopped.
pub(super) async fn keep(
    config: NatsConfig,
    sessions: watch::Sender<Option<Session>>,
    standing: watch::Sender<Standing>,
    stop: CancellationToken,
) {
    let mut wait = config.reconnect.0;
    loop {
        let lost = CancellationToken::new();
        let opened = tokio::select! {
            () = stop.cancelled() => return,
            opened = open(&config, &lost) => opened,
        };
        match opened {
            Ok(session) => {
                wait = config.reconnect.0;
                stand(&standing, BusState::Ready, String::new());
                sessions.send_replace(Some(session));
                tokio::select! {
                    () = stop.cancelled() => (),
                    () = lost.cancelled() => (),
                }
                lost.cancel();
                sessions.send_replace(None);
                let detail = "the connection was lost".to_owned();
                stand(&standing, BusState::Away, detail);
            }
            Err(refused) => stand(&standing, refused.state(), refused.to_string()),
        }
        let pause = wait.mul_f64(random_part());
        wait = (wait * 2).min(config.reconnect.1);
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => (),
        }
    }
}

/// Connects once.
pub(super) async fn open(
    config: &NatsConfig,
    lost: &CancellationToken,
) -> Result<Session, ConnectFailure> {
    let seen = lost.clone();
    let options = ConnectOptions::new().event_callback(move |event| {
        let seen = seen.clone();
        async move {
            match event {
                Event::Disconnected | Event::Closed | Event::LameDuckMode => seen.cancel(),
                // One event for each message dropped: the reader sees the gap, so one line is
                // enough.
                Event::SlowConsumer(_) => seen.cancel(),
                Event::ServerError(error) => warn!(%error, "bus server error"),
                _ => (),
            }
        }
    });
    let client = connect(config, options).await?;
    let context = jetstream(client.clone());
    Ok(Session { client, context, lost: lost.clone() })
}

/// One log line for each change.
fn stand(standing: &watch::Sender<Standing>, state: BusState, detail: String) {
    if standing.borrow().state == state {
        return;
    }
    if state == BusState::Ready {
        info!(state = %state, "bus reader");
    } else {
        warn!(state = %state, detail, "bus reader");
    }
    standing.send_replace(Standing { state, detail });
}
