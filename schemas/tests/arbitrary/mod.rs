//! Arbitrary messages: every value that the types can hold and the wire can carry.
//!
//! Two things cannot come back as they went: an open word that spells a known one
//! (`Other("vllm")`), and an unknown event with the name of a known type. Nobody makes them, so
//! they are left out.

use kvbridge_schemas::{
    BlockHash, BusSeq, ClearCause, Cleared, Digest, Engine, EngineKind, Envelope, Epoch, Event,
    ExtraKey, Group, GroupKind, HashInfo, HashScheme, Moved, Parent, Place, Removed, Replica,
    Reset, Scope, Seq, SnapshotHeader, SnapshotRecord, SnapshotState, Status, Stored, StoredBlock,
    Tier, Tokens, Trust, TrustChange,
};
use proptest::{collection::vec, option, prelude::*};

fn word() -> impl Strategy<Value = String> {
    any::<String>()
}

pub(crate) fn replica() -> impl Strategy<Value = Replica> {
    (word(), word(), any::<u32>()).prop_map(|(model, instance, rank)| Replica {
        model,
        instance,
        rank,
    })
}

fn hash() -> impl Strategy<Value = BlockHash> {
    let lengths = prop_oneof![Just(8_usize), Just(16), Just(32), Just(64), 1..100_usize];
    lengths
        .prop_flat_map(|len| vec(any::<u8>(), len))
        .prop_map(|bytes| BlockHash::from_bytes(&bytes).expect("an accepted length"))
}

fn digest() -> impl Strategy<Value = Digest> {
    any::<[u8; 16]>().prop_map(Digest)
}

fn trust() -> impl Strategy<Value = Trust> {
    prop_oneof![Just(Trust::None), Just(Trust::LowerBound), Just(Trust::Exact)]
}

fn tier() -> impl Strategy<Value = Tier> {
    prop_oneof![
        Just(Tier::Device),
        Just(Tier::Host),
        Just(Tier::Disk),
        Just(Tier::External),
        word().prop_map(Tier::Other)
    ]
}

fn group() -> impl Strategy<Value = Group> {
    let kind = prop_oneof![
        Just(GroupKind::FullAttention),
        Just(GroupKind::MlaAttention),
        Just(GroupKind::SlidingWindow),
        word().prop_map(|word| GroupKind::from_name(&word))
    ];
    (any::<u32>(), option::of(kind), option::of(any::<u32>()))
        .prop_map(|(index, kind, window)| Group { index, kind, window })
}

fn parent() -> impl Strategy<Value = Parent> {
    prop_oneof![Just(Parent::Root), Just(Parent::Unknown), hash().prop_map(Parent::Block)]
}

fn place() -> impl Strategy<Value = Place> {
    let text = || option::of(word());
    (tier(), text(), option::of(group()), text(), text()).prop_map(
        |(tier, medium, group, locality, ownership)| Place {
            tier,
            medium,
            group,
            locality,
            ownership,
        },
    )
}

fn extra_key() -> impl Strategy<Value = ExtraKey> {
    prop_oneof![
        word().prop_map(ExtraKey::Text),
        (word(), any::<i64>()).prop_map(|(id, offset)| ExtraKey::Item { id, offset }),
        vec(any::<u8>(), 0..40).prop_map(ExtraKey::Bytes)
    ]
}

fn block() -> impl Strategy<Value = StoredBlock> {
    (hash(), option::of(any::<u64>())).prop_map(|(hash, content)| StoredBlock { hash, content })
}

fn stored() -> impl Strategy<Value = Stored> {
    let chain =
        (parent(), any::<u32>(), vec(any::<u32>(), 0..20), vec(block(), 0..4), any::<[bool; 2]>());
    let namespace = (
        option::of(word()),
        option::of(any::<i64>()),
        option::of(word()),
        vec(vec(extra_key(), 0..3), 0..3),
        option::of(word()),
    );
    (chain, place(), namespace).prop_map(|(chain, place, namespace)| {
        let (parent, block_size, tokens, blocks, [partial, bigram]) = chain;
        let (lora, lora_id, salt, extra, session) = namespace;
        Stored {
            parent,
            block_size,
            tokens: Tokens(tokens),
            blocks,
            partial,
            bigram,
            place,
            lora,
            lora_id,
            salt,
            extra,
            session,
        }
    })
}

fn scope() -> impl Strategy<Value = Scope> {
    prop_oneof![Just(Scope::All), vec(tier(), 0..4).prop_map(Scope::Tiers)]
}

fn cleared() -> impl Strategy<Value = Cleared> {
    let cause = prop_oneof![Just(ClearCause::Engine), Just(ClearCause::Repair)];
    (scope(), cause).prop_map(|(scope, cause)| Cleared { scope, cause })
}

