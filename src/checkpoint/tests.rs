//! Files that are whole, cut, damaged, foreign; two processes; and what is never trusted.

use std::{fs, path::PathBuf};

use kvbridge_adapters_api::Removal;
use kvbridge_schemas::{
    BlockHash, Epoch, Event, Parent, Place, Projection, Replica, Scope, Seq, SnapshotHeader,
    SnapshotState, Stored, StoredBlock, Tier, Tokens, Trust, content_hash, digest,
};

use super::*;
use crate::{
    pipeline::ViewCut,
    view::{View, ViewSettings},
};

const FOLD: &str = "fold";

fn settings() -> ViewSettings {
    ViewSettings::of(Projection::Last8, Removal::PerCopy, 10)
}

fn replica() -> Replica {
    Replica { model: "m".to_owned(), instance: "h:1".to_owned(), rank: 0 }
}

/// A view of so many blocks, each the child of the one before.
fn cut(blocks: u32) -> ViewCut {
    let mut view = View::new(settings());
    let tokens: Vec<u32> = (0..blocks).collect();
    let stored = Event::Stored(Stored {
        parent: Parent::Root,
        block_size: 1,
        blocks: tokens
            .iter()
            .map(|token| StoredBlock {
                hash: BlockHash::from_u64(u64::from(*token) + 1),
                content: Some(content_hash(&[*token])),
            })
            .collect(),
        tokens: Tokens(tokens),
        partial: false,
        bigram: false,
        place: Place::of(Tier::Device),
        lora: Some("adapter".to_owned()),
        lora_id: None,
        salt: Some("salt".to_owned()),
        extra: Vec::new(),
        session: None,
    });
    view.apply(&[stored], &mut Vec::new(), &mut Vec::new());
    let state = SnapshotState {
        host: Trust::Exact,
        reason: "contiguous".to_owned(),
        proven: Some(Scope::All),
        stores_lost: None,
        removals_lost: false,
        audit_from: Seq(0),
        highest_live: Some(Seq(0)),
        confirmed: true,
        incarnation: None,
        closed: Vec::new(),
        settings: FOLD.to_owned(),
        digests: vec![(Seq(0), digest(b"0"))],
    };
    let header = SnapshotHeader {
        replica: replica(),
        epoch: Epoch(7),
        resume_seq: Seq(1),
        bus_seq: None,
        last_digest: None,
        trust: Trust::Exact,
        block_count: view.record_count(),
        state: Some(state),
    };
    ViewCut { header, view }
}

fn bytes(cut: &ViewCut) -> Vec<u8> {
    let mut bytes = Vec::new();
    let written = write(&mut bytes, &cut.header, &cut.view).unwrap();
    assert_eq!(written, u64::try_from(bytes.len()).unwrap());
    bytes
}

fn word(bytes: &[u8]) -> &'static str {
    match read(bytes, settings()) {
        Err(fault) | Ok((_, Err(fault))) => fault.word(),
        Ok((_, Ok(_))) => "whole",
    }
}

/// A folder of this test alone.
fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("kvbridge-{}-{name}", std::process::id()));
    drop(fs::remove_dir_all(&path));
    path
}

fn wanted<'a>(replica: &'a Replica, fold: &'a str) -> Wanted<'a> {
    Wanted { replica, fold, view: settings() }
}

#[test]
fn what_was_written_is_read() {
    for blocks in [0, 1, 3_000] {
        let cut = cut(blocks);
        let (header, view) = read(bytes(&cut).as_slice(), settings()).unwrap();
        assert_eq!(header, cut.header);
        assert_eq!(view.unwrap().snapshot(), cut.view.snapshot());
    }
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let whole = bytes(&cut(5));
    for end in 0..whole.len() {
        assert_eq!(word(&whole[..end]), "truncated", "cut at {end}");
    }
    assert_eq!(word(&whole), "whole");
    assert_eq!(word(&[whole, vec![0]].concat()), "corrupted");
}

#[test]
fn a_file_changed_anywhere_is_refused() {
    let whole = bytes(&cut(5));
    for at in 0..whole.len() {
        let mut bad = whole.clone();
        bad[at] ^= 0x41;
        let word = word(&bad);
        assert!(["foreign", "version", "truncated", "corrupted"].contains(&word), "{at}: {word}");
    }
}

