//! `kvbridge resync` and `kvbridge flush`: order a job of a running kvbridge and see it through.

use std::{collections::BTreeMap, time::Duration};

use clap::ValueEnum;
use reqwest::{RequestBuilder, Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    AccessArgs, CliError, Console, Exit,
    bridge::{self, BridgeError},
    examples, signal,
};

/// Between two looks at the job. Shorter: requests for nothing. Longer: progress comes in jumps.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// Most bytes that a job may have: one of some ten thousand replicas.
const JOB_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Bring replicas of a running kvbridge back to a proven state
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = examples::RESYNC)]
pub struct ResyncArgs {
    #[command(flatten)]
    job: JobArgs,
}

/// Have engines empty their caches, and wait until the views show it
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = examples::FLUSH)]
pub struct FlushArgs {
    #[command(flatten)]
    job: JobArgs,
}

/// What both orders have.
#[derive(Clone, Debug, clap::Args)]
struct JobArgs {
    /// A running kvbridge
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8090")]
    url: String,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    which: WhichArgs,
    /// Trust that each replica must come to
    #[arg(long, value_name = "TRUST", default_value = "exact")]
    wait: Wait,
    /// How long each may take from when it is asked
    #[arg(long, value_name = "SPAN", default_value = "120s")]
    timeout: String,
    /// Engines asked at a time
    #[arg(long, value_name = "N", default_value_t = 2)]
    max_parallel: usize,
    /// Print the job as JSON, one line whenever it changed
    #[arg(long)]
    json: bool,
}

/// Which replicas.
#[derive(Clone, Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct WhichArgs {
    /// All replicas
    #[arg(long)]
    all: bool,
    /// Those of a model
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// One, by its key
    #[arg(long, value_name = "KEY")]
    replica: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Wait {
    Exact,
    LowerBound,
}

impl Wait {
    fn as_str(self) -> &'static str {
        match self {
            Wait::Exact => "exact",
            Wait::LowerBound => "lower_bound",
        }
    }
}

/// A job as the API shows it.
#[derive(Deserialize)]
struct JobJson {
    id: u64,
    state: String,
    wait: String,
    replicas: Vec<MemberJson>,
}

#[derive(Clone, Deserialize, PartialEq)]
struct MemberJson {
    key: String,
    state: String,
    reason: Option<String>,
    detail: Option<String>,
    trust: String,
    trust_reason: String,
}

impl MemberJson {
    fn line(&self) -> String {
        let MemberJson { key, state, reason, detail, trust, trust_reason } = self;
        let mut line = format!("{key}: {state}");
        if let Some(reason) = reason {
            line.push_str(&format!(" ({reason})"));
        }
        if state == "failed" || state == "done" {
            let standing = [trust, trust_reason].map(String::as_str);
            line.push_str(&format!(", trust {}", standing.join(" ").trim_end()));
        }
        if let Some(detail) = detail {
            line.push_str(&format!("; {detail}"));
        }
        line
    }
}

impl ResyncArgs {
    pub(super) async fn execute(self, console: &mut Console<'_>) -> Result<Exit, CliError> {
        self.job.execute("resync", console).await
    }
}

impl FlushArgs {
    pub(super) async fn execute(self, console: &mut Console<'_>) -> Result<Exit, CliError> {
        self.job.execute("flush", console).await
    }
}

impl JobArgs {
    async fn execute(self, verb: &str, console: &mut Console<'_>) -> Result<Exit, CliError> {
        let mut stop = signal::Stop::new()?;
        let client = Client::new(&self)?;
        let body = client.order(verb, &self).await?;
        let job = read(&body, &client.base)?;
        let (path, wanted) = (format!("/v1/jobs/{}", job.id), job.replicas.len());
        if !self.json {
            let all = format!("job {}: {verb} of {wanted} replicas to {}", job.id, job.wait);
            console.line(&all)?;
        }
        let mut progress = Progress { is_json: self.json, shown: BTreeMap::new(), last: None };
        progress.show(body, job, console)?;
        while progress.is_running() {
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {
                    let body = client.get(&path).await?;
                    let job = read(&body, &client.base)?;
                    progress.show(body, job, console)?;
                }
                _ = stop.wait() => {
                    let body = client.cancel(&path).await?;
                    let job = read(&body, &client.base)?;
                    progress.show(body, job, console)?;
                    return Ok(Exit::Interrupted);
                }
            }
        }
        Ok(progress.end(console)?)
    }
}

