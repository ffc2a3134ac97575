//! `GET /server_info`: the block `kv_events` says where the ranks publish.

use kvbridge_adapters_api::{EventSources, RANK_COUNT_MAX, RankStream, SourcesFault, Streams};
use serde_json::{Map, Value};

/// Fields that every answer of this engine has, whether it publishes or not. None of them alone is
/// its own.
const OWN_FIELDS: [&str; 2] = ["page_size", "speculative_algorithm"];

/// Reads an answer. Ports of ranks follow the first one's; hosts may be wildcards.
pub fn read_sources(body: &[u8]) -> Result<EventSources, SourcesFault> {
    let Ok(Value::Object(info)) = serde_json::from_slice(body) else {
        return Err(SourcesFault::Foreign);
    };
    let events = match info.get("kv_events") {
        Some(Value::Object(events)) => events,
        Some(Value::Null) => return Err(SourcesFault::NotPublishing),
        None if OWN_FIELDS.iter().all(|field| info.contains_key(*field)) => {
            return Err(SourcesFault::NotPublishing);
        }
        Some(_) | None => return Err(SourcesFault::Foreign),
    };
    if text(events, "publisher").is_none_or(|publisher| publisher != "zmq") {
        return Err(SourcesFault::Unusable("publisher"));
    }
    let rank_count = match events.get("dp_size") {
        None | Some(Value::Null) => 1,
        Some(count) => count.as_u64().ok_or(SourcesFault::Unusable("dp_size"))?,
    };
    if rank_count == 0 || rank_count > RANK_COUNT_MAX as u64 {
        return Err(SourcesFault::Unusable("dp_size"));
    }
    let host = text(events, "endpoint_host").unwrap_or("*");
    let replay_host = text(events, "replay_endpoint_host").unwrap_or(host);
    let port = port_of(events, "endpoint_port_base")?.ok_or(SourcesFault::Unusable("endpoint"))?;
    let replay = port_of(events, "replay_endpoint_port_base")?;
    let topic = text(events, "topic").unwrap_or_default();
    let streams = (0..rank_count).map(|rank| {
        Ok(RankStream {
            rank: u32::try_from(rank).map_err(|_| SourcesFault::Unusable("dp_size"))?,
            endpoint: endpoint(host, port, rank)?,
            replay: replay.map(|port| endpoint(replay_host, port, rank)).transpose()?,
            topic: topic.to_owned(),
        })
    });
    Ok(EventSources {
        model: text(&info, "served_model_name").map(str::to_owned),
        streams: Streams::Published(streams.collect::<Result<_, _>>()?),
    })
}

fn text<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    fields.get(name).and_then(Value::as_str)
}

/// A port that may be absent; 0 is one that is not known.
fn port_of(fields: &Map<String, Value>, name: &'static str) -> Result<Option<u16>, SourcesFault> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            let port = value.as_u64().and_then(|port| u16::try_from(port).ok());
            port.filter(|port| *port > 0).map(Some).ok_or(SourcesFault::Unusable(name))
        }
    }
}

fn endpoint(host: &str, base: u16, rank: u64) -> Result<String, SourcesFault> {
    let port = u64::from(base) + rank;
    if port > u64::from(u16::MAX) {
        return Err(SourcesFault::Unusable("dp_size"));
    }
    // A bare IPv6 address needs its brackets before a port.
    let bare = host.contains(':') && !host.starts_with('[');
    Ok(if bare { format!("tcp://[{host}]:{port}") } else { format!("tcp://{host}:{port}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_follow_the_first_ranks() {
        let body = br#"{"served_model_name": "llama", "page_size": 16, "kv_events": {
            "publisher": "zmq", "endpoint_host": "*", "endpoint_port_base": 5657,
            "topic": "kv@sgl", "block_size": 16, "dp_size": 2,
            "replay_endpoint_port_base": 5757}}"#;
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
        let v6 = br#"{"kv_events": {"publisher": "zmq", "endpoint_host": "::",
            "endpoint_port_base": 1}}"#;
        let Streams::Published(streams) = read_sources(v6).expect("sources").streams else {
            panic!("published")
        };
        let endpoints: Vec<_> = streams.iter().map(|it| it.endpoint.as_str()).collect();
        assert_eq!(endpoints, ["tcp://[::]:1"]);
    }

    #[test]
    fn an_answer_without_sources_says_why() {
        let of = |events: &str| {
            read_sources(
                format!("{{\"kv_events\": {{\"publisher\": \"zmq\"{events}}}}}").as_bytes(),
            )
        };
        let unusable = |field| Err(SourcesFault::Unusable(field));
        assert_eq!(of(""), unusable("endpoint"));
        assert_eq!(of(", \"endpoint_port_base\": 0"), unusable("endpoint_port_base"));
        assert_eq!(of(", \"endpoint_port_base\": 65536"), unusable("endpoint_port_base"));
        assert_eq!(of(", \"endpoint_port_base\": 1, \"dp_size\": 0"), unusable("dp_size"));
        assert_eq!(
            of(", \"endpoint_port_base\": 1, \"dp_size\": 99999999999"),
            unusable("dp_size")
        );
        assert_eq!(of(", \"endpoint_port_base\": 65535, \"dp_size\": 2"), unusable("dp_size"));
        for (body, fault) in [
            (r#"{"kv_events": null}"#, SourcesFault::NotPublishing),
            (r#"{"page_size": 1, "speculative_algorithm": null}"#, SourcesFault::NotPublishing),
            (r#"{"kv_events": {"publisher": "null"}}"#, SourcesFault::Unusable("publisher")),
            (r#"{"tokens_per_block": 32}"#, SourcesFault::Foreign),
            ("5", SourcesFault::Foreign),
        ] {
            assert_eq!(read_sources(body.as_bytes()), Err(fault), "{body}");
        }
    }
}
