//! TensorRT-LLM's own words: the events of its JSON from 0.19 to 1.4, of `/server_info`, and of its
//! native stream.
//!
//! Releases are told apart by shape, because none names itself. Keys that no release to 1.4 sends
//! are skipped; what is absent is not known. This module is the only place that knows the fields.

mod event;
mod hash;
mod server_info;
pub(crate) mod stream;
mod tokens;

use serde_json::value::RawValue;

pub(crate) use event::{Data, Head, RawBlock, RawStored, read_data};
pub use server_info::{ServerInfo, read_sources};

use crate::{
    fault::BodyError,
    limits::{BODY_BYTES_MAX, EVENTS_PER_BODY_MAX},
};

/// The events of an answer, each as its bytes. Lists inside the list are of releases before 0.19.
pub(crate) fn events(body: &[u8]) -> Result<Vec<&str>, BodyError> {
    if body.len() > BODY_BYTES_MAX {
        return Err(BodyError::TooLarge { max: BODY_BYTES_MAX });
    }
    let list: Vec<&RawValue> = serde_json::from_slice(body).map_err(|_| BodyError::NotAList)?;
    let mut events = Vec::with_capacity(list.len().min(EVENTS_PER_BODY_MAX));
    for item in list {
        let text = item.get();
        if text.starts_with('[') {
            let inner: Vec<&RawValue> =
                serde_json::from_str(text).map_err(|_| BodyError::NotAList)?;
            events.extend(inner.into_iter().map(RawValue::get));
        } else {
            events.push(text);
        }
    }
    let count = events.len();
    if count > EVENTS_PER_BODY_MAX {
        return Err(BodyError::TooManyEvents { count, max: EVENTS_PER_BODY_MAX });
    }
    Ok(events)
}
