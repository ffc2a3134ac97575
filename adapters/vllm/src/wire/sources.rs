//! `GET /kv_event_sources` (0.31 on): a map from rank to where that rank publishes.

use kvbridge_adapters_api::{EventSources, RANK_COUNT_MAX, RankStream, SourcesFault, Streams};
use serde_json::{Map, Value};

/// Reads an answer. Ports are those that were bound, hosts may be wildcards.
pub fn read_sources(body: &[u8]) -> Result<EventSources, SourcesFault> {
    let Ok(Value::Object(by_rank)) = serde_json::from_slice(body) else {
        return Err(SourcesFault::Foreign);
    };
    if by_rank.is_empty() {
        return Err(SourcesFault::NotPublishing);
    }
    if by_rank.len() > RANK_COUNT_MAX {
        return Err(SourcesFault::Unusable("rank"));
    }
    let mut streams = by_rank.iter().map(stream).collect::<Result<Vec<_>, _>>()?;
    streams.sort_by_key(|stream| stream.rank);
    let streams = Streams::Published(streams);
    Ok(EventSources { model: None, block_size: None, algorithm: None, streams })
}

fn stream((rank, config): (&String, &Value)) -> Result<RankStream, SourcesFault> {
    let (Ok(rank), Value::Object(config)) = (rank.parse(), config) else {
        return Err(SourcesFault::Foreign);
    };
    if config.get("enable_kv_cache_events") == Some(&Value::Bool(false)) {
        return Err(SourcesFault::NotPublishing);
    }
    match text(config, "publisher") {
        Some("zmq") => (),
        Some("null") => return Err(SourcesFault::NotPublishing),
        Some(_) => return Err(SourcesFault::Unusable("publisher")),
        None => return Err(SourcesFault::Foreign),
    }
    let endpoint = text(config, "endpoint").ok_or(SourcesFault::Unusable("endpoint"))?;
    let replay = text(config, "replay_endpoint").filter(|endpoint| !endpoint.is_empty());
    Ok(RankStream {
        rank,
        endpoint: endpoint.to_owned(),
        replay: replay.map(str::to_owned),
        snapshot: None,
        topic: text(config, "topic").unwrap_or_default().to_owned(),
    })
}

fn text<'a>(config: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    config.get(name).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_of_ranks_is_read_in_their_order() {
        let body = br#"{
            "10": {"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://*:5567",
                   "replay_endpoint": null, "buffer_steps": 10000, "topic": "kv"},
            "2": {"publisher": "zmq", "endpoint": "tcp://10.0.0.7:41234",
                  "replay_endpoint": "tcp://*:5659", "unknown": [1]}
        }"#;
        let stream = |rank, endpoint: &str, replay: Option<&str>, topic: &str| RankStream {
            rank,
            endpoint: endpoint.to_owned(),
            replay: replay.map(str::to_owned),
            snapshot: None,
            topic: topic.to_owned(),
        };
        let streams = vec![
            stream(2, "tcp://10.0.0.7:41234", Some("tcp://*:5659"), ""),
            stream(10, "tcp://*:5567", None, "kv"),
        ];
        let streams = Streams::Published(streams);
        let read = EventSources { model: None, block_size: None, algorithm: None, streams };
        assert_eq!(read_sources(body), Ok(read));
    }

    #[test]
    fn an_answer_without_sources_says_why() {
        for (body, fault) in [
            ("{}", SourcesFault::NotPublishing),
            (r#"{"0": {"publisher": "null"}}"#, SourcesFault::NotPublishing),
            (
                r#"{"0": {"enable_kv_cache_events": false, "publisher": "zmq"}}"#,
                SourcesFault::NotPublishing,
            ),
            (r#"{"0": {"publisher": "zmq"}}"#, SourcesFault::Unusable("endpoint")),
            (r#"{"0": {"publisher": "pigeon"}}"#, SourcesFault::Unusable("publisher")),
            (r#"{"detail": "Not Found"}"#, SourcesFault::Foreign),
            (r#"{"0": 5}"#, SourcesFault::Foreign),
            ("[]", SourcesFault::Foreign),
            ("<html>", SourcesFault::Foreign),
        ] {
            assert_eq!(read_sources(body.as_bytes()), Err(fault), "{body}");
        }
        let many: Vec<String> =
            (0..=RANK_COUNT_MAX).map(|rank| format!("\"{rank}\":{{}}")).collect();
        let body = format!("{{{}}}", many.join(","));
        assert_eq!(read_sources(body.as_bytes()), Err(SourcesFault::Unusable("rank")));
    }
}
