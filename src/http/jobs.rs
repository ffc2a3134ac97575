//! POST /v1/resync, /v1/flush; GET /v1/jobs; GET, DELETE /v1/jobs/{id}: deliberate returns to a
//! proven state. Whoever may see only some models orders, sees and ends only theirs.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::{Path, Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use kvbridge_schemas::Trust;
use serde::{Deserialize, Serialize};

use super::{Api, Grant, Problem, Shared, body, json};
use crate::{
    clock::millis,
    config::limits,
    foreman::Selector,
    jobs::{Job, Member, Order, State as MemberState, TooManyJobs, Trigger, Verb},
};

/// What a job waits for, how long, and how many at a time, if the order does not say.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(120);
const PARALLEL_DEFAULT: usize = 2;

/// An order as sent: one of the first three.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OrderJson {
    #[serde(default)]
    all: bool,
    model: Option<String>,
    replica: Option<String>,
    wait: Option<String>,
    timeout: Option<String>,
    max_parallel: Option<usize>,
}

impl OrderJson {
    fn selector(self) -> Result<Selector, Problem> {
        match (self.all, self.model, self.replica) {
            (true, None, None) => Ok(Selector::All),
            (false, Some(model), None) => Ok(Selector::Model(model)),
            (false, None, Some(key)) => Ok(Selector::Replica(key)),
            _ => Err(bad("no_selector", "expected one of all: true, model and replica")),
        }
    }

    fn order(&self, verb: Verb) -> Result<Order, Problem> {
        let wait = match self.wait.as_deref() {
            None | Some("exact") => Trust::Exact,
            Some("lower_bound") => Trust::LowerBound,
            Some(_) => return Err(bad("wrong_value", "wait is exact or lower_bound")),
        };
        let timeout = match self.timeout.as_deref().map(humantime::parse_duration) {
            None => TIMEOUT_DEFAULT,
            Some(Ok(timeout))
                if (1..=limits::JOB_TIMEOUT_MAX.as_millis()).contains(&timeout.as_millis()) =>
            {
                timeout
            }
            Some(_) => {
                let detail = format!(
                    "timeout is a duration such as \"120s\", up to {:?}",
                    limits::JOB_TIMEOUT_MAX
                );
                return Err(bad("wrong_value", detail));
            }
        };
        let parallel_max = self.max_parallel.unwrap_or(PARALLEL_DEFAULT);
        if !(1..=limits::JOB_PARALLEL_MAX).contains(&parallel_max) {
            let detail = format!("max_parallel is 1 to {}", limits::JOB_PARALLEL_MAX);
            return Err(bad("wrong_value", detail));
        }
        let timeout_ms = millis(timeout);
        Ok(Order { verb, trigger: Trigger::Operator, wait, timeout_ms, parallel_max })
    }
}

fn bad(reason: &'static str, detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, reason, detail)
}

#[derive(Serialize)]
struct JobsJson {
    jobs: Vec<JobJson>,
}

#[derive(Serialize)]
struct JobJson {
    id: u64,
    verb: &'static str,
    trigger: &'static str,
    state: &'static str,
    wait: &'static str,
    timeout_ms: u64,
    max_parallel: usize,
    replicas: Vec<MemberJson>,
}

#[derive(Serialize)]
struct MemberJson {
    key: String,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    trust: &'static str,
    trust_reason: &'static str,
}

impl JobJson {
    /// As far as the grant lets see; a job of other models alone is as if it were not there.
    fn of(id: u64, job: &Job, grant: &Grant) -> Option<JobJson> {
        let order = job.order();
        let seen = job.members().iter().filter(|member| grant.sees(&member.model));
        let replicas: Vec<MemberJson> = seen.map(MemberJson::of).collect();
        (!replicas.is_empty()).then(|| JobJson {
            id,
            verb: order.verb.as_str(),
            trigger: order.trigger.as_str(),
            state: job.outcome().as_str(),
            wait: order.wait.as_str(),
            timeout_ms: order.timeout_ms,
            max_parallel: order.parallel_max,
            replicas,
        })
    }
}

