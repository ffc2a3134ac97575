//! Who an envelope speaks of and where in its stream: replica, epoch, seq, cursor.

use std::{fmt, fmt::Write as _, sync::Arc};

/// The serving program behind a replica.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EngineKind {
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// TensorRT-LLM.
    Trtllm,
    /// An engine this version does not know, by the name it was given.
    Other(String),
}

impl EngineKind {
    /// The name on the wire: `vllm`, `sglang`, `trtllm` or the other engine's own.
    pub fn as_str(&self) -> &str {
        match self {
            EngineKind::Vllm => "vllm",
            EngineKind::Sglang => "sglang",
            EngineKind::Trtllm => "trtllm",
            EngineKind::Other(name) => name,
        }
    }

    /// The kind of that name; an unknown one is kept as [`EngineKind::Other`].
    pub fn from_name(name: &str) -> EngineKind {
        match name {
            "vllm" => EngineKind::Vllm,
            "sglang" => EngineKind::Sglang,
            "trtllm" => EngineKind::Trtllm,
            other => EngineKind::Other(other.to_owned()),
        }
    }
}

/// One independently routable KV cache: a data-parallel rank of an instance.
///
/// A tensor-parallel group is one rank, so TP=4, DP=1 is one replica.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Replica {
    /// The served model's name. Blocks of different models never share a match.
    pub model: String,
    /// What a router sends requests to (`host:port`), byte for byte as the router says it.
    pub instance: String,
    /// Data-parallel rank inside the instance.
    pub rank: u32,
}

impl Replica {
    /// The one string that names this replica everywhere: URL segment, subject tail, label.
    pub fn key(&self) -> ReplicaKey {
        let mut key = String::with_capacity(self.model.len() + self.instance.len() + 8);
        escape(&self.model, &mut key);
        key.push('.');
        escape(&self.instance, &mut key);
        key.push('.');
        escape(&self.rank.to_string(), &mut key);
        ReplicaKey(Arc::from(key))
    }
}

/// `<model>.<instance>.<rank>`, every byte outside `[A-Za-z0-9_-]` of each part written `=XX`.
///
/// An empty part is a lone `=`: a subject may not hold an empty token.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaKey(Arc<str>);

impl ReplicaKey {
    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads a key back into the replica it names.
    pub fn parse(text: &str) -> Result<Replica, KeyError> {
        let mut parts = text.split('.');
        let (Some(model), Some(instance), Some(rank), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(KeyError::Parts { count: text.split('.').count() });
        };
        let replica = Replica {
            model: unescape(model)?,
            instance: unescape(instance)?,
            rank: unescape(rank)?.parse().map_err(|_| KeyError::Rank)?,
        };
        // One replica, one spelling: `=41` for `A` or a rank `007` would be a second name of one
        // cache.
        if replica.key().as_str() == text { Ok(replica) } else { Err(KeyError::NotCanonical) }
    }
}

impl fmt::Display for ReplicaKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a text is not a replica key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Not exactly three parts.
    #[error("replica key has {count} parts, expected model.instance.rank")]
    Parts {
        /// How many dot-separated parts came.
        count: usize,
    },
    /// An `=XX` escape is cut short, not hexadecimal or not UTF-8.
    #[error("replica key holds a broken =XX escape")]
    Escape,
    /// The third part is not a number.
    #[error("replica key does not end in a rank number")]
    Rank,
    /// Readable, but not the one spelling that this replica has.
    #[error("replica key is not in its canonical form")]
    NotCanonical,
}

pub(crate) fn escape(part: &str, out: &mut String) {
    if part.is_empty() {
        out.push('=');
    }
    for byte in part.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-' {
            out.push(char::from(byte));
        } else {
            write!(out, "={byte:02X}").expect("writing to a String cannot fail");
        }
    }
}

fn unescape(part: &str) -> Result<String, KeyError> {
    if part == "=" {
        return Ok(String::new());
    }
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'=' {
            bytes.push(byte);
            continue;
        }
        let (Some(high), Some(low)) = (rest.next(), rest.next()) else {
            return Err(KeyError::Escape);
        };
        let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
        let (Some(high), Some(low)) = (digit(high), digit(low)) else {
            return Err(KeyError::Escape);
        };
        bytes.push(high << 4 | low);
    }
    String::from_utf8(bytes).map_err(|_| KeyError::Escape)
}

/// One lifetime of a replica's cache. Strictly increasing per replica; unix ms of its first sight,
/// bumped past the previous one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Number of a batch within an epoch, the engine's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl Seq {
    /// The seq `count` batches later; saturates, so that a hostile seq cannot wrap round to zero.
    pub fn plus(self, count: u64) -> Seq {
        Seq(self.0.saturating_add(count))
    }

    /// The seq `count` batches earlier, at the least 0.
    pub fn minus(self, count: u64) -> Seq {
        Seq(self.0.saturating_sub(count))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number JetStream gave to a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BusSeq(pub u64);

/// Where a view stands: every batch of `epoch` below `next_seq` is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cursor {
    /// The life the view speaks of.
    pub epoch: Epoch,
    /// The seq expected next ("last applied" could not say "nothing yet").
    pub next_seq: Seq,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(model: &str, instance: &str, rank: u32) -> String {
        Replica { model: model.into(), instance: instance.into(), rank }.key().to_string()
    }

    #[test]
    fn key_escapes_all_but_letters_digits_dash_and_underscore() {
        assert_eq!(key("org/M_1-x", "h:80", 7), "org=2FM_1-x.h=3A80.7");
        assert_eq!(key("é", "=", 0), "=C3=A9.=3D.0");
        assert_eq!(key("", "", 0), "=.=.0");
    }

    #[test]
    fn key_is_refused_by_reason() {
        let refused = [
            ("", KeyError::Parts { count: 1 }),
            ("m.i", KeyError::Parts { count: 2 }),
            ("m.i.0.1", KeyError::Parts { count: 4 }),
            ("=2.i.0", KeyError::Escape),
            ("=2G.i.0", KeyError::Escape),
            ("=FF.i.0", KeyError::Escape),
            ("m.i.x", KeyError::Rank),
            ("m.i.", KeyError::Rank),
            ("m.i.4294967296", KeyError::Rank),
            ("m.i.007", KeyError::NotCanonical),
            ("=41.i.0", KeyError::NotCanonical),
            ("=2f.i.0", KeyError::NotCanonical),
            (".i.0", KeyError::NotCanonical),
            ("m i.i.0", KeyError::NotCanonical),
        ];
        for (text, error) in refused {
            assert_eq!(ReplicaKey::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn engine_names_come_back() {
        for name in ["vllm", "sglang", "trtllm", "another"] {
            assert_eq!(EngineKind::from_name(name).as_str(), name);
        }
        assert_eq!(EngineKind::from_name("vLLM"), EngineKind::Other("vLLM".into()));
    }

    #[test]
    fn seq_saturates() {
        assert_eq!(Seq(1).plus(2), Seq(3));
        assert_eq!(Seq(u64::MAX).plus(1), Seq(u64::MAX));
    }
}
