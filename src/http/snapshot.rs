//! GET /v1/replicas/{key}/snapshot: one line a (block, tier, group), parents before children. Salts
//! are shown with `?tokens=true` only.

use std::sync::Arc;

use axum::{
    Extension,
    body::{Body, Bytes},
    extract::{Path, State},
    http::{HeaderValue, Uri, header},
    response::Response,
};
use kvbridge_schemas::{SCHEMA_VERSION, codec};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::{Api, Grant, Problem, admission::replica, json_bytes, replicas::NameJson};
use crate::{config::limits, pipeline::ViewCut};

#[derive(Serialize)]
struct Header<'a> {
    v: u16,
    replica: NameJson<'a>,
    epoch: u64,
    resume_seq: u64,
    trust: &'static str,
    blocks: usize,
}

#[derive(Serialize)]
struct End {
    end: bool,
    blocks: usize,
}

pub(super) async fn stream(
    State(Api(api)): State<Api>,
    Extension(grant): Extension<Arc<Grant>>,
    Path(key): Path<String>,
    uri: Uri,
) -> Result<Response, Problem> {
    let (_, handle) = replica(&api, &grant, &key)?;
    let shows_tokens = grant.shows_tokens(uri.query())?;
    let permit = Arc::clone(&api.snapshot_readers)
        .try_acquire_owned()
        .map_err(|_| Problem::too_many_readers(limits::SNAPSHOT_READER_COUNT_MAX))?;
    let cut = handle.cut().await?;
    let queue = usize::try_from(limits::SNAPSHOT_QUEUE_CHUNKS).unwrap_or(1);
    let (lines, lines_rx) = mpsc::channel(queue);
    // Ordering parents before children walks the whole view: not on a thread that serves matches.
    tokio::task::spawn_blocking(move || write(&cut, shows_tokens, &lines, permit));
    let chunks = futures::stream::unfold(lines_rx, async |mut chunks| {
        let chunk: Bytes = chunks.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(chunk), chunks))
    });
    let mut response = Response::new(Body::from_stream(chunks));
    let kind = HeaderValue::from_static("application/x-ndjson");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// Sends all lines; ends early when the reader has gone, which it sees by the missing last line.
fn write(
    cut: &ViewCut,
    shows_tokens: bool,
    lines: &mpsc::Sender<Bytes>,
    permit: OwnedSemaphorePermit,
) {
    let records = cut.view.snapshot();
    let blocks = records.len();
    let mut chunk = json_bytes(&Header {
        v: SCHEMA_VERSION,
        replica: NameJson::of(&cut.header.replica),
        epoch: cut.header.epoch.0,
        resume_seq: cut.header.resume_seq.0,
        trust: cut.header.trust.as_str(),
        blocks,
    });
    chunk.push(b'\n');
    let chunk_records = usize::try_from(limits::SNAPSHOT_CHUNK_RECORDS).unwrap_or(1);
    for part in records.chunks(chunk_records) {
        for record in part {
            let line = if shows_tokens {
                codec::to_json_string(record)
            } else {
                codec::to_json_redacted_string(record)
            };
            chunk.extend_from_slice(line.as_bytes());
            chunk.push(b'\n');
        }
        if lines.blocking_send(std::mem::take(&mut chunk).into()).is_err() {
            return;
        }
    }
    chunk.extend(json_bytes(&End { end: true, blocks }));
    chunk.push(b'\n');
    // The reader may have gone; nobody is left to be told.
    drop(lines.blocking_send(chunk.into()));
    drop(permit);
}
