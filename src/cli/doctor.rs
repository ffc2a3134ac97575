//! `kvbridge doctor`: what is wrong with an engine's events, or with a kvbridge that reads them.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    AccessArgs, BridgeError, CliError, Console, Exit, bridge, examples, nats_args::file_error,
    signal,
};
use crate::{
    checkup::{self, BridgeOrder, Order},
    config::{Problems, SourceFile},
    doctor::{self, Finding, Severity},
};

/// Look at an engine or a running kvbridge and say what is wrong and what to change
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = examples::DOCTOR)]
pub struct DoctorArgs {
    /// An engine: its server, http://host:port, or its event endpoint, tcp://host:port
    #[arg(value_name = "URL_OR_ENDPOINT", required_unless_present = "kvbridge")]
    at: Option<String>,
    /// Which engine it is, where it does not tell
    #[arg(long, value_name = "NAME", value_parser = crate::pipeline::registry::engine_names().collect::<Vec<_>>())]
    engine: Option<String>,
    /// Where its first rank publishes, where its server does not tell
    #[arg(long, value_name = "ENDPOINT")]
    endpoint: Option<String>,
    /// Where its journal answers, likewise
    #[arg(long, value_name = "ENDPOINT")]
    replay: Option<String>,
    /// Data-parallel ranks, likewise
    #[arg(long, value_name = "N")]
    dp: Option<u32>,
    /// ZeroMQ topic prefix
    #[arg(long, value_name = "PREFIX")]
    topic: Option<String>,
    /// The served model's name, for --probe
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// How the engine hashes its blocks, as hash_scheme of a source
    #[arg(long, value_name = "NAME")]
    hash_scheme: Option<String>,
    /// The seed of its first blocks, as hash_seed of a source
    #[arg(long, value_name = "TEXT", requires = "hash_scheme")]
    hash_seed: Option<String>,
    /// How long to listen for events
    #[arg(long, value_name = "SPAN", default_value = "10s", value_parser = humantime::parse_duration)]
    listen: Duration,
    /// Send tiny completions, one a second and rank, to make events flow
    #[arg(long)]
    probe: bool,
    /// Take the events of an engine that publishes none: whoever else reads it loses them
    #[arg(long)]
    drain: bool,
    /// A running kvbridge
    #[arg(long, value_name = "URL")]
    kvbridge: Option<String>,
    /// A file with the names that a router sends requests to, one a line
    #[arg(long, value_name = "FILE", requires = "kvbridge")]
    router_endpoints: Option<PathBuf>,
    #[command(flatten)]
    access: AccessArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Why `doctor` could not begin.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// The engine's options are wrong.
    #[error(transparent)]
    Options(#[from] Problems),
    /// A file cannot be read, or is of no use.
    #[error(transparent)]
    File(#[from] BridgeError),
}

impl DoctorError {
    pub(super) fn exit(&self) -> Exit {
        Exit::BadInput
    }
}

impl DoctorArgs {
    pub(super) async fn execute(self, console: &mut Console<'_>) -> Result<Exit, CliError> {
        let mut stop = signal::Stop::new()?;
        let looked = {
            let mut say = |text: &str| console.message(text);
            let look = Box::pin(self.look(&mut say));
            tokio::select! {
                exit = stop.wait() => return Ok(exit),
                looked = look => looked?,
            }
        };
        self.show(console, &looked)?;
        console.out.flush()?;
        Ok(match doctor::worst(&looked) {
            Severity::Ok | Severity::Note => Exit::Ok,
            Severity::Warning => Exit::FoundWarnings,
            Severity::Error => Exit::FoundErrors,
        })
    }

    async fn look(&self, say: checkup::Say<'_>) -> Result<Vec<Finding>, DoctorError> {
        // Bad arguments are said before anything is waited for.
        let bridge = self.kvbridge.as_deref().map(|url| self.bridge(url)).transpose()?;
        let mut found = Vec::new();
        if let Some(at) = &self.at {
            let order = Order {
                source: self.source(at),
                listen: self.listen,
                probe: self.probe,
                drain: self.drain,
            };
            found.extend(doctor::engine(&checkup::engine(&order, &mut *say).await?));
        }
        if let Some(order) = bridge {
            found.extend(doctor::bridge(&checkup::bridge(order, say).await));
        }
        Ok(found)
    }

    /// The engine, as the configuration would name it.
    fn source(&self, at: &str) -> SourceFile {
        let is_server = ["http://", "https://"].iter().any(|scheme| at.starts_with(scheme));
        let at = Some(at.to_owned());
        let (url, endpoint) = if is_server { (at, self.endpoint.clone()) } else { (None, at) };
        SourceFile {
            engine: self.engine.clone(),
            url,
            endpoint,
            replay: self.replay.clone(),
            dp: self.dp,
            topic: self.topic.clone(),
            model: self.model.clone(),
            hash_scheme: self.hash_scheme.clone(),
            hash_seed: self.hash_seed.clone(),
            ..SourceFile::default()
        }
    }

    fn bridge(&self, url: &str) -> Result<BridgeOrder, BridgeError> {
        let token = self.access.token_file.as_deref().map(bridge::one_line).transpose()?;
        let router = self.router_endpoints.as_deref().map(names).transpose()?;
        let client = bridge::client(&self.access.tls, url)?;
        let url = url.trim_end_matches('/').to_owned();
        Ok(BridgeOrder { url, client, token, router })
    }

    fn show(&self, console: &mut Console<'_>, found: &[Finding]) -> std::io::Result<()> {
        if self.json {
            let findings: Vec<Value> = found.iter().map(json_of).collect();
            let severity = doctor::worst(found).as_str();
            return console.line(&json!({"severity": severity, "findings": findings}).to_string());
        }
        for finding in found {
            let Finding { about, subject, detail, cause, setting } = finding;
            let of = if subject.is_empty() { String::new() } else { format!(" {subject}:") };
            let seen = if detail.is_empty() { String::new() } else { format!(" ({detail})") };
            let (severity, id, meaning) = (about.severity, about.id, about.meaning);
            console.line(&format!("{severity:<8} {id}:{of} {meaning}{seen}"))?;
            for (name, text) in [("likely", cause), ("change", setting)] {
                if !text.is_empty() {
                    console.line(&format!("         {name}: {text}"))?;
                }
            }
        }
        let count = |severity| found.iter().filter(|it| it.about.severity == severity).count();
        let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
        console.line(&format!("{errors} errors, {warnings} warnings"))
    }
}

fn json_of(finding: &Finding) -> Value {
    json!({
        "id": finding.about.id,
        "severity": finding.about.severity.as_str(),
        "subject": finding.subject,
        "meaning": finding.about.meaning,
        "detail": finding.detail,
        "cause": finding.cause,
        "setting": finding.setting,
    })
}

/// The names in a file, as they are: what is wrong about one is to be found.
fn names(path: &Path) -> Result<Vec<String>, BridgeError> {
    let text = std::fs::read_to_string(path).map_err(|error| file_error(path, error))?;
    let lines = text.split('\n').filter(|line| !line.trim().is_empty());
    Ok(lines.filter(|line| !line.starts_with('#')).map(str::to_owned).collect())
}
