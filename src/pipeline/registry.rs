//! The only place that names engines: which are built in, how their frames decode, and how one of
//! their sources is opened.

use kvbridge_adapters_api::Batch;
use kvbridge_schemas::EngineKind;

const ENGINES: &[&str] = &[
    #[cfg(feature = "vllm")]
    "vllm",
];

/// The engines of this build, by the name that configuration, flags and envelopes use.
pub fn engine_names() -> impl Iterator<Item = &'static str> {
    ENGINES.iter().copied()
}

/// One live message, as far as it could be read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decoding {
    /// What could be read; absent when the body as a whole could not.
    pub batch: Option<Batch>,
    /// What could not, one text each. They show no value of the wire.
    pub faults: Vec<String>,
}

/// Decodes one live message (topic, seq, payload) without any memory of others.
pub fn decode(engine: &EngineKind, frames: &[Vec<u8>]) -> Decoding {
    let [_topic, seq, payload, ..] = frames else {
        let fault = format!("expected 3 frames (topic, seq, payload), {} came", frames.len());
        return Decoding { batch: None, faults: vec![fault] };
    };
    match engine {
        #[cfg(feature = "vllm")]
        EngineKind::Vllm => vllm::decode(seq, payload),
        other => {
            let fault = format!("engine {} is not part of this build", other.as_str());
            Decoding { batch: None, faults: vec![fault] }
        }
    }
}

#[cfg(feature = "vllm")]
mod vllm {
    use kvbridge_adapters_vllm::{Decoded, Decoder, EventFault};

    use super::Decoding;

    pub(super) fn decode(seq: &[u8], payload: &[u8]) -> Decoding {
        match Decoder::default().decode(seq, payload) {
            Ok(Decoded::EndMarker) => Decoding::default(),
            Ok(Decoded::Batch(decoded)) => match decoded.body {
                Some(error) => Decoding { batch: None, faults: vec![error.to_string()] },
                None => Decoding {
                    batch: Some(decoded.batch),
                    faults: decoded.faults.iter().map(describe).collect(),
                },
            },
            Err(error) => Decoding { batch: None, faults: vec![error.to_string()] },
        }
    }

    fn describe(fault: &EventFault) -> String {
        let tag = fault.tag.as_deref().map(|tag| format!(" {tag:?}")).unwrap_or_default();
        let field = fault.field.map(|field| format!(", field {field}")).unwrap_or_default();
        format!("event {} not read: {}{tag}{field}", fault.index, fault.reason)
    }
}
