//! Bytes as SMG's gateway reads them, and streams that are broken off.

use std::sync::Arc;

use kvbridge_schemas::{Tier, TierTrust, Tokens, Trust};
use prost::Message as _;

use super::{Change, LineSettings, Numbered, Preset, Scene, Told, settings};
use crate::{
    sink_line::{
        Encoding,
        smg::{Data, KvEventBatch, with_number},
    },
    view::{
        Described, LinkParent, NodeId,
        tests::world::{At, Form, Op, Spot, Store},
    },
};

fn message(batch: &Numbered) -> KvEventBatch {
    let mut bytes = Vec::new();
    with_number(batch, &mut bytes);
    KvEventBatch::decode(bytes.as_slice()).unwrap()
}

fn at(count: usize) -> At {
    At { namespace: 3, path: [0, 1, 2, 3][..count].to_vec(), wide: true }
}

fn spot() -> Spot {
    Spot { tier: 0, group: 0, tells_kind: false }
}

fn store(upto: usize, count: usize) -> Op {
    Op::Store(Store { at: at(upto), count, size: 2, form: Form::Dense, spot: spot() })
}

fn scene() -> Scene {
    let roomy = LineSettings {
        journal_batches_max: 100,
        journal_bytes_max: 100_000,
        ..settings(Preset::Smg)
    };
    let mut scene = Scene::new(roomy);
    scene.trust(true, false);
    scene
}

/// Numbers begin at the time, never at 0; the parent is unset or a number; a tier is named in both
/// ways; salt and adapter are the event's, of later blocks too.
#[test]
fn events_are_written_as_the_gateway_reads_them() {
    let mut scene = scene();
    scene.apply(&store(2, 2));
    scene.apply(&store(3, 1));
    scene.apply(&Op::Remove { at: at(3), spot: spot() });
    let all: Vec<KvEventBatch> = scene.out.iter().map(message).collect();
    let numbers: Vec<u64> = all.iter().map(|batch| batch.sequence_number).collect();
    assert_eq!(numbers, [1_000_000, 1_000_001, 1_000_002, 1_000_003]);
    assert!(all.iter().all(|batch| batch.dp_rank.is_none() && batch.snapshot.is_none()));
    let data: Vec<&Data> = all.iter().map(|batch| batch.events[0].data.as_ref().unwrap()).collect();
    let [Data::Cleared(_), Data::Stored(first), Data::Stored(behind), Data::Removed(gone)] =
        &data[..]
    else {
        panic!("{} batches", data.len());
    };
    assert_eq!(first.blocks.len(), 2);
    assert_eq!(first.parent_block_hash, None);
    assert_eq!(behind.parent_block_hash, Some(first.blocks[1].block_hash));
    for stored in [first, behind] {
        assert_eq!((stored.tier, stored.medium.as_deref()), (Some(1), Some("GPU")));
        assert!(stored.lora_name.is_some());
        assert_eq!(stored.cache_salt.as_deref(), Some("pepper"));
        for block in &stored.blocks {
            assert_eq!((block.block_size, block.cache_level), (2, Some(0)));
            assert_eq!(block.token_ids.len(), 2);
        }
    }
    assert_eq!(gone.block_hashes, [behind.blocks[0].block_hash]);
    assert_eq!((gone.tier, gone.cache_level), (Some(1), Some(0)));
}

#[test]
fn a_reader_goes_on_behind_its_number_or_is_told_that_it_cannot() {
    let mut scene = scene();
    scene.apply(&store(2, 2));
    let newest = scene.line.next_seq() - 1;
    let behind = |scene: &Scene, last: u64| {
        let batches = scene.line.since(last)?;
        Some(batches.iter().map(|batch| batch.seq).collect::<Vec<u64>>())
    };
    assert_eq!(behind(&scene, newest), Some(vec![]));
    assert_eq!(behind(&scene, newest - 1), Some(vec![newest]));
    // The first batch says that everything is gone: who comes from before it is told so.
    assert_eq!(behind(&scene, newest - 2), Some(vec![newest - 1, newest]));
    // Of another life of this program, from before the journal, and the last number there is.
    for last in [newest + 1, newest - 3, 1, u64::MAX] {
        assert_eq!(behind(&scene, last), None, "{last}");
    }
    let untold = Scene::new(settings(Preset::Smg));
    assert_eq!(behind(&untold, untold.line.next_seq() - 1), None);
}

/// So many blocks that none is behind another.
fn told(scene: &mut Scene, count: u64) {
    let described = Described {
        tokens: Tokens(vec![7; 64]),
        lora: None,
        lora_id: None,
        salt: None,
        extra: Vec::new(),
    };
    let described = Arc::new(described);
    let changes: Vec<Change> = (1..=count)
        .map(|key| Change::Linked {
            node: NodeId { key, block_size: 64 },
            parent: LinkParent::Root(0),
            tier: Tier::Device,
            described: Some(Arc::clone(&described)),
        })
        .collect();
    let trust = TierTrust { device: Trust::Exact, host: Trust::None };
    scene.line.told(scene.at(), Told { whole: false, changes: &changes, trust }, &mut scene.out);
}

fn large() -> Scene {
    let sizes = crate::sink_line::Sizes::Own(Some(64));
    let large = LineSettings {
        sizes,
        journal_batches_max: 100,
        journal_bytes_max: usize::MAX,
        ..settings(Preset::Smg)
    };
    Scene::new(large)
}

#[test]
fn a_view_of_several_batches_that_was_broken_off_is_not_gone_on_with() {
    let mut scene = large();
    told(&mut scene, 5_000);
    told(&mut scene, 5_001);
    let newest = scene.line.next_seq() - 1;
    assert!(scene.line.since(newest - 1).is_some());
    let parts: Vec<Numbered> = scene.line.present_stream(scene.at()).collect();
    let all: Vec<KvEventBatch> = parts.iter().map(message).collect();
    // 4096 blocks of 64 tokens are as many tokens as one batch holds.
    assert_eq!(all.len(), 2);
    assert!(matches!(all[0].events[0].data, Some(Data::Cleared(_))));
    for (at, batch) in (0_u32..).zip(&all) {
        let chunk = batch.snapshot.unwrap();
        assert_eq!((chunk.index, chunk.count, chunk.blocks), (at, 2, 5_001));
        assert_eq!(batch.sequence_number, newest - 1 + u64::from(at));
        assert!(parts.iter().all(|part| part.payload.len() < 4 * 1024 * 1024));
    }
    // That number is one of a live batch and of a part: whose reader asks, nobody can say.
    assert_eq!(scene.line.since(newest - 1).map(|batches| batches.len()), None);
    assert_eq!(scene.line.since(newest).map(|batches| batches.len()), Some(0));
}

#[test]
fn a_view_of_one_batch_has_no_place_to_break_off() {
    let mut scene = large();
    told(&mut scene, 50);
    let newest = scene.line.next_seq() - 1;
    let parts: Vec<Numbered> = scene.line.present_stream(scene.at()).collect();
    assert_eq!(parts.iter().map(|part| part.seq).collect::<Vec<u64>>(), [newest]);
    let chunk = message(&parts[0]).snapshot.unwrap();
    assert_eq!((chunk.index, chunk.count, chunk.blocks), (0, 1, 50));
    assert!(scene.line.since(newest - 1).is_some());
}

#[test]
fn this_preset_alone_is_a_stream() {
    let streamed: Vec<&str> = Preset::ALL
        .into_iter()
        .filter(|preset| preset.profile().encoding == Encoding::Protobuf)
        .map(Preset::as_str)
        .collect();
    assert_eq!(streamed, ["smg"]);
}
