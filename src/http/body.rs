//! Bodies of requests: whole and in time, or a refusal that shows nothing of them.

use axum::{
    body::Bytes,
    extract::{FromRequest, Request},
    http::StatusCode,
};
use serde::de::DeserializeOwned;

use super::{Problem, Shared};

/// The whole body. `bytes_max` is what the route takes, for the refusal.
pub(super) async fn read(
    api: &Shared,
    request: Request,
    bytes_max: usize,
) -> Result<Bytes, Problem> {
    let body = Bytes::from_request(request, &());
    let body = tokio::time::timeout(api.body_deadline, body).await.map_err(|_| {
        let detail = format!("the body took over {:?}", api.body_deadline);
        Problem::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", detail)
    })?;
    body.map_err(|rejection| {
        if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
            let detail = format!("the body has over {bytes_max} bytes");
            return Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail);
        }
        let detail = "the body could not be read";
        Problem::new(StatusCode::BAD_REQUEST, "unreadable_body", detail)
    })
}

/// Says where and what kind, never the value that came: it may be a token id or a salt.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let parsed = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.inner();
        let text = inner.to_string();
        let (reason, detail) = if inner.is_syntax() || inner.is_eof() {
            ("not_json", format!("the body is not JSON, column {}", inner.column()))
        } else if text.starts_with("unknown field") {
            ("unknown_field", format!("unknown field {path}"))
        } else if text.starts_with("missing field") {
            // Without the line and column that follow: the body is one object.
            let field = text.split(" at line ").next().unwrap_or("missing field");
            ("missing_field", field.to_owned())
        } else {
            ("wrong_value", format!("{path} has another type or value than expected"))
        };
        Problem::new(StatusCode::BAD_REQUEST, reason, detail)
    });
    let request = parsed?;
    deserializer.end().map_err(|_| {
        Problem::new(StatusCode::BAD_REQUEST, "not_json", "something follows the JSON object")
    })?;
    Ok(request)
}
