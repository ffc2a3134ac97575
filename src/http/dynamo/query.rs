//! POST /query, /query_by_hash: how many tokens of a prompt each instance holds.

use std::sync::{Arc, atomic::Ordering};

use axum::{
    Extension,
    extract::{Request, State},
    http::StatusCode,
    response::Response,
};
use kvbridge_schemas::Trust;

use super::{
    Dynamo, GROUP, Refused,
    forms::{HashesForm, ScoresJson, TokensForm},
};
use crate::{
    http::{Api, Grant, Shared, body, json},
    index::{Prompt, Query},
};

/// A prompt above this many items is hashed on a thread of its own, so that short ones do not wait.
const INLINE_ITEM_COUNT_MAX: usize = 16_384;

pub(super) async fn by_tokens(
    State(Dynamo { api: Api(api), .. }): State<Dynamo>,
    Extension(grant): Extension<Arc<Grant>>,
    request: Request,
) -> Result<Response, Refused> {
    measured(&api, async {
        let bytes = body::read(&api, request, api.body_bytes_max()).await?;
        let form: TokensForm = body::parse(&bytes)?;
        check(&api, &grant, (&form.model_name, &form.routing_group), form.token_ids.len())?;
        if form.token_ids.len() <= INLINE_ITEM_COUNT_MAX {
            return tokens(&api, &form);
        }
        let api = Arc::clone(&api);
        let asked = tokio::task::spawn_blocking(move || tokens(&api, &form)).await;
        asked.unwrap_or_else(|_| {
            let detail = "the match was not finished";
            Err(Refused::new(StatusCode::INTERNAL_SERVER_ERROR, "match_failed", detail))
        })
    })
    .await
}

pub(super) async fn by_hash(
    State(Dynamo { api: Api(api), .. }): State<Dynamo>,
    Extension(grant): Extension<Arc<Grant>>,
    request: Request,
) -> Result<Response, Refused> {
    measured(&api, async {
        let bytes = body::read(&api, request, api.body_bytes_max()).await?;
        let form: HashesForm = body::parse(&bytes)?;
        if form.cache_salt.is_some() {
            let detail = "cache_salt is not accepted here: hashes are of what they were made of";
            return Err(Refused::new(StatusCode::BAD_REQUEST, "salt_with_hashes", detail));
        }
        let model = form.model_name.as_str();
        check(&api, &grant, (model, &form.routing_group), form.block_hashes.len())?;
        // Our content hash is the indexer's own, so they compare as they are.
        let hashes: Vec<u64> = form.block_hashes.iter().map(|hash| hash.cast_unsigned()).collect();
        // A model without a block has none that could match, of whatever size.
        let block_size = api.pipeline.index.block_sizes(model).first().copied().unwrap_or(1);
        let prompt = Prompt::Content { hashes: &hashes, block_size };
        ask(&api, &asked(model, prompt, (None, None)))
    })
    .await
}

fn tokens(api: &Shared, form: &TokensForm) -> Result<Response, Refused> {
    let apart = (form.lora_name.as_deref(), form.cache_salt.as_deref());
    ask(api, &asked(&form.model_name, Prompt::Tokens(&form.token_ids), apart))
}

/// Whatever is proven to be there counts: the answer cannot say how much may be missing.
fn asked<'a>(
    model: &'a str,
    prompt: Prompt<'a>,
    (lora, salt): (Option<&'a str>, Option<&'a str>),
) -> Query<'a> {
    Query { model, prompt, lora, salt, accept: Trust::LowerBound, hints: false }
}

fn check(
    api: &Shared,
    grant: &Grant,
    (model, group): (&str, &str),
    items: usize,
) -> Result<(), Refused> {
    if group != GROUP || !grant.sees(model) {
        return Err(Refused::no_indexer(model, group));
    }
    let max = api.match_token_count_max.load(Ordering::Relaxed);
    if items > usize::try_from(max).unwrap_or(usize::MAX) {
        let detail = format!("expected at most {max} items, {items} came");
        return Err(Refused::new(StatusCode::PAYLOAD_TOO_LARGE, "prompt_too_long", detail));
    }
    Ok(())
}

fn ask(api: &Shared, query: &Query<'_>) -> Result<Response, Refused> {
    let answer = api.pipeline.index.query(query);
    api.alarms.asked(api.pipeline.clock.now(), query, answer.as_ref());
    let answer = answer.map_err(|_| Refused::no_indexer(query.model, GROUP))?;
    let outcome = &api.metrics.matches;
    if answer.fallback.is_some() { &outcome.fallback } else { &outcome.usable }.increment(1);
    Ok(json(&ScoresJson::of(&answer)))
}

/// A question is a match, and counted as one.
async fn measured(
    api: &Shared,
    answer: impl Future<Output = Result<Response, Refused>>,
) -> Result<Response, Refused> {
    let started = api.pipeline.clock.elapsed();
    let result = answer.await;
    if result.is_err() {
        api.metrics.matches.refused.increment(1);
    }
    api.metrics.matches.duration.record(api.pipeline.clock.elapsed().saturating_sub(started));
    result
}
