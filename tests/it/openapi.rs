//! `docs/openapi.json` against the program: every route is in it and the other way round, its
//! examples fit its schemas, and so does what a running process answers, field by field.

use std::{collections::BTreeSet, fs};

use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    bridge::Bridge,
    harness::until,
    oracle::Text,
    peer::{Peer, capture, root, scratch},
};

fn document() -> Value {
    serde_json::from_str(include_str!("../../docs/openapi.json")).unwrap()
}

/// Method and path of everything that the document has.
fn documented(document: &Value) -> BTreeSet<(String, String)> {
    let paths = document["paths"].as_object().unwrap();
    let of = |(path, methods): (&String, &Value)| {
        let methods: Vec<_> = methods.as_object().unwrap().keys().cloned().collect();
        methods.into_iter().map(|method| (method, path.clone())).collect::<Vec<_>>()
    };
    paths.iter().flat_map(of).collect()
}

/// The same of the routes that the code makes.
fn routed() -> BTreeSet<(String, String)> {
    let mut routes = BTreeSet::new();
    for entry in fs::read_dir(root().join("src/http")).unwrap() {
        let path = entry.unwrap().path();
        // The page is for people.
        let is_page = path.ends_with("page.rs");
        if is_page || path.is_dir() || path.to_str().unwrap().ends_with("tests.rs") {
            continue;
        }
        let text = fs::read_to_string(path).unwrap();
        for route in text.split(".route(").skip(1) {
            let route = route.split(';').next().unwrap();
            let Some(path) = route.split('"').nth(1) else { continue };
            let methods = ["get", "post", "put", "patch", "delete"];
            let made = methods.into_iter().filter(|it| {
                let call = format!("{it}(");
                [" ", ".", ")"].iter().any(|before| route.contains(&format!("{before}{call}")))
            });
            routes.extend(made.map(|method| (method.to_owned(), path.to_owned())));
        }
    }
    routes
}

#[test]
fn every_route_is_documented_and_every_documented_one_is_there() {
    let routed = routed();
    assert!(routed.len() > 10, "the routes are not found: {routed:?}");
    assert_eq!(routed, documented(&document()), "src/http against docs/openapi.json");
}

#[test]
fn its_reasons_are_those_of_the_page_on_http() {
    let table = include_str!("../../docs/http.md").split("| status | `reason` |").nth(1).unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| "));
    let told: BTreeSet<&str> = rows.flat_map(|row| row.split('`').skip(1).step_by(2)).collect();
    let document = document();
    let named = &document["components"]["schemas"]["Problem"]["properties"]["reason"]["enum"];
    let named = named.as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    assert_eq!(told, named);
}

/// What an answer must be: the document lets fields be added, a test does not.
fn validator(document: &Value, schema: &Value) -> jsonschema::Validator {
    let mut whole = schema.clone();
    whole["components"] = document["components"].clone();
    close(&mut whole);
    jsonschema::draft202012::new(&whole).unwrap()
}

fn close(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.values_mut().for_each(close);
            if fields.get("properties").is_some_and(Value::is_object) {
                fields.insert("additionalProperties".to_owned(), json!(false));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => (),
    }
}

#[track_caller]
fn fits(document: &Value, schema: &Value, value: &Value) {
    let validator = validator(document, schema);
    let faults: Vec<String> = validator
        .iter_errors(value)
        .map(|fault| format!("{} at {}", fault, fault.instance_path()))
        .collect();
    assert!(faults.is_empty(), "{schema} does not describe {value}: {faults:?}");
}

#[test]
fn its_examples_fit_its_schemas() {
    let document = document();
    let mut seen = 0;
    for (method, path) in documented(&document) {
        let body = &document["paths"][&path][&method]["requestBody"]["content"];
        for media in body.as_object().into_iter().flat_map(|body| body.values()) {
            fits(&document, &media["schema"], &media["example"]);
            seen += 1;
        }
    }
    assert_eq!(seen, 7, "one for each body");
}

/// A running process beside the document that speaks of it.
struct Documented {
    bridge: Bridge,
    document: Value,
    asked: BTreeSet<(String, String)>,
}

impl Documented {
    /// Asks for what stands in the document under that path, and compares the answer with it.
    fn ask(&mut self, (method, path): (&str, &str), of: &str, body: Option<Value>) -> String {
        let operation = self.document["paths"][of][method].clone();
        assert!(operation.is_object(), "{method} {of} is not documented");
        self.asked.insert((method.to_owned(), of.to_owned()));
        let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
        let url = format!("{}{path}", self.bridge.url);
        let mut request = self.bridge.client.request(method, url);
        if let Some(body) = body {
            fits(
                &self.document,
                &operation["requestBody"]["content"]["application/json"]["schema"],
                &body,
            );
            request = request.body(body.to_string());
        }
        let response = self.bridge.block_on(request.send()).unwrap();
        let status = response.status().as_u16().to_string();
        let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
        let kind = kind.split(';').next().unwrap();
        let told = match &operation["responses"][&status] {
            Value::Null => self.document["components"]["responses"]["Problem"].clone(),
            told => told.clone(),
        };
        let schema = &told["content"][kind]["schema"];
        assert!(schema.is_object(), "{of}: {status} {kind} is not documented");
        // A stream never ends: what it says is read elsewhere.
        if kind == "text/event-stream" {
            return String::new();
        }
        let text = self.bridge.block_on(response.text()).unwrap();
        match kind {
            "application/x-ndjson" => {
                text.lines().for_each(|line| self.fits(schema, line));
            }
            "text/plain" => (),
            _ => self.fits(schema, &text),
        }
        text
    }

