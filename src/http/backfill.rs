//! POST /v1/backfill: what a replica has computed, told by the router that sent it there.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Request, State},
    response::Response,
};
use serde::Serialize;

use super::{
    Api, Grant, Problem, Shared, json,
    question::{Asked, Question},
};
use crate::{
    clock::millis,
    index::{BackfillTerms, Backfilled, QueryError, SPECULATIVE_BLOCKS_MAX},
    telemetry::Backfills,
};

#[derive(Serialize)]
struct BackfillJson {
    outcome: &'static str,
    blocks: u64,
}

pub(super) async fn answer(
    State(Api(api)): State<Api>,
    Extension(grant): Extension<Arc<Grant>>,
    request: Request,
) -> Result<Response, Problem> {
    let result = Question::answered(&api, &grant, request, Asked::Backfill, take).await;
    if result.is_err() {
        api.metrics.backfills.refused.increment(1);
    }
    result
}

fn take(api: &Shared, question: &Question) -> Result<Response, Problem> {
    let (key, handle) = question.replica(api)?;
    let pool_blocks = handle.signs.pool_blocks().and_then(|pool| usize::try_from(pool).ok());
    let terms = BackfillTerms {
        mode: api.backfill.mode,
        blocks_max: pool_blocks.unwrap_or(SPECULATIVE_BLOCKS_MAX),
        ttl_ms: millis(api.backfill.ttl),
        now: api.pipeline.clock.now(),
    };
    let taken = api.pipeline.index.backfill(&key, &question.query(), terms);
    let Backfills { taken: count, off, exact, blocks: block_count, evicted: evictions, .. } =
        &api.metrics.backfills;
    let (outcome, blocks) = match taken.map_err(unknown_here)? {
        Backfilled::Taken { blocks, evicted } => {
            count.increment(1);
            block_count.increment(blocks);
            evictions.increment(evicted);
            ("taken", blocks)
        }
        Backfilled::Off => {
            off.increment(1);
            ("off", 0)
        }
        Backfilled::Exact => {
            exact.increment(1);
            ("exact", 0)
        }
    };
    Ok(json(&BackfillJson { outcome, blocks }))
}

/// The fleet has a replica a moment before the index, and a moment longer.
fn unknown_here(error: QueryError) -> Problem {
    match error {
        QueryError::UnknownModel => Problem::unknown_replica(),
        size @ QueryError::BlockSize { .. } => size.into(),
    }
}
