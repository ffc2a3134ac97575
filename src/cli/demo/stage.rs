//! Plays the script, and says what is done and what is seen.

use std::time::Duration;

use kvbridge_schemas::Trust;

use super::{
    DemoError,
    script::{SCENES, Scene, Step},
    truth::Verdict,
    world::{Change, Engine, Status, World},
};
use crate::cli::Console;

/// The longest that anything waited for may take; the slowest thing here takes three seconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// Between two requests to each engine while nothing else happens.
const TRICKLE: Duration = Duration::from_millis(500);

/// One play.
pub(super) struct Stage<'s, 'c> {
    pub(super) world: &'s World,
    pub(super) console: &'s mut Console<'c>,
    /// Trickles of traffic before each scene; none where nobody watches.
    pub(super) trickles: u32,
    /// Views that were not what they said.
    pub(super) failures: u32,
    /// One more block in every truth, to see that it would be noticed.
    pub(super) planted: bool,
}

impl Stage<'_, '_> {
    pub(super) async fn play(&mut self) -> Result<(), DemoError> {
        let world = self.world;
        for (number, scene) in SCENES.iter().enumerate() {
            for engine in world.engines.iter().filter(|engine| scene.on.contains(&engine.role)) {
                self.pause().await?;
                self.say(&format!("\n{}. {} ({})", number + 1, scene.title, engine.name))?;
                self.scene(scene, engine).await?;
            }
        }
        Ok(())
    }

    /// Traffic, so that whoever watches the page sees something move.
    async fn pause(&self) -> Result<(), DemoError> {
        for _ in 0..self.trickles {
            self.trickle().await?;
        }
        Ok(())
    }

    pub(super) async fn trickle(&self) -> Result<(), DemoError> {
        for engine in &self.world.engines {
            self.world.traffic(engine, 1).await?;
        }
        tokio::time::sleep(TRICKLE).await;
        Ok(())
    }

    async fn scene(&mut self, scene: &Scene, engine: &Engine) -> Result<(), DemoError> {
        let world = self.world;
        let mut before = world.status(engine).await?;
        for step in scene.steps {
            match *step {
                Step::Say(text) => self.say(&format!("   {text}"))?,
                Step::Traffic(count) => world.traffic(engine, count).await?,
                Step::Fault(body) => world.fault(engine, body).await?,
                Step::Flush => {
                    self.say("   the engine is asked to empty its cache")?;
                    world.flush(engine).await?;
                }
                Step::NewEpoch => self.new_epoch(engine, before.epoch).await?,
                Step::Until(trust) => before = self.until(engine, trust, &before).await?,
            }
        }
        Ok(())
    }

    async fn new_epoch(&mut self, engine: &Engine, before: u64) -> Result<(), DemoError> {
        let world = self.world;
        let came = tokio::time::timeout(PATIENCE, async {
            while world.status(engine).await?.epoch == before {
                world.traffic(engine, 1).await?;
                tokio::time::sleep(LOOK).await;
            }
            Ok::<_, DemoError>(())
        });
        match came.await {
            Ok(came) => came,
            Err(_) => self.fail("no new epoch: the restart went unseen"),
        }
    }

    async fn until(
        &mut self,
        engine: &Engine,
        trust: Trust,
        before: &Status,
    ) -> Result<Status, DemoError> {
        let world = self.world;
        let settled = tokio::time::timeout(PATIENCE, async {
            loop {
                let (truth, status) = (world.truth(engine).await?, world.status(engine).await?);
                let is_there = status.next_seq == truth.next_seq && !truth.pending;
                if is_there && status.trust == Some(trust) {
                    return Ok::<_, DemoError>(status);
                }
                tokio::time::sleep(LOOK).await;
            }
        });
        let Ok(settled) = settled.await else {
            let status = world.status(engine).await?;
            self.say(&format!("   trust {}", path(before, &status)))?;
            self.fail(&format!("{} did not come", trust.as_str()))?;
            return Ok(status);
        };
        let status = settled?;
        self.say(&format!("   trust {}", path(before, &status)))?;
        let (mut truth, view) = (world.truth(engine).await?, world.view(engine).await?);
        if self.planted {
            truth.plant();
        }
        match view.verdict(trust, &truth) {
            Verdict::True(text) => self.say(&format!("   at seq {}: {text}", status.next_seq))?,
            Verdict::False(text) => self.fail(&text)?,
        }
        Ok(status)
    }

    fn fail(&mut self, text: &str) -> Result<(), DemoError> {
        self.failures += 1;
        self.say(&format!("   WRONG: {text}"))
    }

    pub(super) fn say(&mut self, text: &str) -> Result<(), DemoError> {
        self.console.line(text)?;
        // Whoever watches reads it now.
        Ok(self.console.out.flush()?)
    }
}

/// How trust went from there to here.
fn path(before: &Status, now: &Status) -> String {
    let known = before.changes.last();
    let seen = known.and_then(|last| now.changes.iter().rposition(|change| change == last));
    let first = seen.map_or(0, |seen| seen + 1);
    let later = now.changes.iter().skip(first);
    let all: Vec<&Change> = known.into_iter().chain(later).collect();
    let said = |(at, change): (usize, &&Change)| {
        let before = at.checked_sub(1).and_then(|at| all.get(at));
        let is_new = before.is_some_and(|before| before.epoch != change.epoch);
        format!("{}{}", if is_new { "new epoch: " } else { "" }, change.said)
    };
    all.iter().enumerate().map(said).collect::<Vec<_>>().join(" → ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_begins_where_trust_stood_and_tells_all_that_came() {
        let change = |(at_ms, epoch, said): &(u64, u64, &str)| Change {
            at_ms: *at_ms,
            epoch: *epoch,
            said: (*said).to_owned(),
        };
        let status = |changes: &[(u64, u64, &str)]| {
            let changes = changes.iter().map(change).collect();
            Status { trust: None, epoch: 1, next_seq: 0, changes }
        };
        let before = status(&[(1, 1, "none (joining)"), (2, 1, "exact (contiguous)")]);
        assert_eq!(path(&before, &before), "exact (contiguous)");
        let now =
            status(&[(2, 1, "exact (contiguous)"), (3, 1, "none (gap)"), (4, 2, "exact (new)")]);
        assert_eq!(path(&before, &now), "exact (contiguous) → none (gap) → new epoch: exact (new)");
    }
}
