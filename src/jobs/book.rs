//! All jobs: those under way, and the last ones that are over.

use std::collections::BTreeMap;

use kvbridge_schemas::ReplicaKey;

use super::{Ask, Job, Outcome, Seen};
use crate::recovery::Tick;

/// Jobs kept, those under way with them; the oldest that is over goes first. Fewer: the outcome is
/// gone before somebody looks. More: memory for each replica of each.
pub const JOBS_KEPT_MAX: usize = 64;

/// Jobs under way at a time; more are refused. Fewer: a second operator waits. More: replicas are
/// asked again and again before they came back.
pub const JOBS_RUNNING_MAX: usize = 8;

/// No more can be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{JOBS_RUNNING_MAX} jobs are under way, which is the limit")]
pub struct TooManyJobs;

/// Jobs by number, from 1 on.
#[derive(Clone, Debug, Default)]
pub struct Book {
    jobs: BTreeMap<u64, Job>,
    last_id: u64,
}

impl Book {
    /// Enters a job.
    pub fn enter(&mut self, job: Job) -> Result<u64, TooManyJobs> {
        let is_running = |job: &&Job| job.outcome() == Outcome::Running;
        if self.jobs.values().filter(is_running).count() >= JOBS_RUNNING_MAX {
            return Err(TooManyJobs);
        }
        if self.jobs.len() >= JOBS_KEPT_MAX {
            let over = self.jobs.iter().find(|(_, job)| !is_running(job)).map(|(id, _)| *id);
            over.map(|id| self.jobs.remove(&id));
        }
        self.last_id += 1;
        self.jobs.insert(self.last_id, job);
        Ok(self.last_id)
    }

    /// Whether there is anything to look at.
    pub fn is_running(&self) -> bool {
        self.jobs.values().any(|job| job.outcome() == Outcome::Running)
    }

    /// All of them, oldest first.
    pub fn jobs(&self) -> impl Iterator<Item = (u64, &Job)> {
        self.jobs.iter().map(|(id, job)| (*id, job))
    }

    /// One of them.
    pub fn job(&self, id: u64) -> Option<&Job> {
        self.jobs.get(&id)
    }

    /// One of them, to change it.
    pub fn job_mut(&mut self, id: u64) -> Option<&mut Job> {
        self.jobs.get_mut(&id)
    }

    /// Takes one look for each job under way, and says whom to ask for which.
    pub fn look(&mut self, now: Tick, seen: &BTreeMap<ReplicaKey, Seen>) -> Vec<(u64, Ask)> {
        let mut asks = Vec::new();
        for (id, job) in &mut self.jobs {
            if job.outcome() == Outcome::Running {
                asks.extend(job.look(now, seen).into_iter().map(|ask| (*id, ask)));
            }
        }
        asks
    }
}
