//! The golden files: both encodings decode to the case's value, encoding gives the same bytes, and
//! no file changes once it is in the list.
//!
//! A new case: write it in `cases/values.rs` and run once with `UPDATE_EXPECT=1`. That adds missing
//! files and their hashes. It never touches an old one: a changed encoding needs a new version.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails the test")]

mod cases;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Once,
};

use sha2::{Digest as _, Sha256};

/// In the format of sha256sum, so that `sha256sum -c SHA256SUMS` checks the folder without us.
const SUMS: &str = "SHA256SUMS";

fn update() -> bool {
    std::env::var_os("UPDATE_EXPECT").is_some_and(|value| value == "1")
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read_sums(folder: &Path) -> BTreeMap<String, String> {
    let Ok(text) = fs::read_to_string(folder.join(SUMS)) else { return BTreeMap::new() };
    text.lines()
        .map(|line| line.split_once("  ").expect("`hash  name`"))
        .map(|(hash, name)| (name.to_owned(), hash.to_owned()))
        .collect()
}

/// What every case should have on disk.
fn expected() -> BTreeMap<String, Vec<u8>> {
    cases::all()
        .into_iter()
        .flat_map(|case| {
            [
                (format!("{}.json", case.name), case.message.json_file().into_bytes()),
                (format!("{}.msgpack", case.name), case.message.msgpack()),
            ]
        })
        .collect()
}

/// The golden folder, with new cases added when asked for.
fn folder() -> PathBuf {
    static ADD: Once = Once::new();
    let folder = cases::golden_folder();
    if update() {
        ADD.call_once(|| add_missing(&folder));
    }
    folder
}

/// Adds files and hashes of new cases, and nothing else.
fn add_missing(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    let mut sums = read_sums(folder);
    for (name, bytes) in expected() {
        if sums.contains_key(&name) {
            continue;
        }
        let path = folder.join(&name);
        assert!(!path.exists(), "{name} has no hash in {SUMS}: remove it to write it anew");
        fs::write(&path, &bytes).unwrap();
        sums.insert(name, sha256(&bytes));
    }
    let text: String = sums.iter().map(|(name, hash)| format!("{hash}  {name}\n")).collect();
    fs::write(folder.join(SUMS), text).unwrap();
}

#[test]
fn encodings_are_the_golden_ones() {
    let folder = folder();
    let mut seen = read_sums(&folder);
    for (name, bytes) in expected() {
        let path = folder.join(&name);
        let found = fs::read(&path).unwrap_or_else(|error| {
            panic!("{name}: {error}; a new case is written with UPDATE_EXPECT=1")
        });
        let listed = seen.remove(&name).unwrap_or_else(|| panic!("{name} has no hash in {SUMS}"));
        assert_eq!(sha256(&found), listed, "{name} was changed; golden files never are");
        assert!(found == bytes, "{name}: the codec no longer writes these bytes");
    }
    assert!(seen.is_empty(), "golden files without a case: {:?}", seen.keys());
    let on_disk = fs::read_dir(&folder).unwrap().count();
    assert_eq!(on_disk, expected().len() + 1, "files that are neither golden nor {SUMS}");
}

#[test]
fn both_encodings_decode_to_the_same_value() {
    let folder = folder();
    for case in cases::all() {
        let payload = fs::read(folder.join(format!("{}.msgpack", case.name))).unwrap();
        let text = fs::read_to_string(folder.join(format!("{}.json", case.name))).unwrap();
        let value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            case.message.decode_msgpack(&payload),
            Ok(case.message.clone()),
            "{}",
            case.name
        );
        assert_eq!(case.message.decode_json_str(&text), Ok(case.message.clone()), "{}", case.name);
        assert_eq!(case.message.decode_json(&value), Ok(case.message.clone()), "{}", case.name);
        assert_eq!(case.message.json(), value, "{}", case.name);
    }
}

#[test]
fn every_truncation_is_refused() {
    for case in cases::all() {
        let payload = case.message.msgpack();
        for end in (0..payload.len()).step_by(1 + payload.len() / 512) {
            case.message.decode_msgpack(&payload[..end]).unwrap_err();
        }
    }
}
