//! Bytes by preset, and the rule of each reader that they keep. The rules were read in the code of
//! the readers; of those marked so in `docs/sinks.md` none was run.

use std::fmt::Write as _;

use expect_test::{Expect, expect};

use super::{Preset, Scene, settings};
use crate::{
    sink_line::LineSettings,
    view::tests::world::{At, Form, Op, Spot, Store},
};

/// What a router of that preset is told of two blocks with an adapter and a salt, and of a removal.
fn check(preset: Preset, expected: &Expect) {
    let mut scene = Scene::new(LineSettings {
        rank: 3,
        journal_batches_max: 100,
        journal_bytes_max: 10_000,
        ..settings(preset)
    });
    scene.trust(true, false);
    let at = |count| At { namespace: 3, path: [0, 1][..count].to_vec(), wide: true };
    let spot = || Spot { tier: 0, group: 0, tells_kind: false };
    scene.apply(&Op::Store(Store {
        at: at(2),
        count: 2,
        size: 2,
        form: Form::Dense,
        spot: spot(),
    }));
    scene.apply(&Op::Remove { at: at(2), spot: spot() });
    let mut text = String::new();
    for batch in &scene.out {
        let shown: String = batch.payload.iter().fold(String::new(), |mut text, byte| {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'-' | b':' => text.push(char::from(*byte)),
                other => write!(text, "({other:02x})").unwrap(),
            }
            text
        });
        writeln!(text, "{} {shown}", batch.seq).unwrap();
    }
    expected.assert_eq(&text);
}

