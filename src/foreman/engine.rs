//! Asks an engine to empty its cache. Its answer says that it heard, not that it did.

use futures::{FutureExt, future::BoxFuture};
use tracing::warn;

use crate::{
    config::limits,
    jobs::{Ask, Failure},
    pipeline::{ReplicaHandle, registry},
    web_client,
};

/// What came of a request: whose, for what, and whether it was taken.
pub(super) type Answer = BoxFuture<'static, (u64, Ask, Result<(), Failure>)>;

/// Where the replica's engine is asked.
pub(super) fn place(handle: &ReplicaHandle) -> Result<String, Failure> {
    match &handle.flush {
        Some(url) => Ok(url.clone()),
        None if registry::is_polled(&handle.engine) => Err(Failure::FlushUnsupported),
        None => Err(Failure::NoFlushUrl),
    }
}

/// Asks for all of its replicas.
pub(super) fn flush(id: u64, ask: Ask) -> Answer {
    async move {
        let answer = post(&ask.at).await;
        (id, ask, answer)
    }
    .boxed()
}

async fn post(url: &str) -> Result<(), Failure> {
    let unanswered = |error: reqwest::Error| {
        warn!(%url, error = %web_client::root(&error), "an engine was not asked to empty its cache");
        Failure::FlushUnanswered
    };
    let client = web_client::builder([url]).timeout(limits::FLUSH_DEADLINE).build();
    let answer = client.map_err(unanswered)?.post(url).send().await.map_err(unanswered)?;
    if answer.status().is_success() {
        return Ok(());
    }
    Err(Failure::FlushRefused(answer.status().as_u16()))
}
