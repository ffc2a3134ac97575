//! What each golden case holds.

use kvbridge_schemas::{
    BlockHash, BusSeq, ClearCause, Cleared, Digest, Engine, EngineKind, Envelope, Epoch, Event,
    ExtraKey, Group, GroupKind, HashInfo, HashScheme, Moved, Parent, Place, Removed, Replica,
    Reset, Scope, Seq, SnapshotHeader, SnapshotRecord, SnapshotState, Status, Stored, StoredBlock,
    Tier, Tokens, Trust, TrustChange, content_hash, digest,
};

use super::{AnyMessage, Case};

fn replica() -> Replica {
    Replica { model: "org/m-1.5".into(), instance: "10.0.0.7:8000".into(), rank: 0 }
}

fn envelope(events: Vec<Event>) -> Envelope {
    Envelope {
        replica: replica(),
        epoch: Epoch(1_796_006_936_000),
        incarnation: None,
        seq: Seq(17),
        span: 1,
        digest: digest(b"golden"),
        trust: Trust::Exact,
        ts: 1_796_006_936_107_260,
        engine: Engine { kind: EngineKind::Vllm, format: "vllm.map".into() },
        hash: HashInfo { scheme: HashScheme::Unknown, block_size: 4 },
        events,
    }
}

/// A hash of `len` bytes; short ones look like the integers that engines send.
fn hash(len: usize, seed: u8) -> BlockHash {
    let bytes: Vec<u8> = (0..=u8::MAX).cycle().skip(usize::from(seed)).take(len).collect();
    BlockHash::from_bytes(&bytes).expect("an accepted length")
}

fn group(index: u32, kind: GroupKind, window: Option<u32>) -> Option<Group> {
    Some(Group { index, kind: Some(kind), window })
}

fn stored(blocks: Vec<StoredBlock>) -> Stored {
    Stored {
        parent: Parent::Root,
        block_size: 4,
        tokens: Tokens::default(),
        blocks,
        partial: false,
        bigram: false,
        place: Place::of(Tier::Device),
        lora: None,
        lora_id: None,
        salt: None,
        extra: Vec::new(),
        session: None,
    }
}

fn block(hash: BlockHash, content: Option<u64>) -> StoredBlock {
    StoredBlock { hash, content }
}

/// Blocks of four tokens each; a hash is the integer form, as vLLM sends it.
fn dense(tokens: &[u32]) -> Stored {
    let blocks = tokens
        .chunks_exact(4)
        .zip([0x7353_5d66_e768_7837, 0x6c73_2198_c553_3a74])
        .map(|(ids, hash)| block(BlockHash::from_u64(hash), Some(content_hash(ids))))
        .collect();
    Stored { tokens: Tokens(tokens.to_vec()), ..stored(blocks) }
}

fn lora_salt() -> Stored {
    let text = |text: &str| ExtraKey::Text(text.into());
    Stored {
        place: Place {
            tier: Tier::Device,
            medium: Some("GPU".into()),
            group: group(0, GroupKind::FullAttention, None),
            locality: None,
            ownership: None,
        },
        lora: Some("ad1".into()),
        lora_id: Some(3),
        salt: Some("s1".into()),
        extra: vec![vec![text("ad1"), text("s1")], vec![text("ad1")]],
        ..dense(&[10, 11, 12, 13, 128_000, 200, 70_000, u32::MAX])
    }
}

fn everything() -> Stored {
    Stored {
        parent: Parent::Block(hash(8, 0x10)),
        place: Place {
            tier: Tier::External,
            medium: Some("STORAGE".into()),
            group: group(2, GroupKind::SlidingWindow, Some(1024)),
            locality: Some("REMOTE".into()),
            ownership: Some("pool-b".into()),
        },
        lora_id: Some(-1),
        extra: vec![vec![
            ExtraKey::Text("é, text".into()),
            ExtraKey::Item { id: "image-1".into(), offset: -3 },
            ExtraKey::Bytes(vec![0, 0xff, 0x80]),
            ExtraKey::Bytes(Vec::new()),
        ]],
        session: Some("session-9".into()),
        ..stored(vec![block(hash(8, 0x20), None)])
    }
}