/// llm-d: "the switch has no case for smaller msgpack ints": hashes are uint64 (cf). Arrays or
/// maps; nil for no parent, because 0 is read as none; one bad event drops the batch.
#[test]
fn llm_d_has_arrays_with_wide_hashes() {
    check(
        Preset::LlmD,
        &expect![[r#"
        0 (93)(cb)(00)(00)(00)(00)(00)(00)(00)(00)(91)(91)(b0)AllBlocksCleared(03)
        1 (93)(cb)(00)(00)(00)(00)(00)(00)(00)(00)(91)(99)(ab)BlockStored(92)(cf)sbh(b3)(b3)E(17)(d6)(cf)(27)(34)(3d)(9b)(9f)(7b)s(c9)(c0)(94)(00)(01)(0a)(0b)(02)(c0)(a3)GPU(a2)ad(92)(92)(a2)ad(a6)pepper(91)(a2)ad(03)
        2 (93)(cb)(00)(00)(00)(00)(00)(00)(00)(00)(91)(93)(ac)BlockRemoved(91)(cf)(27)(34)(3d)(9b)(9f)(7b)s(c9)(a3)GPU(03)
    "#]],
    );
}

/// Dynamo: three elements, or the batch is lost; "knows only `dynamo-cache-salt:`", in the extra
/// keys of the block that starts a sequence; drops numbers below the highest, so they begin at the
/// time.
#[test]
fn dynamo_has_maps_and_its_tag_before_the_salt() {
    check(
        Preset::Dynamo,
        &expect![[r#"
        1000000 (93)(cb)(00)(00)(00)(00)(00)(00)(00)(00)(91)(81)(a4)type(b0)AllBlocksCleared(03)
        1000001 (93)(cb)(00)(00)(00)(00)(00)(00)(00)(00)(91)(89)(a4)type(ab)BlockStored(ac)block_hashes(92)(cf)sbh(b3)(b3)E(17)(d6)(cf)(27)(34)(3d)(9b)(9f)(7b)s(c9)(b1)parent_block_hash(c0)(a9)token_ids(94)(00)(01)(0a)(0b)(aa)block_size(02)(a7)lora_id(c0)(a6)medium(a3)GPU(a9)lora_name(a2)ad(aa)extra_keys(92)(92)(a2)ad(b8)dynamo-cache-salt:pepper(91)(a2)ad(03)
        1000002 (93)(cb)(00)(00)(00)(00)(00)(00)(00)(00)(91)(83)(a4)type(ac)BlockRemoved(ac)block_hashes(91)(cf)(27)(34)(3d)(9b)(9f)(7b)s(c9)(a6)medium(a3)GPU(03)
    "#]],
    );
}

/// vLLM from 0.24 on, as it writes itself: maps, a bare salt behind the adapter's name.
#[test]
fn vllm_has_maps_with_the_bare_salt() {
    check(
        Preset::Vllm,
        &expect![[r#"
        0 (93)(cb)(00)(00)(00)(00)(00)(00)(00)(00)(91)(81)(a4)type(b0)AllBlocksCleared(03)
        1 (93)(cb)(00)(00)(00)(00)(00)(00)(00)(00)(91)(89)(a4)type(ab)BlockStored(ac)block_hashes(92)(cf)sbh(b3)(b3)E(17)(d6)(cf)(27)(34)(3d)(9b)(9f)(7b)s(c9)(b1)parent_block_hash(c0)(a9)token_ids(94)(00)(01)(0a)(0b)(aa)block_size(02)(a7)lora_id(c0)(a6)medium(a3)GPU(a9)lora_name(a2)ad(aa)extra_keys(92)(92)(a2)ad(a6)pepper(91)(a2)ad(03)
        2 (93)(cb)(00)(00)(00)(00)(00)(00)(00)(00)(91)(83)(a4)type(ac)BlockRemoved(ac)block_hashes(91)(cf)(27)(34)(3d)(9b)(9f)(7b)s(c9)(a6)medium(a3)GPU(03)
    "#]],
    );
}

/// AIBrix: arrays alone; "ts must decode to float64" (cb); all blocks of an event are hashed from
/// the event's parent, so one block each.
#[test]
fn aibrix_has_arrays_with_one_block_each() {
    check(
        Preset::Aibrix,
        &expect![[r#"
        0 (93)(cb)(00)(00)(00)(00)(00)(00)(00)(00)(91)(91)(b0)AllBlocksCleared(03)
        1 (93)(cb)(00)(00)(00)(00)(00)(00)(00)(00)(92)(99)(ab)BlockStored(91)(cf)sbh(b3)(b3)E(17)(d6)(c0)(92)(00)(01)(02)(c0)(a3)GPU(a2)ad(91)(92)(a2)ad(a6)pepper(99)(ab)BlockStored(91)(cf)(27)(34)(3d)(9b)(9f)(7b)s(c9)(cf)sbh(b3)(b3)E(17)(d6)(92)(0a)(0b)(02)(c0)(a3)GPU(a2)ad(91)(91)(a2)ad(03)
        2 (93)(cb)(00)(00)(00)(00)(00)(00)(00)(00)(91)(93)(ac)BlockRemoved(91)(cf)(27)(34)(3d)(9b)(9f)(7b)s(c9)(a3)GPU(03)
    "#]],
    );
}

/// Mooncake's Conductor: maps alone, three elements; a store carries `lora_id`, `medium` "GPU" and
/// `lora_name`, a removal no key of a store.
#[test]
fn conductor_has_maps_with_all_keys() {
    check(
        Preset::Conductor,
        &expect![[r#"
        0 (93)(cb)(00)(00)(00)(00)(00)(00)(00)(00)(91)(81)(a4)type(b0)AllBlocksCleared(03)
        1 (93)(cb)(00)(00)(00)(00)(00)(00)(00)(00)(91)(89)(a4)type(ab)BlockStored(ac)block_hashes(92)(cf)sbh(b3)(b3)E(17)(d6)(cf)(27)(34)(3d)(9b)(9f)(7b)s(c9)(b1)parent_block_hash(c0)(a9)token_ids(94)(00)(01)(0a)(0b)(aa)block_size(02)(a7)lora_id(c0)(a6)medium(a3)GPU(a9)lora_name(a2)ad(aa)extra_keys(92)(92)(a2)ad(a6)pepper(91)(a2)ad(03)
        2 (93)(cb)(00)(00)(00)(00)(00)(00)(00)(00)(91)(83)(a4)type(ac)BlockRemoved(ac)block_hashes(91)(cf)(27)(34)(3d)(9b)(9f)(7b)s(c9)(a6)medium(a3)GPU(03)
    "#]],
    );
}
