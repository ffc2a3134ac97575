//! An answer of the engine's server: its bytes up to a limit, or why there are none.

use reqwest::{Response, StatusCode};

use crate::fault::BodyError;

/// Why a request brought nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PollError {
    #[error("no answer: {}", root(.0))]
    Request(#[from] reqwest::Error),
    #[error("answered {0}")]
    Status(StatusCode),
    #[error(transparent)]
    Body(#[from] BodyError),
}

/// What caused it all; the chain above repeats the address.
fn root(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// A body, up to its limit.
pub(crate) async fn read(mut response: Response, max: usize) -> Result<Vec<u8>, PollError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > max {
            return Err(BodyError::TooLarge { max }.into());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}
