//! `kvbridge play`: a recording as an engine, with a journal and faults on demand.

use std::path::PathBuf;

use super::{CliError, Console, Exit, examples, play_args::PlaybackArgs, signal};
use crate::playback::{PlaySettings, Player, Recording};

/// Play a recording as an engine
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = examples::PLAY)]
pub struct PlayArgs {
    /// Recording
    file: PathBuf,
    /// Port to publish at
    #[arg(long = "pub", value_name = "PORT", default_value_t = 5557)]
    publish: u16,
    /// Port to answer replay requests at
    #[arg(long, value_name = "PORT", default_value_t = 5558)]
    replay: u16,
    #[command(flatten)]
    playback: PlaybackArgs,
}

impl PlaybackArgs {
    /// The settings, at these ports of the loopback.
    pub(super) fn settings(&self, publish: u16, replay: u16) -> PlaySettings {
        PlaySettings {
            live: format!("tcp://127.0.0.1:{publish}"),
            replay: format!("tcp://127.0.0.1:{replay}"),
            withheld: self.drop.clone().unwrap_or_default().0,
            journal_count_max: self.journal,
            rate_hz: self.rate,
        }
    }
}

impl PlayArgs {
    pub(super) async fn execute(self, console: &mut Console<'_>) -> Result<Exit, CliError> {
        let recording = Recording::read(&self.file)?;
        let settings = self.playback.settings(self.publish, self.replay);
        let mut player = Player::bind(recording, settings).await?;
        console.line(&format!("publishes at {}", player.live()))?;
        console.line(&format!("answers replay requests at {}", player.replay()))?;
        console.line("waits for a subscriber")?;
        console.out.flush()?;
        let mut stop = signal::Stop::new()?;
        tokio::select! {
            exit = stop.wait() => return Ok(exit),
            played = player.play() => {
                console.line(&format!("played {} batches", played?))?;
            }
        }
        if self.playback.once {
            return Ok(Exit::Ok);
        }
        console.line("answers replay requests until Ctrl-C")?;
        console.out.flush()?;
        Ok(stop.wait().await)
    }
}
