//! One request to one engine: which it is, and where its events are.

use kvbridge_adapters_api::{EventSources, SourcesFault};
use kvbridge_schemas::EngineKind;
use reqwest::StatusCode;
use serde_json::Value;

use crate::{
    config::{EngineConfig, Told, limits},
    discovery::{Address, Answer, Refusal},
    pipeline::registry::{self, Question},
    web_client,
};

/// What every engine's OpenAI-like server lists its models at.
const MODELS_PATH: &str = "/v1/models";

/// Longest name of a model that is believed; it stands in keys and labels.
const MODEL_BYTES_MAX: usize = 512;

/// Asks engines. The client is made once: it holds the connections.
pub(crate) struct Asker {
    plain: Result<reqwest::Client, String>,
    encrypted: Result<reqwest::Client, String>,
}

/// What a path answered.
pub(crate) enum Page {
    Body(Vec<u8>),
    /// The server has no such path.
    Absent,
}

impl Asker {
    pub(crate) fn new() -> Asker {
        let client = |url| {
            let client = web_client::builder([url]).timeout(limits::DISCOVERY_DEADLINE).build();
            client.map_err(|error| error.to_string())
        };
        Asker { plain: client("http://"), encrypted: client("https://") }
    }

    /// Where the events of the engine at that address are.
    pub(crate) async fn ask(&self, engine: &EngineConfig, address: &Address) -> Answer<Told> {
        let url = engine.url(address);
        let mut told = match self.sources(engine, &url).await {
            Ok(told) => told,
            Err(answer) => return answer,
        };
        if engine.model.is_none() && told.model.is_none() {
            told.model = match self.page(&url, MODELS_PATH).await {
                Ok(Page::Body(body)) => served_model(&body),
                Ok(Page::Absent) => None,
                // Another name would be another replica: better none than one for now.
                Err(refusal) => return Answer::Failed(refusal),
            };
        }
        // What it told must be of use before it takes the place of what it told before.
        match engine.sources(address, &told) {
            Ok(_) => Answer::Told(told),
            Err(error) => refused(error.reason(), error.to_string()),
        }
    }

    async fn sources(&self, engine: &EngineConfig, url: &str) -> Result<Told, Answer<Told>> {
        let mut pages: Vec<(&str, Page)> = Vec::new();
        let mut claims: Vec<(&Question, Result<EventSources, SourcesFault>)> = Vec::new();
        for question in registry::questions(engine.engine.as_ref()) {
            for path in question.paths {
                if !pages.iter().any(|(known, _)| known == path) {
                    let page = self.page(url, path).await.map_err(Answer::Failed)?;
                    pages.push((path, page));
                }
                let page = pages.iter().find(|(known, _)| known == path);
                let Some((_, Page::Body(body))) = page else { continue };
                let read = (question.read)(body);
                if read != Err(SourcesFault::Foreign) {
                    claims.push((question, read));
                }
                break;
            }
        }
        match claims.as_slice() {
            [(question, Ok(sources))] => Ok(Told {
                engine: EngineKind::from_name(question.engine),
                model: sources.model.clone().filter(|model| is_name(model)),
                streams: Some(sources.streams.clone()),
                block_size: sources.block_size,
                algorithm: sources.algorithm.clone(),
            }),
            [(_, Err(fault @ SourcesFault::NotPublishing))] => {
                let refusal = Refusal { reason: "not_publishing", detail: fault.to_string() };
                Err(Answer::Nothing(refusal))
            }
            [(_, Err(fault))] => Err(refused("unreadable", fault.to_string())),
            [] => configured(engine, pages.iter().any(|(_, page)| matches!(page, Page::Body(_)))),
            [_, _, ..] => {
                let names: Vec<&str> = claims.iter().map(|(it, _)| it.engine).collect();
                let detail = format!("could be {}: name the engine", names.join(" or "));
                Err(refused("ambiguous", detail))
            }
        }
    }

