//! A batch as its reader decodes it, without the token ids. It shares no code with what writes
//! batches, and takes both forms of events whatever the reader wants: which one came is said.

use std::fmt;

use kvbridge_schemas::msgpack::{Cursor, Int, Kind, Unreadable};

use crate::sink_line::Form;

/// A text may be as long as its batch, which is bounded where it is read. What is shown is not.
const TEXT_BYTES_MAX: usize = usize::MAX;

/// How a hash was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// A number of 9 bytes.
    Wide,
    /// A number of fewer.
    Short,
    /// A byte string of that length.
    Bytes(usize),
}

/// A hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hash {
    /// Its last 64 bits.
    pub key: u64,
    /// How it was written.
    pub written: Written,
    /// It is below 0.
    pub negative: bool,
}

/// A store.
#[derive(Clone, PartialEq, Eq)]
pub struct Stored {
    /// The blocks, one after the other.
    pub hashes: Vec<Hash>,
    /// What comes before the first.
    pub parent: Option<Hash>,
    /// How many token ids there were.
    pub token_count: usize,
    /// Tokens of a block.
    pub block_size: u32,
    /// Where.
    pub medium: Option<String>,
    /// The adapter's name.
    pub lora: Option<String>,
    /// How many blocks have extra keys.
    pub keyed_count: usize,
    /// The texts among the extra keys of the first block: an adapter's name, a salt.
    pub(super) texts: Vec<String>,
}

impl fmt::Debug for Stored {
    // A salt is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stored({} blocks)", self.hashes.len())
    }
}

/// What an event says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// Blocks came.
    Stored(Stored),
    /// Blocks went.
    Removed {
        /// Which.
        hashes: Vec<Hash>,
        /// From where.
        medium: Option<String>,
    },
    /// Everything is gone.
    Cleared,
    /// Something else, by its tag.
    Other(String),
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// By name or by position.
    pub form: Form,
    /// What it says.
    pub said: Said,
}

/// A batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Elements of the array.
    pub elements: usize,
    /// The time, if it is a fraction of 8 bytes.
    pub time: Option<f64>,
    /// The events, in order.
    pub events: Vec<Event>,
    /// The rank, if it is told.
    pub rank: Option<u64>,
}

/// Reads a payload to its end.
pub(super) fn batch(payload: &[u8]) -> Result<Batch, Unreadable> {
    let mut from = Cursor::new(payload);
    let elements = from.array()?;
    let before = from.remaining();
    let time = if from.kind()? == Kind::Float {
        Some(from.float()?).filter(|_| before - from.remaining() == 9)
    } else {
        from.skip()?;
        None
    };
    let count = from.array()?;
    // No more than the bytes that are left: the cursor has checked.
    let mut events = Vec::with_capacity(count.min(1024));
    for _ in 0..count {
        events.push(event(&mut from)?);
    }
    let mut rank = None;
    for at in 2..elements {
        if at == 2 && from.kind()? == Kind::Int {
            rank = Some(from.u64()?);
        } else {
            from.skip()?;
        }
    }
    match from.remaining() {
        0 => Ok(Batch { elements, time, events, rank }),
        _ => Err(Unreadable::TooLong),
    }
}

/// The fields of an event, whatever it is.
#[derive(Default)]
struct Fields {
    hashes: Vec<Hash>,
    parent: Option<Hash>,
    token_count: usize,
    block_size: u32,
    medium: Option<String>,
    lora: Option<String>,
    keyed_count: usize,
    texts: Vec<String>,
}

const STORED: [&str; 8] = [
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
];
const REMOVED: [&str; 2] = ["block_hashes", "medium"];

fn event(from: &mut Cursor<'_>) -> Result<Event, Unreadable> {
    let mut fields = Fields::default();
    let (form, tag) = if from.kind()? == Kind::Map {
        let pairs = from.map()?;
        let mut tag = String::new();
        for _ in 0..pairs {
            match from.text(TEXT_BYTES_MAX)? {
                "type" => tag = from.text(TEXT_BYTES_MAX)?.to_owned(),
                name => fields.read(name, from)?,
            }
        }
        (Form::Maps, tag)
    } else {
        let count = from.array()?;
        let tag = from.text(TEXT_BYTES_MAX)?.to_owned();
        let names: &[&str] = if tag == "BlockRemoved" { &REMOVED } else { &STORED };
        for at in 1..count {
            fields.read(names.get(at - 1).copied().unwrap_or_default(), from)?;
        }
        (Form::Arrays, tag)
    };
    Ok(Event { form, said: fields.said(tag) })
}

impl Fields {
    fn read(&mut self, name: &str, from: &mut Cursor<'_>) -> Result<(), Unreadable> {
        if from.nil() {
            return Ok(());
        }
        match name {
            "block_hashes" => {
                let count = from.array()?;
                for _ in 0..count {
                    self.hashes.push(hash(from)?);
                }
            }
            "parent_block_hash" => self.parent = Some(hash(from)?),
            "token_ids" => {
                self.token_count = from.array()?;
                for _ in 0..self.token_count {
                    from.u32()?;
                }
            }
            "block_size" => self.block_size = from.u32()?,
            "medium" => self.medium = Some(from.text(TEXT_BYTES_MAX)?.to_owned()),
            "lora_name" => self.lora = Some(from.text(TEXT_BYTES_MAX)?.to_owned()),
            "extra_keys" => self.extra_keys(from)?,
            _ => from.skip()?,
        }
        Ok(())
    }

    fn extra_keys(&mut self, from: &mut Cursor<'_>) -> Result<(), Unreadable> {
        let count = from.array()?;
        for block in 0..count {
            if from.nil() {
                continue;
            }
            self.keyed_count += 1;
            let keys = from.array()?;
            for _ in 0..keys {
                if block == 0 && from.kind()? == Kind::Text {
                    self.texts.push(from.text(TEXT_BYTES_MAX)?.to_owned());
                } else {
                    from.skip()?;
                }
            }
        }
        Ok(())
    }

    fn said(self, tag: String) -> Said {
        match tag.as_str() {
            "BlockStored" => Said::Stored(Stored {
                hashes: self.hashes,
                parent: self.parent,
                token_count: self.token_count,
                block_size: self.block_size,
                medium: self.medium,
                lora: self.lora,
                keyed_count: self.keyed_count,
                texts: self.texts,
            }),
            "BlockRemoved" => Said::Removed { hashes: self.hashes, medium: self.medium },
            "AllBlocksCleared" => Said::Cleared,
            _ => Said::Other(tag),
        }
    }
}

fn hash(from: &mut Cursor<'_>) -> Result<Hash, Unreadable> {
    if from.kind()? != Kind::Int {
        let bytes = from.bytes()?;
        let tail = bytes.get(bytes.len().saturating_sub(8)..).unwrap_or_default();
        let key = tail.iter().fold(0, |key, byte| key << 8 | u64::from(*byte));
        return Ok(Hash { key, written: Written::Bytes(bytes.len()), negative: false });
    }
    let before = from.remaining();
    let (key, negative) = match from.int()? {
        Int::Unsigned(value) => (value, false),
        Int::Negative(value) => (u64::from_be_bytes(value.to_be_bytes()), true),
    };
    let written = if before - from.remaining() == 9 { Written::Wide } else { Written::Short };
    Ok(Hash { key, written, negative })
}
