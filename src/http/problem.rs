//! Errors as RFC 9457 problem documents, each with a named `reason` that a program can match on.

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;

use crate::{index::QueryError, pipeline::AskError};

/// Why a request was refused. `detail` never shows a value of the request: token ids and salts are
/// customers' secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// HTTP status.
    pub status: StatusCode,
    /// One word, stable.
    pub reason: &'static str,
    /// What was expected and what came.
    pub detail: String,
}

#[derive(Serialize)]
struct Document<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    reason: &'a str,
}

impl Problem {
    /// A problem of that status and name.
    pub fn new(status: StatusCode, reason: &'static str, detail: impl Into<String>) -> Problem {
        Problem { status, reason, detail: detail.into() }
    }

    /// The path names nothing.
    pub fn not_found() -> Problem {
        Problem::new(StatusCode::NOT_FOUND, "not_found", "no such path")
    }

    /// The path is there, the method is not.
    pub fn method() -> Problem {
        let detail = "the path does not take this method";
        Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail)
    }

    /// No replica of that key.
    pub fn unknown_replica() -> Problem {
        let detail = "no replica of this key; GET /v1/replicas lists them";
        Problem::new(StatusCode::NOT_FOUND, "unknown_replica", detail)
    }

    /// So many readers are the limit.
    pub fn too_many_readers(max: u32) -> Problem {
        let detail = format!("{max} readers are the limit");
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_readers", detail)
    }
}

impl From<QueryError> for Problem {
    fn from(error: QueryError) -> Problem {
        let status = match &error {
            QueryError::UnknownModel => StatusCode::NOT_FOUND,
            QueryError::BlockSize { .. } => StatusCode::CONFLICT,
        };
        Problem::new(status, error.as_str(), error.to_string())
    }
}

impl From<AskError> for Problem {
    fn from(error: AskError) -> Problem {
        let reason = match error {
            AskError::Busy => "busy",
            AskError::Stopped => "stopped",
        };
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, reason, error.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let document = Document {
            r#type: format!("urn:kvbridge:problem:{}", self.reason),
            title: self.status.canonical_reason().unwrap_or("error"),
            status: self.status.as_u16(),
            detail: &self.detail,
            reason: self.reason,
        };
        let json = HeaderValue::from_static("application/problem+json");
        let mut response = Response::new(Body::from(super::json_bytes(&document)));
        *response.status_mut() = self.status;
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        if self.status == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
        }
        response
    }
}
