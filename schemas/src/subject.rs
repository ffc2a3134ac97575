//! Names on the bus: subjects and message ids, all made from a replica's key.

use crate::{Epoch, KeyError, Replica, ReplicaKey, Seq, identity::escape};

/// What every hint subject begins with; `v1` is the major version of the schema.
pub const HINT_PREFIX: &str = "kv.v1.hint.";

/// What every snapshot request begins with.
pub const SNAPSHOT_PREFIX: &str = "kv.v1.snapshot.";

/// What every subject of heartbeats begins with.
pub const STATUS_PREFIX: &str = "kv.v1.status.";

/// Every hint of every replica, for a subscription.
pub const HINT_ALL: &str = "kv.v1.hint.>";

/// The subject of a replica's envelopes: `kv.v1.hint.<model>.<instance>.<rank>`.
pub fn hint(key: &ReplicaKey) -> String {
    format!("{HINT_PREFIX}{key}")
}

/// A model's name as a part of subjects and keys.
pub fn model_token(model: &str) -> String {
    let mut token = String::new();
    escape(model, &mut token);
    token
}

/// Every hint of one model, for a subscription.
pub fn hint_of_model(model: &str) -> String {
    format!("{HINT_PREFIX}{}.>", model_token(model))
}

/// The subject on which a snapshot of a replica is asked for: `kv.v1.snapshot.<key>`.
pub fn snapshot(key: &ReplicaKey) -> String {
    format!("{SNAPSHOT_PREFIX}{key}")
}

/// The subject of a replica's heartbeats: `kv.v1.status.<key>`.
pub fn status(key: &ReplicaKey) -> String {
    format!("{STATUS_PREFIX}{key}")
}

/// Whose envelopes a hint subject carries.
pub fn parse_hint(subject: &str) -> Result<Replica, SubjectError> {
    parse(subject, HINT_PREFIX)
}

/// Whose snapshot a snapshot subject asks for.
pub fn parse_snapshot(subject: &str) -> Result<Replica, SubjectError> {
    parse(subject, SNAPSHOT_PREFIX)
}

fn parse(subject: &str, prefix: &'static str) -> Result<Replica, SubjectError> {
    let key = subject.strip_prefix(prefix).ok_or(SubjectError::Prefix { expected: prefix })?;
    Ok(ReplicaKey::parse(key)?)
}

/// The id by which the log drops the same batch published twice: `<key>/<epoch>/<seq>`.
pub fn message_id(key: &ReplicaKey, epoch: Epoch, seq: Seq) -> String {
    format!("{key}/{epoch}/{seq}")
}

/// Reads a message id back.
pub fn parse_message_id(id: &str) -> Result<(Replica, Epoch, Seq), SubjectError> {
    let mut parts = id.split('/');
    let (Some(key), Some(epoch), Some(seq), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(SubjectError::Parts { count: id.split('/').count() });
    };
    Ok((ReplicaKey::parse(key)?, Epoch(number(epoch)?), Seq(number(seq)?)))
}

fn number(text: &str) -> Result<u64, SubjectError> {
    let value: u64 = text.parse().map_err(|_| SubjectError::Number)?;
    // One message, one spelling: `+1` and `01` would be other ids of the same batch.
    if value.to_string() == text { Ok(value) } else { Err(SubjectError::Number) }
}

/// Why a text is not one of our subjects or message ids.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubjectError {
    /// It begins otherwise.
    #[error("subject does not begin with {expected}")]
    Prefix {
        /// What it should begin with.
        expected: &'static str,
    },
    /// A message id does not have three parts.
    #[error("message id has {count} parts, expected key/epoch/seq")]
    Parts {
        /// How many came.
        count: usize,
    },
    /// Epoch or seq is not a plain decimal number.
    #[error("message id does not end in two plain decimal numbers")]
    Number,
    /// The replica's key in it is broken.
    #[error(transparent)]
    Key(#[from] KeyError),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica() -> Replica {
        Replica { model: "org/m-1.5".into(), instance: "10.0.0.7:8000".into(), rank: 3 }
    }

    #[test]
    fn names_are_the_documented_ones() {
        let key = replica().key();
        assert_eq!(hint(&key), "kv.v1.hint.org=2Fm-1=2E5.10=2E0=2E0=2E7=3A8000.3");
        assert_eq!(snapshot(&key), "kv.v1.snapshot.org=2Fm-1=2E5.10=2E0=2E0=2E7=3A8000.3");
        assert_eq!(status(&key), "kv.v1.status.org=2Fm-1=2E5.10=2E0=2E0=2E7=3A8000.3");
        assert_eq!(message_id(&key, Epoch(7), Seq(9)), "org=2Fm-1=2E5.10=2E0=2E0=2E7=3A8000.3/7/9");
        assert_eq!(hint_of_model("org/m-1.5"), "kv.v1.hint.org=2Fm-1=2E5.>");
    }

    #[test]
    fn one_subject_is_not_another() {
        let key = replica().key();
        assert_eq!(
            parse_hint(&snapshot(&key)),
            Err(SubjectError::Prefix { expected: HINT_PREFIX })
        );
        assert_eq!(
            parse_hint("kv.v1.hint.m.i"),
            Err(SubjectError::Key(KeyError::Parts { count: 2 }))
        );
    }

    #[test]
    fn message_ids_have_one_spelling() {
        let key = replica().key();
        assert_eq!(parse_message_id(&format!("{key}/01/2")), Err(SubjectError::Number));
        assert_eq!(parse_message_id(&format!("{key}/+1/2")), Err(SubjectError::Number));
        assert_eq!(parse_message_id(&format!("{key}/1")), Err(SubjectError::Parts { count: 2 }));
        // A reset's id is longer, in a space of its own.
        assert_eq!(
            parse_message_id(&format!("{key}/1/bridge/2")),
            Err(SubjectError::Parts { count: 4 })
        );
    }
}
