//! Replicas that are read from a bus.

use std::sync::Arc;

use kvbridge_adapters_api::Source;
use kvbridge_schemas::{EngineKind, Projection, Replica};

use super::{Begun, Pipeline, Tasks};
use crate::{
    adapters::UNKNOWN,
    config::Config,
    pipeline::{Signs, kept::FOLD_VERSION, registry},
    recovery::Recovery,
    view::ViewSettings,
};

impl Pipeline {
    /// Begins to read one replica that another process publishes. `false` = it is read already.
    pub fn open_found(
        &self,
        replica: &Replica,
        engine: Option<EngineKind>,
        config: &Config,
        tasks: &mut Tasks,
    ) -> bool {
        let key = replica.key();
        if self.fleet.replica(key.as_str()).is_some() {
            return false;
        }
        let engine = engine.unwrap_or_else(|| EngineKind::Other(UNKNOWN.to_owned()));
        let removal = registry::removal(&engine);
        let signs = Arc::<Signs>::default();
        let Some(source) = self.bus.source(replica, removal, &signs) else { return false };
        let mut view = ViewSettings::of(Projection::Last8, removal, config.limits.orphans_max());
        view.leaves_out = registry::leaves_out(&engine);
        self.begin_reader(replica, (engine, source, view, signs), config, tasks);
        true
    }

    /// Starts the task of a replica that is read from a bus.
    pub(super) fn begin_reader(
        &self,
        replica: &Replica,
        (engine, source, mut view, signs): (EngineKind, Box<dyn Source>, ViewSettings, Arc<Signs>),
        config: &Config,
        tasks: &mut Tasks,
    ) {
        view.describes = config.describes();
        view.told_singly = config.feeds();
        let recovery = Recovery::new(self.settings(replica, &*source, config));
        let begun = Begun {
            replica: replica.clone(),
            engine,
            signs,
            source,
            recovery,
            view,
            kept: None,
            fold: format!("fold {FOLD_VERSION}, from a bus"),
            log: None,
            // Its bridge does.
            hashes: None,
            flush: None,
        };
        let handle = self.begin(begun, config, tasks);
        self.fleet.add(replica.key(), handle);
    }
}
