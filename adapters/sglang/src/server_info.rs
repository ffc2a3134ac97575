//! What an engine says of its own sockets: the answer to `GET /server_info`.
//!
//! The answer holds the whole configuration of a server, some hundred keys; a few of them matter
//! here. Absent means not said: a release that does not publish, or does not tell.

use serde::Deserialize;
use serde_json::Value;

/// Where to ask, in this order: the second path is that of older releases.
pub const SERVER_INFO_PATHS: [&str; 2] = ["/server_info", "/get_server_info"];

/// Largest answer that is read: real ones are some kilobytes.
pub const SERVER_INFO_BYTES_MAX: usize = 1 << 20;

/// Most ranks that are believed. The largest deployments published use a few hundred.
const DP_SIZE_MAX: u32 = 1_024;

/// Longest host, topic or model name.
const TEXT_BYTES_MAX: usize = 4_096;

/// Where rank 0 of a socket is; rank r is at `port` + r.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointBase {
    /// The host; `None` = the engine binds all, so that its own address is the one to connect to.
    pub host: Option<String>,
    /// The port of rank 0.
    pub port: u16,
}

impl EndpointBase {
    /// The port of a rank; `None` past the last port there is.
    pub fn port_of(&self, rank: u32) -> Option<u16> {
        u16::try_from(u32::from(self.port).checked_add(rank)?).ok()
    }
}

/// What is needed to read an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// Where events are published.
    pub live: EndpointBase,
    /// Where the journal answers, when it says so.
    pub replay: Option<EndpointBase>,
    /// Where `snapshot-v1` answers (drafts), when it says so.
    pub snapshot: Option<EndpointBase>,
    /// Topic prefix.
    pub topic: String,
    /// Tokens in a page, as events count them.
    pub block_size: u32,
    /// Publishers, one for each independent cache.
    pub dp_size: u32,
    /// The served model's name, when it says so.
    pub model: Option<String>,
    /// Drafting by pairs of tokens: pages cover one token more than they have pairs.
    pub bigram: bool,
    /// A host tier (`HiCache`) may hold what the device does not; `None` = not said.
    pub host_tier: Option<bool>,
}

/// Why an answer is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerInfoError {
    /// Longer than any engine's.
    #[error("the answer has {bytes} bytes, limit {SERVER_INFO_BYTES_MAX}")]
    TooLarge {
        /// How many came.
        bytes: usize,
    },
    /// Not a JSON object.
    #[error("the answer is no JSON object")]
    NotAnObject,
    /// It has no `kv_events`: the engine does not publish, or is too old to say so.
    #[error("the engine does not say that it publishes KV-cache events")]
    NotPublishing,
    /// It publishes by other means than ZeroMQ.
    #[error("the engine publishes by other means than zmq")]
    OtherPublisher,
    /// A field is absent or not what it is in any release.
    #[error("field {field} of kv_events is missing or not as in any known release")]
    Field {
        /// Which.
        field: &'static str,
    },
    /// More ranks than any deployment has.
    #[error("{came} ranks, limit {DP_SIZE_MAX}")]
    Ranks {
        /// How many.
        came: u64,
    },
    /// The last rank's port is beyond the last there is.
    #[error("no port is left for the last rank of {field}")]
    Ports {
        /// Which socket.
        field: &'static str,
    },
}

/// The whole answer, as far as it matters. Fields that other servers type otherwise are values, so
/// that one odd setting does not hide the rest.
#[derive(Deserialize)]
struct Answer {
    kv_events: Option<Value>,
    served_model_name: Option<Value>,
    model_path: Option<Value>,
    speculative_algorithm: Option<Value>,
    enable_hierarchical_cache: Option<Value>,
}

