//! Tasks with names, stopped in order and joined: no task outlives the program's orderly end.

use std::{collections::BTreeMap, future::Future, time::Duration};

use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

/// All tasks of the program.
#[derive(Default)]
pub struct Tasks {
    stop: CancellationToken,
    set: JoinSet<()>,
    /// What a task is called, and what ends it.
    names: BTreeMap<Id, (String, CancellationToken)>,
}

impl Tasks {
    /// No tasks yet.
    pub fn new() -> Tasks {
        Tasks::default()
    }

    /// Cancelled when the program stops.
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Starts a task. It must end soon after the stop token is cancelled.
    pub fn spawn(
        &mut self,
        name: impl Into<String>,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let stop = self.stop.clone();
        self.spawn_until(name, stop, task);
    }

    /// Starts a task that may also be stopped alone, by its own token.
    pub fn spawn_until(
        &mut self,
        name: impl Into<String>,
        stop: CancellationToken,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let id = self.set.spawn(task).id();
        self.names.insert(id, (name.into(), stop));
    }

    /// Waits until a task ends that nobody stopped, and says which: that is always a failure.
    pub async fn ended(&mut self) -> Option<String> {
        loop {
            let ended = self.set.join_next_with_id().await?;
            let failed = ended.is_err();
            let (name, stop) = self.note(ended);
            if failed || !stop.is_cancelled() {
                return Some(name);
            }
        }
    }

    /// Cancels all and waits. Returns the names of those that did not end in time; they are
    /// aborted.
    pub async fn stop(mut self, deadline: Duration) -> Vec<String> {
        self.stop.cancel();
        let joined = tokio::time::timeout(deadline, async {
            while let Some(ended) = self.set.join_next_with_id().await {
                drop(self.note(ended));
            }
        });
        if joined.await.is_err() {
            self.set.abort_all();
        }
        let late: Vec<String> = self.names.into_values().map(|(name, _)| name).collect();
        for name in &late {
            warn!(task = %name, "task did not stop in time");
        }
        late
    }

    fn note(&mut self, ended: Result<(Id, ()), JoinError>) -> (String, CancellationToken) {
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, ())| *id);
        let (name, stop) = self.names.remove(&id).unwrap_or_default();
        if let Err(error) = ended {
            error!(task = %name, %error, "task failed");
        }
        (name, stop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stops_join_and_name_what_is_late() {
        let mut tasks = Tasks::new();
        let stop = tasks.stop_token();
        tasks.spawn("good", async move { stop.cancelled().await });
        tasks.spawn("stuck", std::future::pending());
        assert_eq!(tasks.stop(Duration::from_millis(20)).await, ["stuck"]);
    }

    #[tokio::test]
    async fn an_early_end_is_seen() {
        let mut tasks = Tasks::new();
        tasks.spawn("short", async {});
        assert_eq!(tasks.ended().await.as_deref(), Some("short"));
    }

    #[tokio::test]
    async fn a_task_that_was_stopped_alone_is_no_failure() {
        let mut tasks = Tasks::new();
        let stop = tasks.stop_token().child_token();
        tasks.spawn_until("closed", stop.clone(), stop.clone().cancelled_owned());
        stop.cancel();
        tasks.spawn("short", async {});
        assert_eq!(tasks.ended().await.as_deref(), Some("short"));
    }
}