fn unknown() -> impl Strategy<Value = Event> {
    let known = ["stored", "removed", "cleared", "reset", "moved", "trust"];
    word()
        .prop_filter("a known type", move |name| !known.contains(&name.as_str()))
        .prop_map(Event::Unknown)
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => stored().prop_map(Event::Stored),
        2 => (vec(hash(), 0..4), place())
            .prop_map(|(hashes, place)| Event::Removed(Removed { hashes, place })),
        1 => cleared().prop_map(Event::Cleared),
        1 => (word(), trust(), option::of(word())).prop_map(|(cause, trust, snapshot)| {
            Event::Reset(Reset { cause, trust, snapshot })
        }),
        1 => (hash(), tier(), tier())
            .prop_map(|(hash, from, to)| Event::Moved(Moved { hash, from, to })),
        1 => (trust(), word(), word()).prop_map(|(trust, reason, bridge)| {
            Event::Trust(TrustChange { trust, reason, bridge })
        }),
        1 => unknown(),
    ]
}

pub(crate) fn envelope() -> impl Strategy<Value = Envelope> {
    let place = (replica(), any::<u64>(), option::of(word()), any::<u64>(), any::<u32>());
    let source = (digest(), trust(), any::<u64>(), (word(), word()), (word(), any::<u32>()));
    (place, source, vec(event(), 0..4)).prop_map(|(place, source, events)| {
        let (replica, epoch, incarnation, seq, span) = place;
        let (digest, trust, ts, (kind, format), (scheme, block_size)) = source;
        Envelope {
            replica,
            epoch: Epoch(epoch),
            incarnation,
            seq: Seq(seq),
            span,
            digest,
            trust,
            ts,
            engine: Engine { kind: EngineKind::from_name(&kind), format },
            hash: HashInfo { scheme: HashScheme::from_name(&scheme), block_size },
            events,
        }
    })
}

pub(crate) fn header() -> impl Strategy<Value = SnapshotHeader> {
    let numbers = any::<[u64; 3]>();
    let optional = (option::of(any::<u64>()), option::of(digest()), option::of(state()));
    (replica(), numbers, optional, trust()).prop_map(
        |(replica, [epoch, resume_seq, block_count], (bus_seq, last_digest, state), trust)| {
            SnapshotHeader {
                replica,
                epoch: Epoch(epoch),
                resume_seq: Seq(resume_seq),
                bus_seq: bus_seq.map(BusSeq),
                last_digest,
                trust,
                block_count,
                state,
            }
        },
    )
}

fn state() -> impl Strategy<Value = SnapshotState> {
    let words = (word(), word(), option::of(word()), option::of(word()), vec(word(), 0..3));
    let seqs = (any::<u64>(), option::of(any::<u64>()));
    let digests = vec((any::<u64>().prop_map(Seq), digest()), 0..4);
    (trust(), words, option::of(scope()), any::<[bool; 2]>(), seqs, digests).prop_map(
        |(host, words, proven, [removals_lost, confirmed], (audit_from, highest), digests)| {
            let (reason, settings, stores_lost, incarnation, closed) = words;
            SnapshotState {
                host,
                reason,
                proven,
                stores_lost,
                removals_lost,
                audit_from: Seq(audit_from),
                highest_live: highest.map(Seq),
                confirmed,
                incarnation,
                closed,
                settings,
                digests,
            }
        },
    )
}

pub(crate) fn record() -> impl Strategy<Value = SnapshotRecord> {
    let block = (hash(), parent(), option::of(any::<u64>()), any::<u32>());
    let space = (option::of(word()), option::of(word()), option::of(any::<u64>()));
    (block, tier(), option::of(group()), any::<u32>(), space, any::<[bool; 4]>()).prop_map(
        |(block, tier, group, count, space, [partial, bigram, parked, hint])| {
            let (hash, parent, content, block_size) = block;
            let (lora, salt, extra) = space;
            SnapshotRecord {
                hash,
                parent,
                content,
                block_size,
                tier,
                group,
                count,
                lora,
                salt,
                extra,
                partial,
                bigram,
                parked,
                hint,
            }
        },
    )
}

pub(crate) fn status() -> impl Strategy<Value = Status> {
    let words = (word(), word());
    let places = (option::of(any::<u64>()), option::of(any::<u64>()));
    (replica(), any::<[u64; 3]>(), places, trust(), words).prop_map(
        |(replica, [epoch, next_seq, at], (view_seq, bus_seq), trust, (reason, bridge))| Status {
            replica,
            epoch: Epoch(epoch),
            next_seq: Seq(next_seq),
            view_seq: view_seq.map(Seq),
            bus_seq: bus_seq.map(BusSeq),
            trust,
            reason,
            bridge,
            at,
        },
    )
}