impl MemberJson {
    fn of(member: &Member) -> MemberJson {
        let detail = match member.state {
            MemberState::Failed(failure) => Some(failure.to_string()),
            MemberState::Waiting | MemberState::Asked { .. } | MemberState::Done => None,
        };
        MemberJson {
            key: member.key.to_string(),
            state: member.state.as_str(),
            reason: member.state.reason(),
            detail,
            trust: member.standing.0.as_str(),
            trust_reason: member.standing.1,
        }
    }
}

pub(super) async fn resync(
    State(Api(api)): State<Api>,
    Extension(grant): Extension<Arc<Grant>>,
    request: Request,
) -> Result<Response, Problem> {
    order(&api, &grant, request, Verb::Resync).await
}

pub(super) async fn flush(
    State(Api(api)): State<Api>,
    Extension(grant): Extension<Arc<Grant>>,
    request: Request,
) -> Result<Response, Problem> {
    order(&api, &grant, request, Verb::Flush).await
}

async fn order(
    api: &Shared,
    grant: &Grant,
    request: Request,
    verb: Verb,
) -> Result<Response, Problem> {
    let bytes = body::read(api, request, limits::JOB_BODY_BYTES_MAX).await?;
    let wanted: OrderJson = body::parse(&bytes)?;
    let order = wanted.order(verb)?;
    let selector = wanted.selector()?;
    let ordered = api.foreman.order(order, &selector, |model| grant.sees(model));
    let id = ordered.ok_or_else(|| nobody(&selector))??;
    let job = api.foreman.job(id).ok_or_else(unknown)?;
    let shown = JobJson::of(id, &job, grant).ok_or_else(unknown)?;
    Ok((StatusCode::ACCEPTED, json(&shown)).into_response())
}

/// A model or replica that is not granted is as if it were not there.
fn nobody(selector: &Selector) -> Problem {
    let of = |reason, detail| Problem::new(StatusCode::NOT_FOUND, reason, detail);
    match selector {
        Selector::All => of("no_replicas", "no replica is read"),
        Selector::Model(_) => of("unknown_model", "no replica is of this model"),
        Selector::Replica(_) => Problem::unknown_replica(),
    }
}

impl From<TooManyJobs> for Problem {
    fn from(error: TooManyJobs) -> Problem {
        Problem::new(StatusCode::CONFLICT, "too_many_jobs", error.to_string())
    }
}

fn unknown() -> Problem {
    let detail = "no job of this number; GET /v1/jobs lists those that are kept";
    Problem::new(StatusCode::NOT_FOUND, "unknown_job", detail)
}

pub(super) async fn all(
    State(Api(api)): State<Api>,
    Extension(grant): Extension<Arc<Grant>>,
) -> Response {
    let jobs = api.foreman.jobs();
    let shown = jobs.iter().filter_map(|(id, job)| JobJson::of(*id, job, &grant));
    json(&JobsJson { jobs: shown.collect() })
}

pub(super) async fn one(
    State(Api(api)): State<Api>,
    Extension(grant): Extension<Arc<Grant>>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let (id, job) = seen(&api, &grant, &id)?;
    Ok(json(&JobJson::of(id, &job, &grant).ok_or_else(unknown)?))
}

pub(super) async fn cancel(
    State(Api(api)): State<Api>,
    Extension(grant): Extension<Arc<Grant>>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let (id, job) = seen(&api, &grant, &id)?;
    if job.members().iter().any(|member| !grant.sees(&member.model)) {
        let detail = "the job is of other models too";
        return Err(Problem::new(StatusCode::FORBIDDEN, "model_restricted", detail));
    }
    let job = api.foreman.cancel(id).ok_or_else(unknown)?;
    Ok(json(&JobJson::of(id, &job, &grant).ok_or_else(unknown)?))
}

/// A job that the grant lets see.
fn seen(api: &Shared, grant: &Grant, id: &str) -> Result<(u64, Job), Problem> {
    let id: u64 = id.parse().map_err(|_| unknown())?;
    let job = api.foreman.job(id).ok_or_else(unknown)?;
    let is_seen = job.members().iter().any(|member| grant.sees(&member.model));
    is_seen.then_some((id, job)).ok_or_else(unknown)
}
