//! The two programs that read the engine: both answer the same requests, on one processor core.

use std::{
    fs,
    io::{BufRead, BufReader, Read as _},
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use crate::{engine::Engine, stream::BLOCK_SIZE, web::Web};

const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Ours,
    Dynamo { threads: u8 },
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Ours => "kvbridge",
            Kind::Dynamo { threads: 1 } => "dynamo.indexer, 1 thread",
            Kind::Dynamo { .. } => "dynamo.indexer, 4 threads",
        }
    }
}

/// What is started, and where.
pub struct Programs {
    pub kvbridge: PathBuf,
    pub python: PathBuf,
    pub core: usize,
}

pub struct Server {
    kind: Kind,
    process: Child,
    /// What is asked of an indexer.
    pub web: Web,
    /// Our own API; the other one has all at one address.
    api: Option<Web>,
    /// Held open: a program may end when nobody reads what it says.
    _said: Option<BufReader<ChildStdout>>,
}

impl Server {
    pub fn start(kind: Kind, programs: &Programs, folder: &Path) -> anyhow::Result<Server> {
        match kind {
            Kind::Ours => Server::ours(programs, folder),
            Kind::Dynamo { threads } => Server::dynamo(kind, threads, programs),
        }
    }

    fn ours(programs: &Programs, folder: &Path) -> anyhow::Result<Server> {
        fs::create_dir_all(folder)?;
        let config = folder.join("kvbridge.toml");
        fs::write(
            &config,
            "[http]\nlisten = \"127.0.0.1:0\"\n[state]\ndir = \"state\"\n\
             [compat.dynamo]\nlisten = \"127.0.0.1:0\"\n\
             # The other one's queue has no bound. With ours a reader that is slower than the engine\n\
             # says what it lost and asks again, which is another row.\n\
             [limits]\nsource_queue = 250000\n",
        )?;
        let mut command = Command::new(&programs.kvbridge);
        command.args(["--log", "warn", "run", "--config"]).arg(&config).current_dir(folder);
        let mut process = spawn(command, programs.core, Stdio::piped())?;
        let mut said = BufReader::new(process.stdout.take().context("its output")?);
        let mut address = |word: &str| {
            let lines = said.by_ref().lines();
            let line = lines.map_while(Result::ok).find(|line| line.contains(word));
            let line = line.with_context(|| format!("kvbridge did not say {word}"))?;
            let text = line.rsplit("//").next().unwrap_or_default().trim_end_matches('/');
            text.parse::<SocketAddr>().with_context(|| line.clone())
        };
        let (api, indexer) = (address("http://")?, address("Dynamo")?);
        let (web, api) = (Web::connect(indexer)?, Some(Web::connect(api)?));
        Ok(Server { kind: Kind::Ours, process, web, api, _said: Some(said) })
    }

    fn dynamo(kind: Kind, threads: u8, programs: &Programs) -> anyhow::Result<Server> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new(&programs.python);
        command.args(["-m", "dynamo.indexer", "--port", &port.to_string()]);
        command.args(["--threads", &threads.to_string()]);
        let process = spawn(command, programs.core, Stdio::null())?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let started = Instant::now();
        let web = loop {
            match Web::connect(address) {
                Ok(web) => break web,
                Err(_) if started.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(50)),
                Err(error) => return Err(error),
            }
        };
        Ok(Server { kind, process, web, api: None, _said: None })
    }

    /// Has it read the engine, and waits until it has subscribed.
    pub fn register(&mut self, engine: &Engine) -> anyhow::Result<()> {
        let body = serde_json::json!({
            "instance_id": 7, "endpoint": engine.live, "replay_endpoint": engine.replay,
            "model_name": "m", "block_size": BLOCK_SIZE,
        });
        let (status, text) = self.web.post("/register", &body.to_string())?;
        if status != 201 {
            bail!("{}: {status} {text}", self.kind.name());
        }
        // libzmq does not tell a PUB of its subscribers.
        thread::sleep(Duration::from_secs(1));
        Ok(())
    }

    /// How many tokens of the prompt it says that the engine holds.
    pub fn held(&mut self, prompt: &[u64]) -> anyhow::Result<u64> {
        let body = serde_json::json!({ "token_ids": prompt, "model_name": "m" });
        let (status, text) = self.web.post("/query", &body.to_string())?;
        if status == 404 {
            return Ok(0); // nothing of the model was read yet
        }
        let answer: serde_json::Value = serde_json::from_str(&text)?;
        Ok(answer["scores"]["7"]["0"].as_u64().unwrap_or(0))
    }

    /// Batches (ours) or events (the other's) that it says were applied, by its own metrics.
    pub fn applied(&mut self) -> anyhow::Result<u64> {
        let (web, name) = match &mut self.api {
            Some(api) => (api, "kvbridge_batches_applied_total"),
            None => (&mut self.web, "dynamo_kvrouter_kv_cache_events_applied"),
        };
        let (_, text) = web.get("/metrics")?;
        let lines = text.lines().filter(|line| line.starts_with(name));
        let good = lines.filter(|line| !line.contains("status=") || line.contains("\"ok\""));
        let value = |line: &str| line.rsplit(' ').next().and_then(|text| text.parse::<f64>().ok());
        Ok(good.filter_map(value).sum::<f64>() as u64)
    }

    /// Seconds of processor time so far.
    pub fn cpu(&self) -> anyhow::Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id()))?;
        let fields: Vec<&str> =
            stat.rsplit(')').next().context("a name")?.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok());
        let (user, system) = (ticks(11).context("utime")?, ticks(12).context("stime")?);
        Ok((user + system) / 100.0)
    }

    /// Resident memory in MiB.
    pub fn resident(&self) -> anyhow::Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("VmRSS")?;
        let kib: f64 = line.split_whitespace().nth(1).context("a number")?.parse()?;
        Ok(kib / 1024.0)
    }

    /// Ends it in order: a checkpoint is written.
    pub fn stop(mut self) -> anyhow::Result<()> {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        self.process.wait()?;
        Ok(())
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // After an error; what is left of it is measured by nobody.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn spawn(mut command: Command, core: usize, out: Stdio) -> anyhow::Result<Child> {
    let name = command.get_program().to_owned();
    let mut pinned = Command::new("taskset");
    pinned.arg("-c").arg(core.to_string()).arg(&name).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        pinned.current_dir(folder);
    }
    command = pinned;
    command.stdin(Stdio::null()).stdout(out).stderr(Stdio::null());
    command.spawn().with_context(|| format!("starting {}", name.display()))
}
