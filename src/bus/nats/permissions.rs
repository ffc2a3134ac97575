//! The least that a role needs of a NATS account, subject by subject.
//!
//! Found by running each role under these alone; a test does so. What reads creates consumers, and
//! a consumer is asked for by publishing: that is why readers have publish permissions at all.

use std::collections::BTreeSet;

use kvbridge_schemas::subject;

use super::{
    buckets::{EPOCHS, STATUS},
    streams::Plan,
};

/// What a user does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Reads engines and writes the bus.
    Bridge,
    /// Reads the bus and asks bridges for views.
    Index,
    /// Looks at envelopes.
    Viewer,
}

impl Role {
    /// All of them.
    pub const ALL: [Role; 3] = [Role::Bridge, Role::Index, Role::Viewer];

    /// The word on the command line and in user names.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Bridge => "bridge",
            Role::Index => "index",
            Role::Viewer => "viewer",
        }
    }
}

/// What a user may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    /// Subjects to publish to.
    pub publish: BTreeSet<String>,
    /// Subjects to subscribe to.
    pub subscribe: BTreeSet<String>,
    /// Whether it answers requests.
    pub answers: bool,
}

/// The permissions of a role.
pub fn permissions(role: Role, plan: &Plan, models: &[String], inbox: &str) -> Permissions {
    let mut it = Permissions::default();
    it.subscribe.insert(format!("{inbox}.>"));
    it.publish.insert("$JS.API.STREAM.NAMES".to_owned());
    let models: Vec<String> = match models {
        [] => vec!["*".to_owned()],
        models => models.iter().map(|model| subject::model_token(model)).collect(),
    };
    for stream in plan.names_for_permissions(&models) {
        it.log(&stream);
        if role == Role::Bridge {
            it.api(&["STREAM.CREATE"], &stream);
        }
        if role != Role::Viewer {
            // Before a replay, asked of the leader, and after a long one.
            it.api(&["STREAM.MSG.GET"], &stream);
            it.publish.insert(format!("$JS.API.CONSUMER.DELETE.{stream}.>"));
        }
    }
    if role == Role::Viewer {
        return it;
    }
    let (objects, pointers) = (plan.bucket("KVSNAP"), plan.bucket("KVSNAPPTR"));
    let store = format!("OBJ_{objects}");
    it.bucket(&store);
    let (epochs, status) = (plan.bucket(EPOCHS), plan.bucket(STATUS));
    let buckets = [&pointers, &epochs, &status];
    for bucket in buckets {
        it.bucket(&format!("KV_{bucket}"));
    }
    for model in &models {
        let asked = format!("{}{model}.*.*", subject::SNAPSHOT_PREFIX);
        if role == Role::Index {
            it.publish.insert(asked);
            continue;
        }
        it.subscribe.insert(asked);
        it.publish.extend(plan.subjects_for_permissions(model));
        it.publish.insert(format!("$KV.{pointers}.{model}.*.*"));
        it.publish.insert(format!("$KV.{epochs}.{model}.*.*"));
        it.publish.insert(format!("$KV.{status}.{model}.*.*.*"));
        it.publish.insert(format!("$KV.{status}.=lease.{model}.*.*"));
    }
    if role == Role::Bridge {
        it.answers = true;
        // Whether the account has JetStream at all.
        it.publish.insert("$JS.API.INFO".to_owned());
        it.publish.insert(format!("$KV.{status}.bridge.*"));
        for bucket in buckets {
            it.api(&["STREAM.CREATE"], &format!("KV_{bucket}"));
        }
        it.api(&["STREAM.CREATE", "STREAM.PURGE"], &store);
        it.publish.insert(format!("$O.{objects}.C.>"));
        it.publish.insert(format!("$O.{objects}.M.>"));
    }
    it
}

impl Permissions {
    fn log(&mut self, stream: &str) {
        self.api(&["STREAM.INFO", "CONSUMER.CREATE", "DIRECT.GET"], stream);
        self.publish.insert(format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.>"));
        self.publish.insert(format!("$JS.API.DIRECT.GET.{stream}.>"));
    }

    fn bucket(&mut self, stream: &str) {
        self.api(&["STREAM.INFO", "CONSUMER.CREATE"], stream);
        self.publish.insert(format!("$JS.API.DIRECT.GET.{stream}.>"));
        // What a consumer of a bucket answers to the server's flow control: a large view stands
        // still without.
        self.publish.insert(format!("$JS.FC.{stream}.>"));
    }

    fn api(&mut self, calls: &[&str], stream: &str) {
        self.publish.extend(calls.iter().map(|call| format!("$JS.API.{call}.{stream}")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{HeartbeatConfig, Shards, StreamsConfig, limits};

    /// Two installations on one server: what one user may do never touches the other's buckets.
    #[test]
    fn another_prefix_shares_no_bucket() {
        let plan = Plan::new(&StreamsConfig {
            prefix: "OTHER".to_owned(),
            shards: Shards::Model,
            replica_count: 1,
            retention: limits::BUS_RETENTION,
            bytes_max: limits::BUS_RETENTION_BYTES,
            duplicate_window: limits::BUS_DUPLICATE_WINDOW,
            heartbeat: HeartbeatConfig::default(),
        });
        let mut buckets = 0;
        for role in [Role::Bridge, Role::Index] {
            for subject in permissions(role, &plan, &["m".to_owned()], "_INBOX").publish {
                for start in ["KV_", "OBJ_", "$KV.", "$O."] {
                    let Some((_, rest)) = subject.split_once(start) else { continue };
                    assert!(rest.starts_with("OTHER_"), "{subject}");
                    buckets += 1;
                }
            }
        }
        assert!(buckets > 20, "{buckets}");
    }
}
