//! Whole dialogues, data only: `tests/transcripts/*.txt`. `UPDATE_EXPECT=1` rewrites them; the diff
//! is the review.
//!
//! A file is a list of exchanges, separated by blank lines: commands, a line `----`, what the
//! machine did. A line `# profile NAME` chooses the source's abilities; other `#` lines are for the
//! reader.

use std::{fmt::Write as _, fs, path::Path};

use super::script::{Script, unproven, vllm_like, with_epoch, with_snapshot, without_replay};

#[test]
#[expect(clippy::disallowed_methods, reason = "a test harness is steered by its environment")]
fn transcripts_hold() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let mut files: Vec<_> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 8, "transcripts are missing from {}", folder.display());
    let update = std::env::var("UPDATE_EXPECT").is_ok();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let found = replay(&text);
        if update {
            fs::write(&file, &found).unwrap();
        } else {
            assert!(found == text, "{} differs, found:\n{found}", file.display());
        }
    }
}

fn replay(text: &str) -> String {
    let mut script = Script::new(vllm_like());
    let mut found = String::new();
    for exchange in text.trim_end().split("\n\n") {
        let (head, _) = exchange.split_once("\n----").unwrap_or((exchange, ""));
        for line in head.lines().filter_map(|line| line.strip_prefix("# profile ")) {
            script = Script::new(match line {
                "vllm_like" => vllm_like(),
                "without_replay" => without_replay(),
                "unproven" => unproven(),
                "with_epoch" => with_epoch(),
                "with_snapshot" => with_snapshot(),
                other => panic!("unknown profile {other}"),
            });
        }
        let commands: Vec<&str> = head.lines().filter(|line| !line.starts_with('#')).collect();
        let said = script.run(&commands.join("\n"));
        write!(found, "{head}\n----\n{said}\n").unwrap();
    }
    found.truncate(found.trim_end().len());
    found.push('\n');
    found
}
