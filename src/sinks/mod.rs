//! SHELL. Routers that are fed in a form they know: one task for each configured sink, with a
//! publisher and an answering socket for each replica it tells, one pair for all of them, or a
//! connection to each reader.
//!
//! What is told, and under which number, is decided in [`sink_line`](crate::sink_line).

mod answers;
mod board;
mod line;
mod places;
mod port;
mod reader;
#[cfg(feature = "sink-smg")]
mod streams;
mod task;

use std::sync::Arc;

use crate::{
    clock::Clock,
    config::SinkConfig,
    pipeline::{Fleet, Tasks},
};

pub use board::{LineStanding, ReaderStanding, SinkBoard};
use task::SinkTask;

/// Starts all sinks. What drivers that are started later tell reaches them from the first step on.
pub fn start(
    configs: &[SinkConfig],
    fleet: &Arc<Fleet>,
    clock: Clock,
    tasks: &mut Tasks,
) -> Arc<SinkBoard> {
    let board = Arc::<SinkBoard>::default();
    for config in configs {
        let task = SinkTask::new(config.clone(), Arc::clone(fleet), clock, Arc::clone(&board));
        let stop = tasks.stop_token();
        tasks.spawn(format!("sink {}", config.name), task.run(stop));
    }
    board
}
