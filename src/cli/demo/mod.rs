//! `kvbridge demo`: three modelled engines, a kvbridge that reads them, and what goes wrong between
//! the two.

mod script;
mod stage;
mod truth;
mod world;

use std::io;

use tokio::net::TcpListener;

use self::{stage::Stage, world::World};
use super::{
    CliError, ConfigArgs, Console, Environment, Exit, RunError, examples,
    run::live,
    service::{Origin, Service},
    signal, version,
};
use crate::{
    config::{Flags, limits},
    http::Security,
    pipeline::Tasks,
    telemetry,
};

/// Trickles of traffic before each scene: three seconds to read what was said.
const TRICKLES: u32 = 6;

/// What the demonstration sets: a lost tail is looked for sooner than people lose their patience.
const SETTINGS: [(&str, &str); 1] = [("KVBRIDGE__RECOVERY__IDLE_PROBE", "1s")];

/// Show what goes wrong between engines and a router, and how it is put right
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = examples::DEMO)]
pub struct DemoArgs {
    /// Port of the API and the page, on the loopback; 0 = any free one
    #[arg(long, value_name = "PORT", default_value_t = 8090)]
    port: u16,
    /// Without pauses, and end: exit code 3 if a view was not what it said
    #[arg(long)]
    fast: bool,
    /// A disagreement to be noticed
    #[cfg(feature = "planted")]
    #[arg(long, hide = true)]
    plant: bool,
}

/// Why the demonstration could not go on.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// What was said could not be written.
    #[error("cannot write output")]
    Output(#[from] io::Error),
    /// An engine or the bridge did not answer.
    #[error("a part of the demonstration did not answer")]
    Ask(#[from] reqwest::Error),
    /// It answered something else.
    #[error("{url} answered something else than expected")]
    Answer {
        /// What was asked.
        url: String,
    },
}

impl DemoArgs {
    pub(super) async fn execute(self, console: &mut Console<'_>) -> Result<Exit, CliError> {
        let mut stop = signal::Stop::new()?;
        let mut tasks = Tasks::new();
        let engines = world::engines(&mut tasks).await?;
        // Of this demonstration alone: no file and no variable of whoever runs it.
        let variables = SETTINGS.map(|(name, text)| (name.to_owned(), text.to_owned()));
        let environment = Environment { variables: variables.into(), ..Environment::default() };
        let flags = Flags {
            listen: Some(format!("127.0.0.1:{}", self.port)),
            sources: engines.iter().map(world::Engine::source).collect(),
            ..Flags::default()
        };
        let args = ConfigArgs { config: Some("/dev/null".into()) };
        let origin = Origin { args, environment: &environment, flags };
        let config = origin.load()?;
        let security = Security::read(&config.http).map_err(super::ConfigError::from)?;
        let render = telemetry::install_metrics().map_err(RunError::from)?;
        let listener = TcpListener::bind(config.listen)
            .await
            .map_err(|source| RunError::Listen { address: config.listen, source })?;
        let url = format!("http://{}", listener.local_addr()?);
        let mut service = Service::start(config, security, listener, render).await?;
        let world = World::new(engines, url.clone()).map_err(CliError::from)?;
        let show = self.show(&world, &url, console);
        let ended = live(&mut service, &origin, &mut stop, show).await;
        tokio::select! {
            () = service.end() => {}
            // Whoever asks twice wants no order.
            _ = stop.wait() => return Ok(Exit::Interrupted),
        }
        tasks.stop(limits::STOP_DEADLINE).await;
        ended
    }

    async fn show(
        &self,
        world: &World,
        url: &str,
        console: &mut Console<'_>,
    ) -> Result<Exit, CliError> {
        #[cfg(feature = "planted")]
        let planted = self.plant;
        #[cfg(not(feature = "planted"))]
        let planted = false;
        let trickles = if self.fast { 0 } else { TRICKLES };
        let mut stage = Stage { world, console, trickles, failures: 0, planted };
        stage.say(&format!("kvbridge {} demo, the page is at {url}", version()))?;
        for engine in &world.engines {
            let (key, name, release, http) =
                (&engine.key, engine.name, &engine.release, &engine.http);
            stage.say(&format!("  {key}: a modelled {name} {release} at {http}"))?;
        }
        stage.play().await?;
        let failures = stage.failures;
        stage.say(&match failures {
            0 => "\nevery view is exact and equal to its engine's truth".to_owned(),
            _ => format!("\n{failures} times a view was not what it said"),
        })?;
        if !self.fast {
            stage.say("traffic goes on; Ctrl-C ends")?;
            loop {
                stage.trickle().await?;
            }
        }
        Ok(if failures == 0 { Exit::Ok } else { Exit::NotReached })
    }
}
