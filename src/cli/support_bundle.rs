//! `kvbridge support-bundle`: what whoever helps needs to see of a running kvbridge, in one JSON
//! document. No token ids, salts or hashes: envelopes and snapshots are not asked for, and secrets
//! of the configuration show as `***`.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use futures::StreamExt;
use serde_json::{Map, Value, json};

use super::{
    CliError, ConfigArgs, ConfigError, Console, Environment, Exit, TlsArgs,
    bridge::{self, BridgeError},
    examples,
    sse::SseReader,
    version,
};
use crate::{clock::Clock, config::Flags};

/// Most bytes of one answer: metrics of a thousand replicas are a tenth of it.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Most changes that are kept: a replica that flaps shows in the first of them.
const CHANGES_MAX: usize = 10_000;

/// What is asked, and what it is called in the document.
const ANSWERS: &[(&str, &str)] = &[
    ("ready", "/readyz"),
    ("replicas", "/v1/replicas"),
    ("alarms", "/v1/alarms"),
    ("sources", "/v1/sources"),
    ("metrics", "/metrics"),
];

/// Collect what whoever helps needs to see, without prompts and secrets
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = examples::SUPPORT_BUNDLE)]
pub struct SupportBundleArgs {
    /// A running kvbridge
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8090")]
    url: String,
    #[command(flatten)]
    tls: TlsArgs,
    /// A token with the scope read, in a file
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigArgs,
    /// How long changes of trust are listened to
    #[arg(long, value_name = "SPAN", default_value = "3s", value_parser = humantime::parse_duration)]
    listen: Duration,
    /// Where it is written [default: the output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl SupportBundleArgs {
    pub(super) async fn execute(
        self,
        environment: &Environment,
        console: &mut Console<'_>,
    ) -> Result<Exit, CliError> {
        let configuration = self.configuration(environment)?;
        let client = bridge::client(&self.tls, &self.url)?;
        let token = self.token_file.as_deref().map(bridge::one_line).transpose()?;
        let base = self.url.trim_end_matches('/').to_owned();
        let get = |path: &str| {
            let request = client.get(format!("{base}{path}"));
            token.iter().fold(request, |request, token| request.bearer_auth(token.expose()))
        };
        let mut bundle = Map::new();
        bundle.insert("version".to_owned(), json!(version()));
        bundle.insert("made_unix_ms".to_owned(), json!(Clock::unix_ms()));
        bundle.insert("url".to_owned(), json!(self.url));
        bundle.insert("configuration".to_owned(), configuration);
        for (name, path) in ANSWERS {
            let answer = self.answer(get(path)).await?;
            bundle.insert((*name).to_owned(), answer);
        }
        let changes = self.changes(get("/v1/events")).await?;
        bundle.insert("changes".to_owned(), changes);
        let text = format!("{:#}\n", Value::Object(bundle));
        match &self.out {
            Some(path) => {
                write_private(path, &text)?;
                console.message(&format!("{} bytes in {}", text.len(), path.display()));
            }
            None => console.out.write_all(text.as_bytes())?,
        }
        Ok(Exit::Ok)
    }

    /// The configuration here, which need not be that of the kvbridge at the address.
    fn configuration(&self, environment: &Environment) -> Result<Value, CliError> {
        match self.config.load(environment, Flags::default()) {
            Ok(_) => {
                let shown = self.config.shown(environment)?;
                Ok(serde_json::to_value(shown).unwrap_or_default())
            }
            // Not the values: what stands in a wrong place may be a secret.
            Err(ConfigError::Wrong(problems)) => {
                let paths: Vec<&str> = problems.0.iter().map(|it| it.path.as_str()).collect();
                Ok(json!({ "problems": paths }))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// What is answered, or why it is not: a refusal is a part of the picture.
    async fn answer(&self, request: reqwest::RequestBuilder) -> Result<Value, BridgeError> {
        let failed = |source| self.tls.no_answer(&self.url, source);
        let response = request.send().await.map_err(failed)?;
        let status = response.status();
        let mut bytes = Vec::new();
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            bytes.extend_from_slice(&chunk.map_err(failed)?);
            if bytes.len() > ANSWER_BYTES_MAX {
                return Ok(json!({ "left_out": "too large" }));
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        let answer =
            serde_json::from_str(&text).unwrap_or_else(|_| json!(text.lines().collect::<Vec<_>>()));
        Ok(if status.is_success() { answer } else { json!({ "refused": answer }) })
    }

    /// Standings as they are and as they change meanwhile; envelopes are left out.
    async fn changes(&self, request: reqwest::RequestBuilder) -> Result<Value, BridgeError> {
        let failed = |source| self.tls.no_answer(&self.url, source);
        let response = request.send().await.map_err(failed)?;
        let (mut reader, mut said) = (SseReader::default(), Vec::new());
        let mut chunks = response.bytes_stream();
        let listened = async {
            while let Some(chunk) = chunks.next().await {
                let mut events = Vec::new();
                if reader.read(&chunk.map_err(failed)?, &mut events).is_err() {
                    break;
                }
                for event in events.into_iter().filter(|event| event.name != "envelope") {
                    let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
                    let heard = Clock::unix_ms();
                    said.push(json!({ "heard_unix_ms": heard, "event": event.name, "data": data }));
                }
                if said.len() >= CHANGES_MAX {
                    break;
                }
            }
            Ok::<(), BridgeError>(())
        };
        // That the time is over is how it ends.
        tokio::time::timeout(self.listen, listened).await.unwrap_or(Ok(()))?;
        Ok(Value::Array(said))
    }
}

/// Hosts and models are nobody else's business on a shared machine.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    use std::{io::Write, os::unix::fs::OpenOptionsExt};
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path)?.write_all(text.as_bytes())
}
