//! What reads a line as routers do, and the decoding, which shares no code with the encoder.

use std::collections::BTreeMap;

use kvbridge_schemas::msgpack::Cursor;

use crate::sink_line::{Line, Moment, Numbered};

/// One event as a reader sees it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Seen {
    Stored { keys: Vec<u64>, parent: Option<u64>, tokens: Vec<u32>, size: u32, medium: String },
    Removed { keys: Vec<u64>, medium: String },
    Cleared,
}

fn keys(from: &mut Cursor<'_>) -> Vec<u64> {
    let count = from.array().unwrap();
    let before = from.remaining();
    let keys: Vec<u64> = (0..count).map(|_| from.u64().unwrap()).collect();
    assert_eq!(before - from.remaining(), 9 * count, "a hash has 9 bytes whatever it is");
    keys
}

/// The events of a batch in the form of maps.
pub(super) fn read(payload: &[u8]) -> Vec<Seen> {
    let mut from = Cursor::new(payload);
    assert_eq!(from.array(), Ok(3), "three elements");
    from.float().expect("a fraction");
    let count = from.array().unwrap();
    let events = (0..count).map(|_| read_event(&mut from)).collect();
    from.u32().expect("a rank");
    assert_eq!(from.remaining(), 0);
    events
}

fn read_event(from: &mut Cursor<'_>) -> Seen {
    let pairs = from.map().unwrap();
    assert_eq!(from.text(10), Ok("type"));
    let tag = from.text(30).unwrap().to_owned();
    let (mut hashes, mut parent, mut tokens) = (Vec::new(), None, Vec::new());
    let (mut size, mut medium) = (0, String::new());
    for _ in 1..pairs {
        match from.text(30).unwrap() {
            "block_hashes" => hashes = keys(from),
            "parent_block_hash" => parent = (!from.nil()).then(|| from.u64().unwrap()),
            "token_ids" => {
                let count = from.array().unwrap();
                from.u32s(count, &mut tokens).unwrap();
            }
            "block_size" => size = from.u32().unwrap(),
            "medium" => medium = from.text(10).unwrap().to_owned(),
            "lora_id" | "lora_name" | "extra_keys" => from.skip().unwrap(),
            other => panic!("{other}"),
        }
    }
    match tag.as_str() {
        "BlockStored" => {
            assert_eq!(tokens.len(), hashes.len() * usize::try_from(size).unwrap());
            Seen::Stored { keys: hashes, parent, tokens, size, medium }
        }
        "BlockRemoved" => Seen::Removed { keys: hashes, medium },
        "AllBlocksCleared" => Seen::Cleared,
        other => panic!("{other}"),
    }
}

/// A reader that keeps a map of blocks and mends gaps the way its router does.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// Takes a smaller number for a restart, and only whole ranges; else drops smaller numbers and
    /// takes any range.
    pub(super) strict: bool,
    pub(super) next: Option<u64>,
    /// The highest number that came live since the last restart.
    pub(super) last_live: u64,
    pub(super) has: BTreeMap<(u64, String), Vec<u32>>,
}

impl Reader {
    pub(super) fn live(&mut self, line: &Line, at: Moment, live: &Numbered) {
        if self.strict && live.seq < self.last_live {
            self.has.clear();
            self.next = None;
        }
        self.last_live = live.seq;
        let expected = self.next.unwrap_or(0);
        if live.seq > expected {
            self.ask(line, at, expected);
        }
        if live.seq >= self.next.unwrap_or(0) {
            self.take(live);
        }
    }

    fn ask(&mut self, line: &Line, at: Moment, start: u64) {
        let batches: Vec<Numbered> = line.replay(at, start).1.collect();
        let first = batches.first().map(|batch| batch.seq);
        assert!(first.is_some(), "a range that was published is answered");
        if self.strict {
            assert_eq!(first, Some(start), "a truncated range");
        }
        assert!(batches.windows(2).all(|two| two[1].seq == two[0].seq + 1), "a hole");
        assert_eq!(batches.last().unwrap().seq + 1, line.next_seq(), "to the newest");
        for batch in &batches {
            if batch.seq >= self.next.unwrap_or(0) {
                self.take(batch);
            }
        }
    }

    pub(super) fn take(&mut self, batch: &Numbered) {
        for event in read(&batch.payload) {
            match event {
                Seen::Cleared => self.has.clear(),
                Seen::Removed { keys, medium } => {
                    for key in keys {
                        let was = self.has.remove(&(key, medium.clone()));
                        assert!(was.is_some(), "a removal of what was never told");
                    }
                }
                Seen::Stored { keys, mut parent, tokens, size, medium } => {
                    let size = usize::try_from(size).unwrap();
                    for (key, tokens) in keys.into_iter().zip(tokens.chunks_exact(size)) {
                        let known = |parent| self.has.keys().any(|(key, _)| *key == parent);
                        assert!(parent.is_none_or(known), "a store behind an unknown parent");
                        let was = self.has.insert((key, medium.clone()), tokens.to_vec());
                        assert!(was.is_none(), "a store that was told already");
                        parent = Some(key);
                    }
                }
            }
        }
        self.next = Some(batch.seq + 1);
    }
}