/// What was shown of a job.
struct Progress {
    is_json: bool,
    shown: BTreeMap<String, MemberJson>,
    last: Option<(String, JobJson)>,
}

impl Progress {
    fn show(
        &mut self,
        body: String,
        job: JobJson,
        console: &mut Console<'_>,
    ) -> std::io::Result<()> {
        let is_new = self.last.as_ref().is_none_or(|(before, _)| *before != body);
        if self.is_json && is_new {
            console.line(&body)?;
        }
        for member in
            job.replicas.iter().filter(|member| !self.is_json && member.state != "waiting")
        {
            // Trust moves while it is waited for; a line is for what the job says.
            let said = |it: &MemberJson| (it.state.clone(), it.reason.clone());
            let before = self.shown.insert(member.key.clone(), member.clone());
            if before.as_ref().map(said) != Some(said(member)) {
                console.line(&member.line())?;
            }
        }
        self.last = Some((body, job));
        console.out.flush()
    }

    fn is_running(&self) -> bool {
        self.last.as_ref().is_some_and(|(_, job)| job.state == "running")
    }

    /// All reached, or not.
    fn end(self, console: &mut Console<'_>) -> std::io::Result<Exit> {
        let Some((_, job)) = self.last else { return Ok(Exit::Failed) };
        let done = job.replicas.iter().filter(|member| member.state == "done").count();
        if !self.is_json {
            let (all, wait) = (job.replicas.len(), &job.wait);
            console.line(&format!("{done} of {all} replicas reached {wait}"))?;
            console.out.flush()?;
        }
        Ok(if job.state == "reached" { Exit::Ok } else { Exit::NotReached })
    }
}

/// The kvbridge that is asked.
struct Client<'a> {
    client: reqwest::Client,
    access: &'a AccessArgs,
    base: String,
    token: Option<crate::config::Secret>,
}

impl<'a> Client<'a> {
    fn new(args: &'a JobArgs) -> Result<Client<'a>, BridgeError> {
        let base = args.url.trim_end_matches('/').to_owned();
        let client = bridge::client(&args.access.tls, &base)?;
        let token = args.access.token_file.as_deref().map(bridge::one_line).transpose()?;
        Ok(Client { client, access: &args.access, base, token })
    }

    async fn order(&self, verb: &str, args: &JobArgs) -> Result<String, BridgeError> {
        let mut order = json!({
            "wait": args.wait.as_str(), "timeout": args.timeout, "max_parallel": args.max_parallel,
        });
        let (which, value) = match (&args.which.model, &args.which.replica) {
            (Some(model), _) => ("model", json!(model)),
            (None, Some(replica)) => ("replica", json!(replica)),
            (None, None) => ("all", Value::Bool(args.which.all)),
        };
        order[which] = value;
        let url = format!("{}/v1/{verb}", self.base);
        self.send(self.client.post(&url).body(order.to_string()), url).await
    }

    async fn get(&self, path: &str) -> Result<String, BridgeError> {
        let url = format!("{}{path}", self.base);
        self.send(self.client.get(&url), url).await
    }

    async fn cancel(&self, path: &str) -> Result<String, BridgeError> {
        let url = format!("{}{path}", self.base);
        self.send(self.client.delete(&url), url).await
    }

    async fn send(&self, request: RequestBuilder, url: String) -> Result<String, BridgeError> {
        let request = match &self.token {
            Some(token) => request.bearer_auth(token.expose()),
            None => request,
        };
        let failed = |source| self.access.tls.no_answer(&url, source);
        let response: Response = request.send().await.map_err(failed)?;
        if ![StatusCode::OK, StatusCode::ACCEPTED].contains(&response.status()) {
            return Err(bridge::refusal(response, url).await);
        }
        let text = bridge::text_up_to(response, JOB_BYTES_MAX).await;
        text.ok_or(BridgeError::NotOurs { url })
    }
}

fn read(body: &str, url: &str) -> Result<JobJson, BridgeError> {
    serde_json::from_str(body).map_err(|_| BridgeError::NotOurs { url: url.to_owned() })
}
