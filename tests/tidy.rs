//! The rules of this repository that no compiler checks. Each failure says where and what to do.
//!
//! Checked elsewhere, beside the code: golden files against their hashes in
//! `schemas/tests/golden.rs`, metrics against their document in `src/telemetry/metrics.rs`,
//! configuration fields against theirs in `src/config/tests.rs`. Code lines are rustfmt's.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

const LINES_MAX: usize = 400;
const COMMENT_COLUMNS_MAX: usize = 100;

/// Files that may be longer, with their own bound and the reason. The list may only shrink.
const LONG_FILES: &[(&str, usize, &str)] = &[
    (
        "src/recovery/tests/table.rs",
        1_500,
        "one test per row of the decision table, read from top to bottom beside it",
    ),
    ("tests/sim/world.rs", 500, "one world: splitting it would hide the order of its steps"),
];

/// What in `src` knows no clock, socket, task, random number, logger or unordered map.
const PURE: &str = "recovery view index route shared_log discovery doctor slo jobs sink_line sink_check recent.rs maps";
const NOT_IN_PURE: &[&str] =
    &["tokio", "async", "await", "Instant", "SystemTime", "rand", "tracing", "HashMap", "HashSet"];
const ENGINES: &[&str] = &["vllm", "sglang", "trtllm", "tensorrt"];

/// Where an engine may be named outside its own crate, tests and comments, with the reason.
const ENGINE_ROOMS: &[(&str, &str)] = &[
    ("src/pipeline/registry.rs", "the one place that opens engines"),
    ("src/cli/examples.rs", "help shows real flags"),
    ("src/sink_line/preset.rs", "a preset has the name of whose wire it speaks"),
    ("src/sinks/streams/server.rs", "a method has the name of the service that has it"),
    ("schemas/src/identity.rs", "the names are words of the envelope"),
    ("src/cli/fake_engine.rs", "which engine is imitated"),
    ("src/fake_engine/hash.rs", "the constant is the engine's own"),
    ("src/fake_engine/radix/hash.rs", "the constant is the engine's own"),
    ("src/fake_engine/http_text.rs", "metrics have the engine's own names"),
];

/// What whoever opens the repository looks for first.
const TOP_LEVEL: &[&str] =
    &["Cargo.toml", "src", "adapters", "schemas", "tests", "docker-compose.yml", "README.md"];

/// The crates this project is built on: declared, and used by product code.
const FOUNDATIONS: &[&str] = &[
    "zeromq",
    "async-nats",
    "tokio",
    "rmp-serde",
    "serde",
    "crossbeam-channel",
    "metrics",
    "metrics-exporter-prometheus",
];

struct File {
    name: String,
    text: String,
}

impl File {
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// Without comments and without the test module at the end.
    fn product_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let end = self.text.find("\nmod tests {").unwrap_or(self.text.len());
        let product = self.text.get(..end).unwrap();
        let code = product.lines().enumerate().map(|(index, line)| (index + 1, line));
        code.filter(|(_, line)| !line.trim_start().starts_with("//"))
            .map(|(number, line)| (number, line.split(" // ").next().unwrap_or(line)))
    }

    fn is_test(&self) -> bool {
        self.name.split('/').any(|part| part == "tests")
            || self.name.ends_with("/tests.rs")
            || self.name.ends_with("_tests.rs")
    }

    fn at(&self, line: usize, what: &str) -> String {
        format!("{}:{line}: {what}", self.name)
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// All files of the repository with one of these endings; what is built or fetched is left out.
fn files(endings: &[&str]) -> Vec<File> {
    let mut found = Vec::new();
    walk(&root(), &mut |path| {
        let name = path.strip_prefix(root()).unwrap().to_str().unwrap().replace('\\', "/");
        if endings.iter().any(|ending| name.ends_with(ending)) {
            found.push(File { name, text: fs::read_to_string(path).unwrap() });
        }
    });
    assert!(!found.is_empty(), "no file ends with {endings:?}: the walk is broken");
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn walk(folder: &Path, each: &mut impl FnMut(&Path)) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            let ours = !["target", ".git", "corpus", "artifacts", "coverage"].contains(&name);
            if ours && !name.starts_with("__") {
                walk(&path, each);
            }
        } else {
            each(&path);
        }
    }
}

fn read(name: &str) -> File {
    let text = fs::read_to_string(root().join(name));
    File { name: name.to_owned(), text: text.unwrap_or_else(|e| panic!("{name}: {e}")) }
}

fn has_word(line: &str, word: &str) -> bool {
    let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| {
        let before = line.get(..at).unwrap().chars().next_back();
        let after = line.get(at + word.len()..).unwrap().chars().next();
        !part(before) && !part(after)
    })
}

#[track_caller]
fn none(problems: &[String], remedy: &str) {
    assert!(problems.is_empty(), "\n{}\nremedy: {remedy}\n", problems.join("\n"));
}

