//! The two buckets that bridges share: names of lives, kept for ever, and who speaks now.

use async_nats::jetstream::{Context, kv, stream::StorageType};

use super::connect::reason;
use crate::config::StreamsConfig;

/// Names of lives. Without a time to live: a name that was forgotten could be given again.
pub(super) const EPOCHS: &str = "KVEPOCH";

/// Heartbeats.
pub(super) const STATUS: &str = "KVSTATUS";

/// Why a bucket cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum BucketFailure {
    /// It is set up so that it would do harm.
    #[error("bucket {name} has max_age {found}, wanted {wanted}")]
    Differs {
        /// Which.
        name: String,
        /// As it is.
        found: String,
        /// As it must be.
        wanted: String,
    },
    /// The server refuses.
    #[error("bucket {name}: {reason}")]
    Refused {
        /// Which.
        name: String,
        /// In the server's words.
        reason: String,
    },
}

/// Opens the bucket of lives, and makes it if need be.
pub(super) async fn epochs(
    context: &Context,
    config: &StreamsConfig,
) -> Result<kv::Store, BucketFailure> {
    open(
        context,
        kv::Config {
            bucket: config.bucket(EPOCHS),
            description: "Lives of replicas, named by kvbridge".to_owned(),
            history: 1,
            storage: StorageType::File,
            num_replicas: usize::try_from(config.replica_count).unwrap_or(1),
            ..kv::Config::default()
        },
    )
    .await
}

/// Opens the bucket of heartbeats, and makes it if need be.
pub(super) async fn status(
    context: &Context,
    config: &StreamsConfig,
) -> Result<kv::Store, BucketFailure> {
    open(
        context,
        kv::Config {
            bucket: config.bucket(STATUS),
            description: "Heartbeats of kvbridge".to_owned(),
            history: 1,
            max_age: config.heartbeat.ttl,
            storage: StorageType::Memory,
            num_replicas: usize::try_from(config.replica_count).unwrap_or(1),
            ..kv::Config::default()
        },
    )
    .await
}

async fn open(context: &Context, config: kv::Config) -> Result<kv::Store, BucketFailure> {
    let name = config.bucket.clone();
    let refused = |error: &dyn std::error::Error| {
        let (name, reason) = (name.clone(), reason(error));
        BucketFailure::Refused { name, reason }
    };
    let store = match context.get_key_value(name.as_str()).await {
        Ok(store) => store,
        Err(_) => {
            context.create_key_value(config.clone()).await.map_err(|error| refused(&error))?
        }
    };
    let found = store.status().await.map_err(|error| refused(&error))?.max_age();
    if found != config.max_age {
        let shown = |age| humantime::format_duration(age).to_string();
        let (found, wanted) = (shown(found), shown(config.max_age));
        return Err(BucketFailure::Differs { name, found, wanted });
    }
    Ok(store)
}