fn stores() -> Vec<(&'static str, Envelope)> {
    let one = |event: Stored| envelope(vec![Event::Stored(event)]);
    let bigram_tokens: Vec<u32> = (1..=9).collect();
    let bigram = |at: usize| content_hash(&bigram_tokens[at * 4..=at * 4 + 4]);
    vec![
        ("stored_lora_salt_two_blocks", one(lora_salt())),
        ("stored_every_field", one(everything())),
        (
            "stored_sparse",
            one(Stored {
                parent: Parent::Block(hash(8, 0x40)),
                tokens: Tokens((1..=12).collect()),
                ..stored(vec![block(hash(8, 0x50), None), block(hash(8, 0x60), None)])
            }),
        ),
        (
            "stored_empty_parent_unknown",
            one(Stored { parent: Parent::Unknown, block_size: 0, ..stored(Vec::new()) }),
        ),
        (
            "stored_partial",
            one(Stored {
                parent: Parent::Block(hash(8, 0x40)),
                tokens: Tokens(vec![7, 8]),
                partial: true,
                ..stored(vec![block(hash(8, 0x50), Some(content_hash(&[7, 8])))])
            }),
        ),
        (
            "stored_bigram",
            one(Stored {
                tokens: Tokens(bigram_tokens.clone()),
                bigram: true,
                ..stored(vec![
                    block(hash(8, 0x50), Some(bigram(0))),
                    block(hash(8, 0x60), Some(bigram(1))),
                ])
            }),
        ),
        (
            "stored_unknown_tier_and_group",
            one(Stored {
                place: Place {
                    tier: Tier::Other("cxl".into()),
                    medium: Some("CXL".into()),
                    group: group(1, GroupKind::Other("mamba".into()), None),
                    ..Place::of(Tier::Device)
                },
                ..stored(vec![block(hash(8, 0x50), None)])
            }),
        ),
    ]
}

fn edges() -> Vec<(&'static str, Envelope)> {
    let one = |event: Stored| envelope(vec![Event::Stored(event)]);
    vec![
        (
            "stored_hash_lengths",
            one(stored([8, 16, 32, 64].map(|len| block(hash(len, 0xf8), None)).to_vec())),
        ),
        // Numbers at the edges of what a message can hold; content below 2^32 stays 16 digits.
        (
            "stored_edge_numbers",
            Envelope {
                epoch: Epoch(u64::MAX),
                seq: Seq(u64::MAX),
                span: u32::MAX,
                ts: 0,
                ..one(Stored {
                    lora_id: Some(i64::MIN),
                    ..stored(vec![
                        block(hash(1, 0), Some(0)),
                        block(hash(2048, 1), Some(u64::MAX)),
                        block(hash(33, 2), Some(0xffff)),
                    ])
                })
            },
        ),
    ]
}

fn trust_withdrawn() -> Envelope {
    let change = TrustChange { trust: Trust::None, reason: "gap_open".into(), bridge: "b1".into() };
    let said = envelope(vec![Event::Trust(change)]);
    Envelope { span: 0, trust: Trust::None, digest: Digest::default(), ..said }
}

fn others() -> Vec<(&'static str, Envelope)> {
    let one = |event: Event| envelope(vec![event]);
    let cleared = |scope, cause| one(Event::Cleared(Cleared { scope, cause }));
    let reset = |snapshot: Option<&str>| Envelope {
        span: 5,
        trust: Trust::LowerBound,
        digest: Digest::default(),
        ..one(Event::Reset(Reset {
            cause: "permanent_hole".into(),
            trust: Trust::LowerBound,
            snapshot: snapshot.map(str::to_owned),
        }))
    };
    let place = Place {
        tier: Tier::Host,
        medium: Some("CPU_PINNED".into()),
        group: Some(Group { index: 0, kind: None, window: None }),
        locality: Some("LOCAL".into()),
        ownership: Some("pool-a".into()),
    };
    vec![
        (
            "removed_two",
            one(Event::Removed(Removed { hashes: vec![hash(8, 0x50), hash(32, 0x60)], place })),
        ),
        ("cleared_by_engine_all", cleared(Scope::All, ClearCause::Engine)),
        (
            "cleared_by_repair_tiers",
            cleared(
                Scope::Tiers(vec![Tier::Device, Tier::Host, Tier::Other("cxl".into())]),
                ClearCause::Repair,
            ),
        ),
        ("reset_with_snapshot", reset(Some("org=2Fm-1=2E5.10=2E0=2E0=2E7=3A8000.0/7/22/b1"))),
        ("reset_without_snapshot", reset(None)),
        (
            "moved_device_to_disk",
            one(Event::Moved(Moved { hash: hash(8, 9), from: Tier::Device, to: Tier::Disk })),
        ),
        ("trust_withdrawn_by_a_bridge", trust_withdrawn()),
        (
            "unknown_event_between_known",
            envelope(vec![
                Event::Removed(Removed {
                    hashes: vec![hash(8, 1)],
                    place: Place::of(Tier::Device),
                }),
                Event::Unknown("pinned".into()),
                Event::Stored(dense(&[1, 2, 3, 4])),
            ]),
        ),
        (
            "heartbeat_no_events",
            Envelope {
                trust: Trust::None,
                incarnation: Some("0b7c5d1e".into()),
                engine: Engine { kind: EngineKind::Sglang, format: "sglang.map".into() },
                hash: HashInfo { scheme: HashScheme::Named("sglang.sha256".into()), block_size: 1 },
                ..envelope(Vec::new())
            },
        ),
        (
            "unknown_engine",
            Envelope {
                replica: Replica { model: String::new(), instance: "häst:1".into(), rank: 4096 },
                engine: Engine { kind: EngineKind::Other("newengine".into()), format: "x".into() },
                ..envelope(Vec::new())
            },
        ),
    ]
}

