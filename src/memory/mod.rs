//! SHELL. The process's soft memory limit: above it the largest replica is given up.
//!
//! Measured is the resident memory of the process; `policy` decides without a clock of its own, and
//! recovery performs it like any other withdrawal.

mod measure;
mod policy;

use std::{path::Path, sync::Arc, time::Duration};

use metrics::gauge;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

pub use measure::{available_bytes, resident_bytes};
pub use policy::{Decision, Policy, Weight};

use crate::{
    clock::Clock,
    config::limits,
    pipeline::{Command, Fleet},
    recovery::TrustReason,
    telemetry::name,
};

/// Time between two measurements.
const MEASURE_EVERY: Duration = Duration::from_secs(1);

/// The limit: as configured, else a share of what the container or machine has. `None` where
/// neither is known; then nothing is limited.
pub fn limit_bytes(configured: Option<u64>) -> Option<u64> {
    configured.or_else(|| {
        available_bytes(Path::new("/")).map(|bytes| bytes / 100 * limits::MEMORY_PERCENT)
    })
}

/// Measures and acts until stopped.
pub async fn guard(fleet: Arc<Fleet>, clock: Clock, limit: Option<u64>, stop: CancellationToken) {
    let (Some(limit), true) = (limit, resident_bytes(Path::new("/")).is_some()) else {
        info!("memory cannot be measured here: only view.blocks_max limits it");
        return stop.cancelled().await;
    };
    let (used, of) = (gauge!(name::MEMORY), gauge!(name::MEMORY_LIMIT));
    of.set(megabytes(limit));
    let mut policy = Policy::new(limit);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(MEASURE_EVERY) => (),
        }
        let Some(resident) = resident_bytes(Path::new("/")) else { continue };
        used.set(megabytes(resident));
        let weights: Vec<Weight> = weights(&fleet);
        let Some(decision) = policy.decide(clock.now(), resident, &weights) else { continue };
        let (key, command) = match &decision {
            Decision::Shed(key) => (key, Command::OverLimit),
            Decision::Release(key) => (key, Command::Release),
        };
        match &decision {
            Decision::Shed(_) => error!(replica = %key, resident, limit, "over the memory limit"),
            Decision::Release(_) => {
                info!(replica = %key, resident, limit, "memory allows it again")
            }
        }
        let asked = fleet.replica(key.as_str()).map(|(_, handle)| handle.ask(command));
        if !matches!(asked, Some(Ok(()))) {
            policy.refused(key);
        }
    }
}

fn weights(fleet: &Fleet) -> Vec<Weight> {
    let of = fleet.replicas().map(|(key, handle)| {
        let status = handle.status.borrow();
        Weight {
            key: key.clone(),
            blocks: status.blocks.values().sum(),
            over_limit: status.reason == TrustReason::OverLimit.as_str(),
        }
    });
    of.collect()
}

/// Bytes as a metric's value, exact to a MiB: a gauge holds no integer of that size.
fn megabytes(bytes: u64) -> f64 {
    let mib = u32::try_from(bytes >> 20).unwrap_or(u32::MAX);
    f64::from(mib) * 1_048_576.0
}