#[test]
fn other_versions_and_other_files_have_a_name() {
    let mut later = bytes(&cut(1));
    later[7] = FORMAT + 1;
    assert_eq!(word(&later), "version");
    assert_eq!(word(b"#!/bin/sh\necho"), "foreign");
    assert!(Fault::WORDS.contains(&word(&later)));
}

/// A length that the file does not have takes no memory.
#[test]
fn a_huge_length_is_refused() {
    let mut bad = b"kvbckpt\x01".to_vec();
    bad.extend(u32::MAX.to_be_bytes());
    assert_eq!(word(&bad), "corrupted");
    let mut bad = b"kvbckpt\x01".to_vec();
    bad.extend(60_000_000_u32.to_be_bytes());
    assert_eq!(word(&bad), "truncated");
}

#[test]
fn a_folder_keeps_and_gives_back() {
    let path = folder("keeps");
    let dir = StateDir::open(&path).unwrap();
    let replica = replica();
    assert!(dir.load(wanted(&replica, FOLD)).view.is_none());
    dir.save(&cut(2)).unwrap();
    let newer = cut(3);
    dir.save(&newer).unwrap();
    let kept = dir.load(wanted(&replica, FOLD));
    let (checkpoint, view) = kept.view.unwrap();
    assert_eq!(view.snapshot(), newer.view.snapshot());
    assert_eq!((checkpoint.cursor.epoch, kept.floor), (Epoch(7), Epoch(7)));
    let kept = dir.load(wanted(&replica, "other"));
    assert_eq!((kept.floor, kept.fault.unwrap().word()), (Epoch(7), "other_settings"));
    fs::remove_dir_all(path).unwrap();
}

/// The records are damaged, the header is not: its epoch stays the floor.
#[test]
fn a_damaged_view_still_gives_its_floor() {
    let path = folder("floor");
    let dir = StateDir::open(&path).unwrap();
    dir.save(&cut(4)).unwrap();
    let file = dir.file(&replica().key());
    let mut bad = fs::read(&file).unwrap();
    let last = bad.len() - 30;
    bad[last] ^= 1;
    fs::write(&file, &bad).unwrap();
    let kept = dir.load(wanted(&replica(), FOLD));
    assert!(kept.view.is_none());
    assert_eq!((kept.floor, kept.fault.unwrap().word()), (Epoch(7), "corrupted"));
    fs::remove_dir_all(path).unwrap();
}

#[test]
fn a_file_under_the_name_of_another_replica_is_refused() {
    let path = folder("other");
    let dir = StateDir::open(&path).unwrap();
    dir.save(&cut(1)).unwrap();
    let other = Replica { rank: 1, ..replica() };
    fs::rename(dir.file(&replica().key()), dir.file(&other.key())).unwrap();
    let kept = dir.load(wanted(&other, FOLD));
    assert_eq!((kept.floor, kept.fault.unwrap().word()), (Epoch(0), "other_replica"));
    fs::remove_dir_all(path).unwrap();
}

#[test]
fn a_folder_is_of_one_process() {
    let path = folder("lock");
    let first = StateDir::open(&path).unwrap();
    assert!(matches!(StateDir::open(&path), Err(StateError::InUse { .. })));
    drop(first);
    assert!(StateDir::open(&path).is_ok());
    fs::remove_dir_all(path).unwrap();
}

#[test]
fn long_names_stay_apart() {
    let path = folder("names");
    let dir = StateDir::open(&path).unwrap();
    let long = |tail: &str| Replica { model: format!("{}{tail}", "m".repeat(400)), ..replica() };
    let (a, b) = (dir.file(&long("a").key()), dir.file(&long("b").key()));
    assert_ne!(a, b);
    assert!(a.file_name().unwrap().len() < 255);
    fs::remove_dir_all(path).unwrap();
}

#[test]
fn every_outcome_is_documented() {
    let (metrics, operations) =
        (include_str!("../../docs/specs/metrics.md"), include_str!("../../docs/operations.md"));
    for word in Fault::WORDS {
        assert!(metrics.contains(&format!(" {word}")), "{word} in metrics.md");
        assert!(operations.contains(&format!("`{word}`")), "{word} in operations.md");
    }
}
