//! Lets requests in, or not: every route but the two health checks asks for a scope.

use axum::{
    extract::{Request, State},
    http::StatusCode,
    middleware::Next,
    response::{IntoResponse, Response},
};
use kvbridge_schemas::ReplicaKey;

use super::{
    Api, Problem, Shared,
    access::{Grant, Scope},
};
use crate::{clock::Clock, pipeline::ReplicaHandle};

/// For routes that show something.
pub(super) async fn read(State(api): State<Api>, request: Request, next: Next) -> Response {
    admit(&api, Scope::Read, request, next).await
}

/// For routes that change something.
pub(super) async fn write(State(api): State<Api>, request: Request, next: Next) -> Response {
    admit(&api, Scope::Write, request, next).await
}

/// For routes that report what came of requests.
pub(super) async fn report(State(api): State<Api>, request: Request, next: Next) -> Response {
    admit(&api, Scope::Report, request, next).await
}

async fn admit(Api(api): &Api, scope: Scope, mut request: Request, next: Next) -> Response {
    let admitted = api.access.now().admit(request.headers(), Clock::unix_ms());
    match admitted.and_then(|grant| grant.require(scope).map(|()| grant)) {
        Ok(grant) => {
            request.extensions_mut().insert(grant);
            let response = next.run(request).await;
            if response.status() == StatusCode::FORBIDDEN {
                api.metrics.denied.increment(1);
            }
            response
        }
        Err(problem) => {
            api.metrics.denied.increment(1);
            problem.into_response()
        }
    }
}

/// The replica of that key. One of a model that is not granted is as if it were not there.
pub(super) fn replica(
    api: &Shared,
    grant: &Grant,
    key: &str,
) -> Result<(ReplicaKey, ReplicaHandle), Problem> {
    let found = api.pipeline.fleet.replica(key);
    let seen = found.filter(|(_, handle)| grant.sees(&handle.replica.model));
    seen.ok_or_else(Problem::unknown_replica)
}