fn record() -> SnapshotRecord {
    SnapshotRecord {
        hash: hash(8, 0x50),
        parent: Parent::Root,
        content: Some(content_hash(&[1, 2, 3, 4])),
        block_size: 4,
        tier: Tier::Device,
        group: None,
        count: 1,
        lora: None,
        salt: None,
        extra: None,
        partial: false,
        bigram: false,
        parked: false,
        hint: false,
    }
}

fn full_record() -> SnapshotRecord {
    SnapshotRecord {
        parent: Parent::Block(hash(32, 0x40)),
        tier: Tier::Host,
        group: group(1, GroupKind::MlaAttention, None),
        count: 3,
        lora: Some("ad1".into()),
        salt: Some("s1".into()),
        extra: Some(0x0123_4567_89ab_cdef),
        partial: true,
        bigram: true,
        parked: true,
        hint: true,
        ..record()
    }
}

fn state() -> SnapshotState {
    SnapshotState {
        host: Trust::LowerBound,
        reason: "flushed".into(),
        proven: Some(Scope::Tiers(vec![Tier::Device])),
        stores_lost: Some("anomaly".into()),
        removals_lost: true,
        audit_from: Seq(3),
        highest_live: Some(Seq(17)),
        confirmed: true,
        incarnation: Some("b7".into()),
        closed: vec!["a1".into(), "a2".into()],
        settings: "vllm last8".into(),
        digests: vec![(Seq(16), digest(b"sixteen")), (Seq(17), digest(b"golden"))],
    }
}

fn bare_state() -> SnapshotState {
    SnapshotState {
        proven: None,
        stores_lost: None,
        removals_lost: false,
        highest_live: None,
        confirmed: false,
        incarnation: None,
        closed: Vec::new(),
        digests: Vec::new(),
        ..state()
    }
}

fn snapshots() -> Vec<(&'static str, AnyMessage)> {
    let header = SnapshotHeader {
        replica: replica(),
        epoch: Epoch(1_796_006_936_000),
        resume_seq: Seq(18),
        bus_seq: Some(BusSeq(4_000_000_000_000)),
        last_digest: Some(digest(b"golden")),
        trust: Trust::Exact,
        block_count: 3,
        state: None,
    };
    let with_state = SnapshotHeader { state: Some(state()), ..header.clone() };
    let bare_state = SnapshotHeader { state: Some(bare_state()), ..header.clone() };
    let placed =
        SnapshotRecord { parent: Parent::Unknown, content: None, block_size: 0, ..record() };
    let status = Status {
        replica: replica(),
        epoch: Epoch(1_796_006_936_000),
        next_seq: Seq(18),
        view_seq: None,
        bus_seq: Some(BusSeq(41)),
        trust: Trust::Exact,
        reason: "contiguous".into(),
        bridge: "bridge-a".into(),
        at: 1_796_006_937_000,
    };
    let off_bus = SnapshotHeader {
        bus_seq: None,
        last_digest: None,
        trust: Trust::LowerBound,
        resume_seq: Seq(0),
        block_count: 0,
        ..header.clone()
    };
    let silent = Status {
        bus_seq: None,
        trust: Trust::None,
        reason: "gap".into(),
        next_seq: Seq(0),
        ..status.clone()
    };
    let ahead = Status { view_seq: Some(Seq(4_711)), ..status.clone() };
    vec![
        ("snapshot_header", AnyMessage::Header(header)),
        ("snapshot_header_without_bus", AnyMessage::Header(off_bus)),
        ("snapshot_header_with_state", AnyMessage::Header(with_state)),
        ("snapshot_header_with_bare_state", AnyMessage::Header(bare_state)),
        ("snapshot_record_every_field", AnyMessage::Record(full_record())),
        ("snapshot_chunk", AnyMessage::Chunk(vec![record(), full_record(), placed])),
        ("status", AnyMessage::Status(status)),
        ("status_without_bus", AnyMessage::Status(silent)),
        ("status_with_view", AnyMessage::Status(ahead)),
    ]
}

/// Every golden case.
pub(crate) fn all() -> Vec<Case> {
    let envelopes = stores().into_iter().chain(edges()).chain(others());
    let envelopes = envelopes.map(|(name, envelope)| (name, AnyMessage::Envelope(envelope)));
    envelopes.chain(snapshots()).map(|(name, message)| Case { name, message }).collect()
}
