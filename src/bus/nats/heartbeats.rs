//! Hears the heartbeats of all bridges.

use std::time::Duration;

use async_nats::jetstream::{Context, kv::Operation};
use futures::StreamExt;
use kvbridge_schemas::{Status, codec};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{buckets, connect::reason, session::Sessions};
use crate::{
    bus::{VouchWatch, vouch::EXPIRE_EVERY},
    config::StreamsConfig,
};

/// Before heartbeats are listened to again on the same connection. Shorter than a heartbeat counts.
const AGAIN: Duration = Duration::from_millis(500);

/// Hears heartbeats on every connection until stopped. What was heard runs out without one too.
pub(super) async fn keep(
    mut sessions: Sessions,
    config: StreamsConfig,
    vouches: VouchWatch,
    stop: CancellationToken,
) {
    loop {
        let session = sessions.borrow_and_update().clone();
        let heard = async {
            match session {
                Some(session) => {
                    let why = hear(&session.context, &config, &vouches).await;
                    debug!(why, "heartbeats not heard");
                    tokio::time::sleep(AGAIN).await;
                }
                None => tokio::time::sleep(EXPIRE_EVERY).await,
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            changed = sessions.changed() => if changed.is_err() { return },
            () = heard => vouches.expire(),
        }
    }
}

/// Hears heartbeats on this connection until it fails, and says why. Whoever calls it calls it
/// again with a new connection, and [`VouchWatch::expire`] meanwhile.
pub async fn hear(context: &Context, config: &StreamsConfig, vouches: &VouchWatch) -> String {
    let store = match buckets::status(context, config).await {
        Ok(store) => store,
        Err(failure) => return failure.to_string(),
    };
    let mut heartbeats = match store.watch_with_history(">").await {
        Ok(heartbeats) => heartbeats,
        Err(error) => return reason(&error),
    };
    let mut expire = tokio::time::interval(EXPIRE_EVERY);
    loop {
        tokio::select! {
            _ = expire.tick() => vouches.expire(),
            entry = heartbeats.next() => match entry {
                Some(Ok(entry)) if entry.operation == Operation::Put => {
                    // A bridge's own key is none of a replica, and holds no status.
                    let text = std::str::from_utf8(&entry.value).unwrap_or_default();
                    if let Ok(status) = codec::from_json_str::<Status>(text) {
                        vouches.heard(&status);
                    }
                }
                Some(Ok(_)) => (),
                Some(Err(error)) => return reason(&error),
                None => return "the watch of heartbeats ended".to_owned(),
            },
        }
    }
}
