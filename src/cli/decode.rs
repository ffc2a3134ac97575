//! `kvbridge decode`: recorded frames → envelopes, one JSON object a line. Keeps no state, so that
//! a line depends on its frames alone.

use std::{
    fs::File,
    io::{self, BufReader},
    path::PathBuf,
};

use clap::builder::PossibleValuesParser;
use kvbridge_schemas::{Engine, EngineKind, Envelope, Epoch, Replica, Trust, codec};

use super::{Console, Exit, examples};
use crate::{
    capture::{CaptureError, CaptureReader, Recorded, Socket},
    pipeline::registry::{self, Decoding},
};

/// Model name of decoded envelopes: a recording does not tell it.
const MODEL: &str = "capture";

/// A live message has a topic, a seq and a payload.
const LIVE_FRAME_COUNT_MIN: usize = 3;

/// Print the envelopes of recorded frames, one JSON object a line
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = examples::DECODE)]
pub struct DecodeArgs {
    /// Engine that sent the frames
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(registry::engine_names()))]
    engine: String,
    /// Recording
    file: PathBuf,
}

impl DecodeArgs {
    pub(super) fn execute(&self, console: &mut Console<'_>) -> io::Result<Exit> {
        let file = match File::open(&self.file) {
            Ok(file) => file,
            Err(error) => {
                console.message(&format!("cannot read {}: {error}", self.file.display()));
                return Ok(Exit::Failed);
            }
        };
        let engine = EngineKind::from_name(&self.engine);
        let mut exit = Exit::Ok;
        for (line, read) in CaptureReader::new(BufReader::new(file)) {
            let name = self.file.display();
            match read {
                Ok(recorded) if is_live(&recorded) => {
                    let decoding = registry::decode(&engine, &recorded.frames);
                    for fault in &decoding.faults {
                        console.message(&format!("{name}:{line}: {fault}"));
                        exit = Exit::BadInput;
                    }
                    if let Some(envelope) = envelope(&engine, &recorded, decoding) {
                        console.line(&codec::to_json_string(&envelope))?;
                    }
                }
                Ok(_) => (),
                Err(CaptureError::Read(error)) => {
                    console.message(&format!("{name}:{line}: cannot read: {error}"));
                    return Ok(Exit::Failed);
                }
                Err(error) => {
                    console.message(&format!("{name}:{line}: {error}"));
                    exit = Exit::BadInput;
                }
            }
        }
        console.out.flush()?;
        Ok(exit)
    }
}

fn is_live(recorded: &Recorded) -> bool {
    recorded.socket == Socket::LiveIn && recorded.frames.len() >= LIVE_FRAME_COUNT_MIN
}

/// The envelope of one live message, as if nothing came before it.
fn envelope(engine: &EngineKind, recorded: &Recorded, decoding: Decoding) -> Option<Envelope> {
    let batch = decoding.batch?;
    let instance = recorded.endpoint.strip_prefix("tcp://").unwrap_or(&recorded.endpoint);
    Some(Envelope {
        replica: Replica {
            model: MODEL.to_owned(),
            instance: instance.to_owned(),
            rank: batch.rank.unwrap_or(0),
        },
        epoch: Epoch(0),
        incarnation: batch.incarnation,
        seq: batch.seq,
        span: batch.span,
        digest: batch.digest,
        trust: Trust::None,
        ts: batch.ts,
        engine: Engine { kind: engine.clone(), format: batch.format.to_owned() },
        hash: batch.hash,
        events: batch.events,
    })
}