    #[track_caller]
    fn fits(&self, schema: &Value, text: &str) {
        fits(&self.document, schema, &serde_json::from_str(text).unwrap());
    }
}

fn ask_events(it: &mut Documented, key: &str) {
    let of = "/engines/{key}/kv_cache_events";
    let path = format!("/engines/{key}/kv_cache_events");
    let told = it.ask(("post", &format!("{path}?consumer=a")), of, None);
    assert!(told.contains("stored_block"), "{told}");
    it.ask(("get", &format!("{path}?consumer=b&tokens=true")), of, None);
    it.ask(("get", &path), of, None);
}

fn ask_jobs(it: &mut Documented, key: &str) {
    let order = Some(json!({"replica": key, "timeout": "30s"}));
    it.ask(("post", "/v1/resync"), "/v1/resync", order.clone());
    it.ask(("post", "/v1/flush"), "/v1/flush", order);
    it.ask(("post", "/v1/flush"), "/v1/flush", Some(json!({"model": "nobody's"})));
    it.ask(("get", "/v1/jobs"), "/v1/jobs", None);
    it.ask(("get", "/v1/jobs/2"), "/v1/jobs/{id}", None);
    it.ask(("delete", "/v1/jobs/1"), "/v1/jobs/{id}", None);
    it.ask(("delete", "/v1/jobs/7"), "/v1/jobs/{id}", None);
}

#[test]
fn what_a_process_answers_is_as_documented() {
    let mut peer = Peer::play(&capture("0.32.0-basic"), &[]);
    let state = scratch("openapi_state");
    let config = format!(
        "[state]\ndir = {:?}\n[[sources]]\nengine = \"vllm\"\nmodel = \"m\"\ninstance = \"i\"\n\
         endpoint = \"{}\"\nreplay = \"{}\"\npool_blocks = 1\n[view]\nblocks_max = 100000\n\
         [compat.kv_cache_events]\ntokens = true\n[[sinks]]\npreset = \"vllm\"\nlisten = \"127.0.0.1:0\"\nreplay = \"127.0.0.1:0\"\n",
        state.to_str().unwrap(),
        peer.live(),
        peer.replay()
    );
    let bridge = Bridge::run("openapi", &[], &config);
    peer.wait_subscriber();
    peer.publish(20);
    let key = bridge.reaches("exact", 20).text("key");
    bridge.until_usable(20);
    let document = document();
    let mut it = Documented { bridge, document, asked: BTreeSet::new() };
    for path in ["/healthz", "/readyz", "/metrics", "/v1/replicas", "/v1/sources", "/v1/events"] {
        it.ask(("get", path), path, None);
    }
    it.ask(("get", "/v1/replicas?changes=true"), "/v1/replicas", None);
    // More blocks than the pool that was claimed: an alarm, with all that it says.
    until("an alarm", || {
        it.ask(("get", "/v1/alarms"), "/v1/alarms", None).contains("view").then_some(())
    });
    it.ask(("get", &format!("/v1/replicas/{key}")), "/v1/replicas/{key}", None);
    it.ask(("get", "/v1/replicas/nobody"), "/v1/replicas/{key}", None);
    let path = format!("/v1/replicas/{key}/snapshot");
    let records = it.ask(("get", &path), "/v1/replicas/{key}/snapshot", None);
    assert!(records.lines().count() > 3, "{records}");
    let served = json!({"model": "m", "instance": "i", "token_ids": [1, 2, 3]});
    let with = |more: Value| {
        let mut body = served.clone();
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Some(body)
    };
    let prompt = json!({"model": "m", "token_ids": [1, 2, 3], "accept": "lower_bound"});
    it.ask(("post", "/v1/match"), "/v1/match", Some(prompt));
    it.ask(("post", "/v1/match"), "/v1/match", Some(json!({"model": "nobody's"})));
    let route =
        json!({"model": "m", "token_ids": [1, 2, 3], "candidates": [{"instance": "i", "load": 1}]});
    it.ask(("post", "/v1/route"), "/v1/route", Some(route));
    let report = with(json!({"input_tokens": 3, "cached_tokens": 1, "conversation": "c"}));
    it.ask(("post", "/v1/feedback"), "/v1/feedback", report);
    it.ask(("post", "/v1/backfill"), "/v1/backfill", with(json!({})));
    let source =
        json!({"name": "b", "engine": "vllm", "endpoint": "tcp://127.0.0.1:1", "model": "b"});
    it.ask(("post", "/v1/sources"), "/v1/sources", Some(source));
    it.ask(("get", "/v1/sources"), "/v1/sources", None);
    let sinks = it.ask(("get", "/v1/sinks"), "/v1/sinks", None);
    assert!(sinks.contains("listen"), "{sinks}");
    ask_events(&mut it, &key);
    it.ask(("delete", "/v1/sources/b"), "/v1/sources/{name}", None);
    it.ask(("delete", "/v1/sources/b"), "/v1/sources/{name}", None);
    it.ask(("post", "/v1/config/reload"), "/v1/config/reload", None);
    let resync = format!("/v1/replicas/{key}/resync");
    it.ask(("post", &resync), "/v1/replicas/{key}/resync", None);
    ask_jobs(&mut it, &key);
    for (name, data) in it.bridge.said() {
        let schema = match name.as_str() {
            "standing" => "Standing",
            "removed" => "Removed",
            "lagged" => "Lagged",
            _ => continue,
        };
        let schema = json!({"$ref": format!("#/components/schemas/{schema}")});
        fits(&it.document, &schema, &data);
    }
    assert_eq!(it.asked, documented(&it.document), "every documented operation was asked");
}
