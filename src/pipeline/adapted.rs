//! SHELL. Sources of engines that an adapter of the program reads.

use std::sync::Arc;

use kvbridge_adapters_api::Counters;

use super::registry::{OpenError, Opened};
use crate::{
    adapters::{Adapted, Opening},
    config::{Config, SourceConfig},
    view::ViewSettings,
};

/// `None` = no adapter of the program reads that engine.
pub(super) fn open(source: &SourceConfig, config: &Config) -> Option<Result<Opened, OpenError>> {
    let of_adapter = source.adapted.as_ref()?;
    let bound = |count| usize::try_from(count).unwrap_or(usize::MAX);
    let limits = &config.limits;
    let counters = Arc::new(Counters::default());
    let opening = Opening {
        replica: source.replica.clone(),
        endpoint: source.endpoint.clone(),
        url: of_adapter.url.clone(),
        replay: source.replay.clone(),
        options: of_adapter.options.clone(),
        queue_batches: bound(limits.source_queue_batches.into()),
        frame_bytes_max: bound(limits.frame_bytes_max),
        reconnect: (limits.reconnect_min, limits.reconnect_max),
        counters: Arc::clone(&counters),
    };
    let opened = |Adapted { source, projection }| {
        let removal = source.capabilities().removal;
        Opened {
            source,
            view: ViewSettings::of(projection, removal, limits.orphans_max()),
            counters,
        }
    };
    let engine = source.engine.as_str().to_owned();
    let adapted = config.adapters.open(&source.engine, opening)?;
    Some(adapted.map(opened).map_err(|source| OpenError::Adapter { engine, source }))
}
