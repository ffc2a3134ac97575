//! A running kvbridge, asked how it stands.

use reqwest::{Client, StatusCode};
use serde_json::Value;

use super::Say;
use crate::{
    config::{Secret, limits},
    doctor::{AlarmSight, BridgeSight, DrainSight, ReplicaSight},
    web_client,
};

/// A kvbridge, and how it is asked.
pub(crate) struct BridgeOrder {
    /// Where it is, without a slash at its end.
    pub(crate) url: String,
    /// What asks it.
    pub(crate) client: Client,
    /// The token that it wants.
    pub(crate) token: Option<Secret>,
    /// The names that a router sends to.
    pub(crate) router: Option<Vec<String>>,
}

/// How it stands.
pub(crate) async fn bridge(order: BridgeOrder, say: Say<'_>) -> BridgeSight {
    say(&format!("asking {} how it stands", order.url));
    match look(&order).await {
        Ok(sight) => BridgeSight { router: order.router, ..sight },
        Err(why) => BridgeSight { unreachable: Some(why), ..BridgeSight::default() },
    }
}

async fn look(order: &BridgeOrder) -> Result<BridgeSight, String> {
    let (status, ready) = get(order, "/readyz").await?;
    let unready = (status != StatusCode::OK).then(|| {
        let reason = ready["reason"].as_str().unwrap_or("no reason");
        format!("{} {reason}", status.as_u16())
    });
    let replicas = known(order, "/v1/replicas").await?;
    let alarms = known(order, "/v1/alarms").await?;
    let list = |value: &Value, name: &str| value[name].as_array().cloned().unwrap_or_default();
    Ok(BridgeSight {
        unreachable: None,
        unready,
        replicas: list(&replicas, "replicas").iter().map(replica).collect(),
        alarms: list(&alarms, "alarms").iter().map(alarm).collect(),
        router: None,
    })
}

/// An answer that must be one.
async fn known(order: &BridgeOrder, path: &str) -> Result<Value, String> {
    match get(order, path).await? {
        (StatusCode::OK, value) => Ok(value),
        (status, value) => {
            let reason = value["reason"].as_str().unwrap_or_default();
            Err(format!("{path} was answered {} {reason}", status.as_u16()))
        }
    }
}

async fn get(order: &BridgeOrder, path: &str) -> Result<(StatusCode, Value), String> {
    let failed = |error: reqwest::Error| format!("{path}: {}", web_client::root(&error));
    let mut request = order.client.get(format!("{}{path}", order.url));
    request = request.timeout(limits::DISCOVERY_DEADLINE);
    if let Some(token) = &order.token {
        request = request.bearer_auth(token.expose());
    }
    let response = request.send().await.map_err(failed)?;
    let status = response.status();
    let max = limits::DISCOVERY_BYTES_MAX;
    let body = web_client::body(response, max).await.map_err(failed)?;
    let body = body.ok_or_else(|| format!("{path} was answered with over {max} bytes"))?;
    // What is no JSON has nothing that is looked for.
    Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}

fn replica(value: &Value) -> ReplicaSight {
    ReplicaSight {
        key: text(value, "key"),
        instance: text(&value["replica"], "instance"),
        trust: text(value, "trust"),
        reason: text(value, "reason"),
        drain: value["drain"].as_object().map(|_| drain(&value["drain"])),
    }
}

fn drain(value: &Value) -> DrainSight {
    let count = |name: &str| value[name].as_u64().unwrap_or(0);
    DrainSight {
        requests: count("requests"),
        empty: count("empty"),
        at_once: count("at_once"),
        absent: count("absent"),
        open_ms: count("open_ms"),
        events: count("events"),
        too_long: count("too_long"),
        is_competing: value["competing"] == true,
    }
}

fn alarm(value: &Value) -> AlarmSight {
    AlarmSight {
        replica: text(value, "replica"),
        alarm: text(value, "alarm"),
        is_critical: value["severity"] == "critical",
        meaning: text(value, "meaning"),
        first_look: text(value, "first_look"),
        action: text(value, "action"),
    }
}
