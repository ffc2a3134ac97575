//! Which fields a question may have: one form is read for all of them, and each takes its own.

use axum::http::StatusCode;

use super::{
    Problem,
    question::{Asked, Request},
    route::CandidateJson,
};
use crate::config::limits;

/// Refuses fields that this question does not have, and asks for those that it needs.
pub(super) fn check(request: &Request, asked: Asked) -> Result<(), Problem> {
    use Asked::{Backfill, Feedback, Match, Route};
    let served: &[Asked] = &[Feedback, Backfill];
    let asks: &[Asked] = &[Match, Route];
    for (field, told, taken_by) in [
        ("accept", request.accept.is_some(), asks),
        ("hints", request.hints.is_some(), asks),
        ("candidates", request.candidates.is_some(), &[Route]),
        ("instance", request.instance.is_some(), served),
        ("rank", request.rank.is_some(), served),
        ("input_tokens", request.input_tokens.is_some(), &[Feedback]),
        ("cached_tokens", request.cached_tokens.is_some(), &[Feedback]),
        ("predicted_tokens", request.predicted_tokens.is_some(), &[Feedback]),
        ("conversation", request.conversation.is_some(), &[Feedback]),
    ] {
        if told && !taken_by.contains(&asked) {
            return Err(bad("unknown_field", format!("unknown field {field}")));
        }
    }
    for (field, told, needed_by) in [
        ("instance", request.instance.is_some(), served),
        ("input_tokens", request.input_tokens.is_some(), &[Feedback]),
        ("cached_tokens", request.cached_tokens.is_some(), &[Feedback]),
    ] {
        if !told && needed_by.contains(&asked) {
            return Err(bad("missing_field", format!("missing field `{field}`")));
        }
    }
    if request.cached_tokens > request.input_tokens {
        return Err(bad("wrong_value", "cached_tokens are at most input_tokens".to_owned()));
    }
    if asked == Route { candidates(request.candidates.as_deref()) } else { Ok(()) }
}

fn candidates(candidates: Option<&[CandidateJson]>) -> Result<(), Problem> {
    let max = limits::ROUTE_CANDIDATE_COUNT_MAX;
    match candidates {
        None | Some([]) => {
            let detail = "expected candidates: who could serve the request";
            Err(bad("no_candidates", detail.to_owned()))
        }
        Some(candidates) if candidates.len() > max => {
            Err(bad("too_many_candidates", format!("expected at most {max} candidates")))
        }
        Some(candidates) if candidates.iter().any(CandidateJson::has_no_capacity) => {
            Err(bad("wrong_value", "a capacity is above 0, or left out".to_owned()))
        }
        Some(_) => Ok(()),
    }
}

fn bad(reason: &'static str, detail: String) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, reason, detail)
}
