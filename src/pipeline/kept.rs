//! SHELL. Views that an earlier process kept: whether they are of this fold, and how to go on with
//! one.

use std::sync::Arc;

use kvbridge_adapters_api::Drain;
use kvbridge_schemas::{Epoch, ReplicaKey};
use tracing::{info, warn};

use crate::{
    checkpoint::{Kept, StateDir, Wanted},
    config::SourceConfig,
    recovery::{Recovery, Settings},
    telemetry,
    view::{View, ViewSettings},
};

/// What the fold of events means. Raised when the same events fold to another view, so that views
/// of before are not gone on with.
pub(super) const FOLD_VERSION: u32 = 1;

/// Everything that a view depends on beside the events: another text, another view.
pub(super) fn fold(source: &SourceConfig, view: ViewSettings) -> String {
    let replay = source.replay.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
    // Only for the adapter to know what of it matters, and it may hold what no file should.
    let options = source.adapted.as_ref().map_or_else(String::new, |adapted| {
        let text = serde_json::to_string(&adapted.options).unwrap_or_default();
        let options = xxhash_rust::xxh3::xxh3_128(text.as_bytes());
        format!(", url {:?}, options {options:032x}", adapted.url)
    });
    format!(
        "fold {FOLD_VERSION}, engine {}, projection {:?}, removal {:?}, orphans_max {}, \
         ignore_tags {:?}, from {} bind {} topic {:?}, replay {replay}{options}",
        source.engine.as_str(),
        view.projection,
        view.removal,
        view.orphans_max,
        source.ignore_tags,
        source.endpoint,
        source.bind,
        source.topic,
    )
}

/// What was kept of a source. With `drain` a view serves one process: what that one takes from the
/// engine is nowhere else, so whoever came with the same view after it would go on behind a hole,
/// or in another life whose next number happens to fit.
pub(super) async fn kept(
    state: &Arc<StateDir>,
    source: &SourceConfig,
    (view, drain): (ViewSettings, Drain),
    fold: &str,
) -> Kept {
    let (state, replica) = (Arc::clone(state), source.replica.clone());
    let fold = fold.to_owned();
    // A large view takes seconds to read.
    let read = tokio::task::spawn_blocking(move || {
        let mut kept = state.load(Wanted { replica: &replica, fold: &fold, view });
        if drain == Drain::Destructive
            && kept.view.is_some()
            && let Err(error) = state.spend(&replica, (kept.floor, view))
        {
            warn!(replica = %replica.key(), %error, "checkpoint not used: it cannot be taken away");
            kept.view = None;
        }
        kept
    });
    read.await.unwrap_or_else(|error| {
        warn!(%error, "checkpoint reader failed");
        Kept::default()
    })
}

/// The machine of a replica, with the kept view if that can be gone on with.
pub(super) fn restore(
    key: &ReplicaKey,
    mut settings: Settings,
    kept: Kept,
) -> (Recovery, Option<View>) {
    let Kept { floor, view, mut fault } = kept;
    if let Some((checkpoint, view)) = view {
        let cursor = checkpoint.cursor;
        match Recovery::restored(settings.clone(), checkpoint) {
            Ok(recovery) => {
                telemetry::checkpoint_loaded("restored");
                info!(replica = %key, epoch = %cursor.epoch, next_seq = %cursor.next_seq, "restored");
                return (recovery, Some(view));
            }
            Err(error) => fault = Some(error.into()),
        }
    }
    if let Some(fault) = fault {
        let word = fault.word();
        telemetry::checkpoint_loaded(word);
        warn!(replica = %key, reason = word, error = %fault, %floor, "checkpoint not used");
    } else if floor > Epoch(0) {
        telemetry::checkpoint_loaded("floor_only");
    }
    settings.epoch_floor = floor;
    (Recovery::new(settings), None)
}
