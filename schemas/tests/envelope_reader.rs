//! The second reader of the golden files, `tests/envelope_reader.py`. It needs python3; without it
//! the test fails, because a contract that one program reads is no contract.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails the test")]

mod cases;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn read(folder: &Path) -> Output {
    let script: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "..", "tests", "envelope_reader.py"].iter().collect();
    let run = Command::new("python3").arg("-B").arg(script).arg(folder).output();
    run.expect("python3 must be installed to check the envelope's second reader")
}

/// A copy of the golden folder that a test may damage.
fn copy(name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if target.exists() {
        fs::remove_dir_all(&target).unwrap();
    }
    fs::create_dir_all(&target).unwrap();
    for entry in fs::read_dir(cases::golden_folder()).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, target.join(path.file_name().unwrap())).unwrap();
    }
    target
}

#[test]
fn second_reader_agrees_on_every_case() {
    let run = read(&cases::golden_folder());
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let cases = format!("{} golden cases read", cases::all().len());
    assert!(String::from_utf8_lossy(&run.stdout).starts_with(&cases));
}

#[test]
fn second_reader_names_what_differs() {
    let folder = copy("reader_differs");
    let file = folder.join("removed_two.json");
    let text = fs::read_to_string(&file).unwrap().replace("\"host\"", "\"device\"");
    fs::write(&file, text).unwrap();
    let run = read(&folder);
    assert_eq!(run.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(errors.contains("removed_two: /events/0/tier"), "{errors}");
    assert!(errors.contains("removed_two.json is not the file in SHA256SUMS"), "{errors}");
}

#[test]
fn second_reader_refuses_an_empty_folder() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("reader_empty");
    fs::create_dir_all(&folder).unwrap();
    assert_eq!(read(&folder).status.code(), Some(1));
}