#[test]
fn files_are_short() {
    let mut problems = Vec::new();
    for file in files(&[".rs"]) {
        let count = file.text.lines().count();
        let allowed = LONG_FILES.iter().find(|(name, ..)| *name == file.name);
        match allowed {
            Some((_, max, _)) if count > *max => {
                problems.push(file.at(count, &format!("{count} lines, {max} allowed")));
            }
            Some(_) if count <= LINES_MAX => {
                problems.push(file.at(count, "short enough: take it off LONG_FILES"));
            }
            None if count > LINES_MAX => {
                problems.push(file.at(count, &format!("{count} lines, {LINES_MAX} allowed")));
            }
            Some(_) | None => (),
        }
    }
    for (name, _, reason) in LONG_FILES {
        assert!(root().join(name).exists(), "{name} is gone: take it off LONG_FILES ({reason})");
    }
    none(&problems, "split it along what it does; LONG_FILES may only shrink");
}

#[test]
fn pure_folders_know_nothing_of_the_world() {
    let mut problems = Vec::new();
    for file in files(&[".rs"]) {
        let room = file.name.strip_prefix("src/").and_then(|name| name.split('/').next());
        if room.is_none_or(|room| !PURE.split(' ').any(|pure| pure == room)) {
            continue;
        }
        for (number, line) in file.lines() {
            let code = line.split("//").next().unwrap_or(line);
            for word in NOT_IN_PURE.iter().filter(|word| has_word(code, word)) {
                problems.push(file.at(number, &format!("`{word}` in a pure folder")));
            }
        }
    }
    none(&problems, "make it an input, an action or an argument; the shell does the rest");
}

#[test]
fn engines_are_named_in_their_rooms_only() {
    let mut problems = Vec::new();
    let mut used = BTreeSet::new();
    for file in files(&[".rs"]) {
        let own = ENGINES.iter().any(|e| file.name.starts_with(&format!("adapters/{e}/")));
        let product = file.name.contains("src/") && !file.name.starts_with("benches/");
        if own || file.is_test() || !product {
            continue;
        }
        let room = ENGINE_ROOMS.iter().find(|(name, _)| *name == file.name);
        for (number, line) in file.product_lines() {
            // A feature is named after its engine; switching code by it decides nothing.
            let named = line.to_lowercase();
            if named.contains("feature = ") || !ENGINES.iter().any(|e| named.contains(e)) {
                continue;
            }
            match room {
                Some((name, _)) => drop(used.insert(*name)),
                None => problems.push(file.at(number, "names an engine")),
            }
        }
    }
    for (name, reason) in ENGINE_ROOMS {
        assert!(used.contains(name), "{name} names no engine: take it off the list ({reason})");
    }
    none(&problems, "ask Capabilities instead, or move it to the engine's adapter");
}

#[test]
fn every_source_file_says_what_it_is() {
    let problems: Vec<String> = files(&[".rs"])
        .iter()
        .filter(|file| !file.text.starts_with("//!"))
        .map(|file| file.at(1, "does not begin with `//!`"))
        .collect();
    none(&problems, "say in a sentence what the file does, and what it does not");
}

#[test]
fn the_top_level_is_complete() {
    let missing: Vec<String> = TOP_LEVEL
        .iter()
        .filter(|name| !root().join(name).exists())
        .map(|name| format!("{name}:1: missing"))
        .collect();
    none(&missing, "put it back: readers and tools look for it there");
}

#[test]
fn foundations_are_in_real_use() {
    let manifests = files(&["Cargo.toml"]);
    let sources = files(&[".rs"]);
    let mut problems = Vec::new();
    for name in FOUNDATIONS {
        let ident = name.replace('-', "_");
        let uses = |line: &str| {
            let line = line.trim_start();
            let path = format!("{ident}::");
            let local = line.starts_with("pub use") || line.contains(&format!("::{path}"));
            !local && line.contains(&path) && has_word(line, &ident)
        };
        let mut used = false;
        for manifest in manifests.iter().filter(|manifest| declares(manifest, name)) {
            let src = format!("{}src/", manifest.name.strip_suffix("Cargo.toml").unwrap());
            used |= sources
                .iter()
                .filter(|file| file.name.starts_with(&src) && !file.is_test())
                .any(|file| file.product_lines().any(|(_, line)| uses(line)));
        }
        if !used {
            problems.push(format!("Cargo.toml:1: no member declares `{name}` and uses it"));
        }
    }
    none(&problems, "these crates are the foundations; a change of them is a decision with an ADR");
}

/// Whether a member of the workspace has it under `[dependencies]`.
fn declares(manifest: &File, name: &str) -> bool {
    if manifest.name.starts_with("fuzz/") || manifest.name.starts_with("benches/") {
        return false;
    }
    let mut section = "";
    for (_, line) in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        }
        let key = line.split(['.', '=', ' ']).next().unwrap_or(line);
        if section == "[dependencies]" && key == name {
            return true;
        }
    }
    false
}