    /// Up to [`limits::DISCOVERY_BYTES_MAX`] of what is at that path.
    pub(crate) async fn page(&self, url: &str, path: &str) -> Result<Page, Refusal> {
        let refusal =
            |reason, detail: String| Refusal { reason, detail: format!("{path} {detail}") };
        let is_plain = url.get(..5).is_some_and(|head| head.eq_ignore_ascii_case("http:"));
        let client = if is_plain { &self.plain } else { &self.encrypted };
        let client = client.as_ref().map_err(|error| refusal("no_client", error.clone()))?;
        let unanswered = |error: reqwest::Error| {
            let reason = if error.is_timeout() { "timed_out" } else { "no_answer" };
            refusal(reason, format!("was not answered: {}", web_client::root(&error)))
        };
        let response = client.get(format!("{url}{path}")).send().await.map_err(unanswered)?;
        match response.status() {
            StatusCode::OK => (),
            StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::NOT_IMPLEMENTED => {
                return Ok(Page::Absent);
            }
            status => {
                return Err(refusal("refused", format!("was answered {}", status.as_u16())));
            }
        }
        let max = limits::DISCOVERY_BYTES_MAX;
        match web_client::body(response, max).await.map_err(unanswered)? {
            Some(body) => Ok(Page::Body(body)),
            None => Err(refusal("too_large", format!("was answered with over {max} bytes"))),
        }
    }
}

/// What is known of an engine that tells nothing: the configuration, if it says enough.
fn configured(engine: &EngineConfig, answered: bool) -> Result<Told, Answer<Told>> {
    let known = engine.engine.as_ref();
    if let Some(kind) = known.filter(|kind| engine.endpoint.is_some() || registry::is_polled(kind))
    {
        let (model, streams, block_size, algorithm) = (None, None, None, None);
        return Ok(Told { engine: kind.clone(), model, streams, block_size, algorithm });
    }
    if answered {
        return Err(refused(
            "unknown_engine",
            "its answer is of no engine of this build".to_owned(),
        ));
    }
    let detail = "does not tell where its events are: name engine and endpoint".to_owned();
    Err(refused("not_offered", detail))
}

fn refused(reason: &'static str, detail: String) -> Answer<Told> {
    Answer::Failed(Refusal { reason, detail })
}

/// The first model that is not an adapter of another one.
fn served_model(body: &[u8]) -> Option<String> {
    let list: Value = serde_json::from_slice(body).ok()?;
    let models = list.get("data")?.as_array()?;
    let base = |model: &&Value| model.get("parent").is_none_or(Value::is_null);
    let name = models.iter().find(base)?.get("id")?.as_str()?;
    is_name(name).then(|| name.to_owned())
}

fn is_name(model: &str) -> bool {
    !model.is_empty() && model.len() <= MODEL_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{FileText, Flags, load};

    #[test]
    fn the_served_model_is_no_adapter() {
        let list =
            br#"{"data": [{"id": "lora", "parent": "llama"}, {"id": "llama", "parent": null}]}"#;
        assert_eq!(served_model(list).as_deref(), Some("llama"));
        assert_eq!(served_model(br#"{"data": [{"id": "m"}]}"#).as_deref(), Some("m"));
        for body in [&b"{}"[..], b"[]", br#"{"data": []}"#, br#"{"data": [{"id": ""}]}"#, b"x"] {
            assert_eq!(served_model(body), None);
        }
    }

    /// What an engine of that kind told whose server has nothing but that path.
    async fn told_at(path: &'static str, body: &'static str) -> Answer<Told> {
        let server =
            axum::Router::new().route(path, axum::routing::get(move || async move { body }));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move { axum::serve(listener, server).await });
        let text = format!("[[sources]]\nurl = \"http://127.0.0.1:{port}\"\nmodel = \"m\"");
        let file = FileText { name: "ask".to_owned(), text };
        let config = load(Some(&file), &[], Flags::default()).unwrap();
        let address = Address { host: "127.0.0.1".to_owned(), port, ip: None };
        Asker::new().ask(&config.engines[0], &address).await
    }

    #[cfg(feature = "sglang")]
    #[tokio::test]
    async fn a_server_with_the_older_path_alone_is_asked_there() {
        const INFO: &str = r#"{"kv_events": {"publisher": "zmq", "endpoint_host": "*",
            "endpoint_port_base": 5657, "block_size": 16, "dp_size": 1}}"#;
        for path in kvbridge_adapters_sglang::server_info::SERVER_INFO_PATHS {
            let Answer::Told(told) = told_at(path, INFO).await else { panic!("{path}") };
            assert_eq!(told.engine, EngineKind::Sglang, "{path}");
        }
        assert!(matches!(told_at("/info", INFO).await, Answer::Failed(_)));
    }
}