/// Reads the body of an answer.
pub fn read(json: &[u8]) -> Result<ServerInfo, ServerInfoError> {
    if json.len() > SERVER_INFO_BYTES_MAX {
        return Err(ServerInfoError::TooLarge { bytes: json.len() });
    }
    let answer: Answer = serde_json::from_slice(json).map_err(|_| ServerInfoError::NotAnObject)?;
    let events = answer.kv_events.filter(|events| !events.is_null());
    let events = events.ok_or(ServerInfoError::NotPublishing)?;
    match events.get("publisher").and_then(Value::as_str) {
        Some("zmq") => (),
        Some("null") => return Err(ServerInfoError::NotPublishing),
        Some(_) => return Err(ServerInfoError::OtherPublisher),
        None => return Err(ServerInfoError::Field { field: "publisher" }),
    }
    let dp_size = dp_size(&events)?;
    let live = base(&events, ["endpoint_host", "endpoint_port_base"], dp_size)?
        .ok_or(ServerInfoError::Field { field: "endpoint_port_base" })?;
    let beside = |mut base: EndpointBase| {
        // Only its port is told: the host is the publisher's.
        base.host = base.host.or_else(|| live.host.clone());
        base
    };
    let replay = base(&events, ["replay_endpoint_host", "replay_endpoint_port_base"], dp_size)?;
    let snapshot =
        base(&events, ["snapshot_endpoint_host", "snapshot_endpoint_port_base"], dp_size)?;
    let algorithm = answer.speculative_algorithm.as_ref().and_then(Value::as_str);
    Ok(ServerInfo {
        replay: replay.map(beside),
        snapshot: snapshot.map(beside),
        topic: text(&events, "topic")?.unwrap_or_default(),
        block_size: block_size(&events)?,
        dp_size,
        model: name(answer.served_model_name).or_else(|| name(answer.model_path)),
        bigram: matches!(algorithm, Some("EAGLE" | "EAGLE3" | "NEXTN" | "FROZEN_KV_MTP")),
        host_tier: answer.enable_hierarchical_cache.as_ref().and_then(Value::as_bool),
        live,
    })
}

fn dp_size(events: &Value) -> Result<u32, ServerInfoError> {
    let field = ServerInfoError::Field { field: "dp_size" };
    let came = match events.get("dp_size") {
        None | Some(Value::Null) => return Ok(1),
        Some(size) => size.as_u64().filter(|size| *size > 0).ok_or(field)?,
    };
    let size = u32::try_from(came).ok().filter(|size| *size <= DP_SIZE_MAX);
    size.ok_or(ServerInfoError::Ranks { came })
}

fn block_size(events: &Value) -> Result<u32, ServerInfoError> {
    let size = events.get("block_size").and_then(Value::as_u64);
    let size = size.and_then(|size| u32::try_from(size).ok()).filter(|size| *size > 0);
    size.ok_or(ServerInfoError::Field { field: "block_size" })
}

/// A socket, when its port is told; all ranks must have one.
fn base(
    events: &Value,
    [host, port]: [&'static str; 2],
    dp_size: u32,
) -> Result<Option<EndpointBase>, ServerInfoError> {
    let number = match events.get(port) {
        None | Some(Value::Null) => return Ok(None),
        Some(number) => number.as_u64().and_then(|number| u16::try_from(number).ok()),
    };
    let number = number.filter(|number| *number > 0);
    let number = number.ok_or(ServerInfoError::Field { field: port })?;
    let host = text(events, host)?.filter(|host| !is_wildcard(host));
    let base = EndpointBase { host, port: number };
    match base.port_of(dp_size - 1) {
        Some(_) => Ok(Some(base)),
        None => Err(ServerInfoError::Ports { field: port }),
    }
}

fn is_wildcard(host: &str) -> bool {
    matches!(host, "" | "*" | "0.0.0.0" | "::" | "[::]")
}

fn text(events: &Value, field: &'static str) -> Result<Option<String>, ServerInfoError> {
    match events.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.len() <= TEXT_BYTES_MAX => Ok(Some(text.clone())),
        Some(_) => Err(ServerInfoError::Field { field }),
    }
}

fn name(value: Option<Value>) -> Option<String> {
    let name = value?.as_str()?.to_owned();
    (!name.is_empty() && name.len() <= TEXT_BYTES_MAX).then_some(name)
}