/// First cells in backquotes of the rows of a document's tables.
fn labels(document: &File) -> BTreeSet<String> {
    let rows = document.lines().filter_map(|(_, line)| line.strip_prefix("| `"));
    rows.filter_map(|row| row.split_once('`')).map(|(label, _)| label.to_owned()).collect()
}

#[test]
fn every_row_of_the_decision_table_has_a_test() {
    let document = read("docs/specs/recovery.md");
    let tables = ["log_behind", "plain", "table", "upstream"]
        .map(|name| read(&format!("src/recovery/tests/{name}.rs")));
    let tests: BTreeSet<&str> = tables
        .iter()
        .flat_map(File::lines)
        .filter_map(|(_, line)| line.strip_prefix("fn ")?.split_once('(').map(|(name, _)| name))
        .collect();
    let labels = labels(&document);
    assert!(labels.len() > 25, "docs/specs/recovery.md: the decision table is not found");
    let mut problems = Vec::new();
    for label in &labels {
        // A row with several cases has a test for each: `undecodable_store`, `undecodable_body`.
        let case = format!("{label}_");
        if !tests.iter().any(|test| test == label || test.starts_with(&case)) {
            problems.push(format!("{}:1: `{label}` has no test of that name", document.name));
        }
    }
    none(&problems, "add it to src/recovery/tests/table.rs, or take the row out of the contract");
}

#[test]
fn every_fact_has_a_label_that_the_contract_explains() {
    let file = read("src/recovery/fact.rs");
    let document = read("docs/specs/recovery.md");
    let mut problems = Vec::new();
    let mut seen = BTreeSet::new();
    for (number, line) in file.lines() {
        let arm = line.trim().strip_prefix("Fact::").and_then(|arm| arm.split_once(" => \""));
        let Some((variant, label)) = arm else { continue };
        let variant = variant.split(['(', ' ']).next().unwrap();
        let label = label.split('"').next().unwrap();
        if label != snake(variant) {
            problems.push(file.at(number, &format!("`{label}` is not `{variant}` in snake case")));
        }
        if !document.text.contains(&format!("`{label}`")) {
            problems.push(file.at(number, &format!("`{label}` is not in {}", document.name)));
        }
        if !seen.insert(label.to_owned()) {
            problems.push(file.at(number, &format!("`{label}` is given twice")));
        }
    }
    assert!(seen.len() > 30, "src/recovery/fact.rs: the labels are not found");
    none(&problems, "one word per fact: metric value, log word, row of the contract");
}

#[test]
fn every_clause_that_code_cites_exists() {
    let contract = read("docs/specs/recovery.md");
    let mut cited = BTreeSet::new();
    let mut problems = Vec::new();
    for file in files(&[".rs"]) {
        for (number, line) in file.lines() {
            let Some(clause) = line.trim().strip_prefix("// spec: recovery ") else { continue };
            if !contract.text.contains(&format!("- **{clause}")) {
                problems.push(file.at(number, &format!("no clause {clause}")));
            }
            cited.insert(clause.to_owned());
        }
    }
    assert!(!cited.is_empty(), "no test cites the contract");
    none(&problems, "cite the clause that the test pins, as docs/specs/recovery.md numbers it");
}

fn snake(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.extend(c.to_lowercase());
    }
    text
}

#[test]
fn nothing_is_left_for_later_and_no_line_runs_away() {
    let later = [concat!("FIX", "ME"), concat!("TO", "DO"), concat!("XX", "X")];
    let mut problems = Vec::new();
    for file in files(&[".rs", ".md", ".py", ".sh", ".toml", ".yml", "justfile", ".ci/run"]) {
        for (number, line) in file.lines() {
            for word in later.iter().filter(|word| has_word(line, word)) {
                problems.push(file.at(number, &format!("`{word}`: finish it or open an issue")));
            }
            if line.contains('\t') {
                problems.push(file.at(number, "a tab: use spaces"));
            }
            if line.ends_with(' ') {
                problems.push(file.at(number, "trailing blank"));
            }
            let comment = line.trim_start().starts_with("//") || line.contains(" // ");
            if file.name.ends_with(".rs") && comment && line.chars().count() > COMMENT_COLUMNS_MAX {
                problems.push(file.at(number, "a comment over 100 columns: wrap it"));
            }
        }
    }
    none(&problems, "see each line");
}

#[test]
fn every_field_in_the_configuration_document_has_its_default() {
    let document = read("docs/configuration.md");
    let mut problems = Vec::new();
    for (number, line) in document.lines().filter(|(_, line)| line.starts_with("| `")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if cells.len() != 5 || cells.iter().skip(1).take(3).any(|cell| cell.is_empty()) {
            problems.push(document.at(number, "not `| field | default | meaning |`"));
        }
    }
    none(&problems, "write the default, or – where a value must be given");
}
