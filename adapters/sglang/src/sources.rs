//! Where the ranks publish, as the engine's server tells it.

use kvbridge_adapters_api::{EventSources, RankStream, SourcesFault, Streams};
use serde_json::Value;

use crate::server_info::{self, EndpointBase, ServerInfoError};

/// Fields that every answer of this engine has, whether it publishes or not. None of them alone is
/// its own.
const OWN_FIELDS: [&str; 2] = ["page_size", "speculative_algorithm"];

/// Reads an answer of `/server_info`. A host that is everywhere is `*`.
pub fn read_sources(body: &[u8]) -> Result<EventSources, SourcesFault> {
    let info = server_info::read(body).map_err(|error| fault(body, &error))?;
    let streams = (0..info.dp_size).map(|rank| {
        let beside = |base: &Option<EndpointBase>| {
            base.as_ref().map(|base| endpoint(base, rank)).transpose()
        };
        Ok(RankStream {
            rank,
            endpoint: endpoint(&info.live, rank)?,
            replay: beside(&info.replay)?,
            snapshot: beside(&info.snapshot)?,
            topic: info.topic.clone(),
        })
    });
    let streams = streams.collect::<Result<_, _>>()?;
    let streams = Streams::Published(streams);
    let block_size = Some(info.block_size);
    Ok(EventSources { model: info.model, block_size, algorithm: None, streams })
}

fn fault(body: &[u8], error: &ServerInfoError) -> SourcesFault {
    match error {
        ServerInfoError::NotAnObject => SourcesFault::Foreign,
        ServerInfoError::NotPublishing if is_own(body) => SourcesFault::NotPublishing,
        ServerInfoError::NotPublishing => SourcesFault::Foreign,
        ServerInfoError::TooLarge { .. } => SourcesFault::Unusable("length"),
        ServerInfoError::OtherPublisher => SourcesFault::Unusable("publisher"),
        ServerInfoError::Ranks { .. } => SourcesFault::Unusable("dp_size"),
        ServerInfoError::Field { field } | ServerInfoError::Ports { field } => {
            SourcesFault::Unusable(field)
        }
    }
}

/// Other engines have that path too.
fn is_own(body: &[u8]) -> bool {
    let Ok(Value::Object(info)) = serde_json::from_slice(body) else { return false };
    let has = |field: &str| info.contains_key(field);
    has("kv_events") || OWN_FIELDS.iter().all(|field| has(field))
}

fn endpoint(base: &EndpointBase, rank: u32) -> Result<String, SourcesFault> {
    let host = base.host.as_deref().unwrap_or("*");
    let port = base.port_of(rank).ok_or(SourcesFault::Unusable("dp_size"))?;
    // A bare IPv6 address needs its brackets before a port.
    let is_bare = host.contains(':') && !host.starts_with('[');
    Ok(if is_bare { format!("tcp://[{host}]:{port}") } else { format!("tcp://{host}:{port}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_follow_the_first_ranks() {
        let body = br#"{"served_model_name": "llama", "page_size": 16, "kv_events": {
            "publisher": "zmq", "endpoint_host": "*", "endpoint_port_base": 5657,
            "topic": "kv@sgl", "block_size": 16, "dp_size": 2,
            "replay_endpoint_port_base": 5757, "snapshot_endpoint_host": "10.0.0.9",
            "snapshot_endpoint_port_base": 5857}}"#;
        let read = read_sources(body).expect("sources");
        assert_eq!(read.model.as_deref(), Some("llama"));
        let Streams::Published(streams) = read.streams else { panic!("published") };
        let seen: Vec<_> = streams
            .iter()
            .map(|it| (it.rank, it.endpoint.as_str(), it.replay.as_deref(), it.topic.as_str()))
            .collect();
        assert_eq!(
            seen,
            [
                (0, "tcp://*:5657", Some("tcp://*:5757"), "kv@sgl"),
                (1, "tcp://*:5658", Some("tcp://*:5758"), "kv@sgl"),
            ]
        );
        let snapshots: Vec<_> = streams.iter().map(|it| it.snapshot.as_deref()).collect();
        assert_eq!(snapshots, [Some("tcp://10.0.0.9:5857"), Some("tcp://10.0.0.9:5858")]);
        let v6 = br#"{"kv_events": {"publisher": "zmq", "endpoint_host": "::",
            "endpoint_port_base": 1, "block_size": 16}}"#;
        let Streams::Published(streams) = read_sources(v6).expect("sources").streams else {
            panic!("published")
        };
        let endpoints: Vec<_> = streams.iter().map(|it| it.endpoint.as_str()).collect();
        assert_eq!(endpoints, ["tcp://*:1"]);
    }

    #[test]
    fn an_answer_without_sources_says_why() {
        let of = |events: &str| {
            read_sources(
                format!(
                    "{{\"kv_events\": {{\"publisher\": \"zmq\", \"block_size\": 16{events}}}}}"
                )
                .as_bytes(),
            )
        };
        let unusable = |field| Err(SourcesFault::Unusable(field));
        assert_eq!(of(""), unusable("endpoint_port_base"));
        assert_eq!(of(", \"endpoint_port_base\": 0"), unusable("endpoint_port_base"));
        assert_eq!(of(", \"endpoint_port_base\": 65536"), unusable("endpoint_port_base"));
        assert_eq!(of(", \"endpoint_port_base\": 1, \"dp_size\": 0"), unusable("dp_size"));
        assert_eq!(
            of(", \"endpoint_port_base\": 1, \"dp_size\": 99999999999"),
            unusable("dp_size")
        );
        assert_eq!(
            of(", \"endpoint_port_base\": 65535, \"dp_size\": 2"),
            unusable("endpoint_port_base")
        );
        for (body, fault) in [
            (r#"{"kv_events": null}"#, SourcesFault::NotPublishing),
            (r#"{"page_size": 1, "speculative_algorithm": null}"#, SourcesFault::NotPublishing),
            (r#"{"kv_events": {"publisher": "null"}}"#, SourcesFault::NotPublishing),
            (r#"{"kv_events": {"publisher": "x"}}"#, SourcesFault::Unusable("publisher")),
            (r#"{"tokens_per_block": 32}"#, SourcesFault::Foreign),
            ("5", SourcesFault::Foreign),
        ] {
            assert_eq!(read_sources(body.as_bytes()), Err(fault), "{body}");
        }
    }
}
