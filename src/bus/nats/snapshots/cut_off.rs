//! Uploads that were cut off: a bridge that is killed while it stores a view leaves the chunks that
//! it had sent. No object has them, so no other sweep comes upon them.

use std::{collections::BTreeSet, time::Duration};

use async_nats::jetstream::{Context, stream::DirectGetErrorKind};
use futures::TryStreamExt;

use super::{Snapshots, StoreFault, age_ms};
use crate::{clock::millis, config::limits::BUS_SWEEP_REPLICAS};

impl Snapshots {
    /// Deletes chunks that no object has, and to which nothing was added for `grace`: as long as
    /// messages are kept, for a view that took longer to store leads nowhere. Returns of how many
    /// uploads.
    pub(super) async fn sweep_cut_off(
        &self,
        context: &Context,
        bucket: &str,
        grace: Duration,
    ) -> Result<u64, StoreFault> {
        let stream = context.get_stream_no_info(format!("OBJ_{bucket}")).await;
        let stream = stream.map_err(|error| StoreFault::server(&error))?;
        let prefix = format!("$O.{bucket}.C.");
        // Before the objects: what is finished between the two looks is in the second one.
        let uploads = stream.info_with_subjects(format!("{prefix}>")).await;
        let uploads = uploads.map_err(|error| StoreFault::server(&error))?;
        let mut uploads: BTreeSet<String> = uploads
            .map_ok(|(subject, _)| subject)
            .try_collect()
            .await
            .map_err(|error| StoreFault::server(&error))?;
        let mut listed = self.objects.list().await.map_err(|error| StoreFault::server(&error))?;
        while let Some(info) =
            listed.try_next().await.map_err(|error| StoreFault::server(&error))?
        {
            uploads.remove(&format!("{prefix}{}", info.nuid));
        }
        let grace_ms = millis(grace);
        let mut deleted = 0;
        // The rest is looked at a minute later.
        for subject in uploads.into_iter().take(BUS_SWEEP_REPLICAS) {
            let last = match stream.direct_get_last_for_subject(subject.as_str()).await {
                Ok(last) => last,
                // Another bridge was first.
                Err(error) if error.kind() == DirectGetErrorKind::NotFound => continue,
                Err(error) => return Err(StoreFault::server(&error)),
            };
            if age_ms(last.time.unix_timestamp_nanos()) > grace_ms
                && stream.purge().filter(subject).await.is_ok()
            {
                deleted += 1;
            }
        }
        Ok(deleted)
    }
}
