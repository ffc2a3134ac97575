//! Which replicas an order is for.

use kvbridge_schemas::{Replica, ReplicaKey};

/// Chooses replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// Each one.
    All,
    /// Those of a model.
    Model(String),
    /// One, by its key.
    Replica(String),
}

impl Selector {
    pub(super) fn chooses(&self, key: &ReplicaKey, replica: &Replica) -> bool {
        match self {
            Selector::All => true,
            Selector::Model(model) => replica.model == *model,
            Selector::Replica(wanted) => key.as_str() == wanted,
        }
    }
}
