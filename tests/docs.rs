//! Whether the documents hold together: every page is in the book, every link leads somewhere.
//! What single documents say is compared with the code beside that code.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// All pages under a folder, as paths from the root; what is built or fetched is left out.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && !["target", ".git", "corpus", "vendor"].contains(&name) {
            found.extend(pages(&path));
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Lines outside fenced code, with their numbers from 1 on.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut fenced = false;
    let numbered = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    numbered
        .filter(|(_, line)| {
            let fence = line.trim_start().starts_with("```");
            fenced ^= fence;
            !fenced && !fence
        })
        .collect()
}

/// Where the links and pictures of a line lead.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](").filter_map(|(at, _)| line.get(at + 2..)?.split(')').next())
}

/// What a heading is linked by.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        _ if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
        _ => None,
    });
    kept.collect()
}

fn anchors(page: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(page).unwrap();
    let headings = prose(&text).into_iter().filter(|(_, line)| line.starts_with('#'));
    headings.map(|(_, line)| anchor(line.trim_start_matches('#'))).collect()
}

#[test]
fn every_page_is_in_the_book_once() {
    let docs = root().join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let mut listed: Vec<PathBuf> =
        summary.lines().flat_map(targets).map(|target| docs.join(target)).collect();
    listed.sort();
    let pages: Vec<PathBuf> =
        pages(&docs).into_iter().filter(|page| !page.ends_with("SUMMARY.md")).collect();
    assert_eq!(listed, pages, "docs/SUMMARY.md lists other pages than docs has");
}

#[test]
fn every_link_leads_somewhere() {
    let mut problems = Vec::new();
    let mut seen = 0;
    for page in pages(&root()) {
        let text = fs::read_to_string(&page).unwrap();
        for (number, line) in prose(&text) {
            for target in targets(line).filter(|target| !target.contains("://")) {
                seen += 1;
                let (file, heading) = target.split_once('#').unwrap_or((target, ""));
                let path =
                    if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
                if !path.exists() {
                    problems.push(format!("{}:{number}: {file} is not there", page.display()));
                } else if !heading.is_empty() && !anchors(&path).contains(heading) {
                    problems.push(format!("{}:{number}: no heading {target}", page.display()));
                }
            }
        }
    }
    assert!(seen > 50, "the links are not found");
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

/// Whoever changes a table draws its picture again.
#[test]
fn picture_of_the_peers_is_of_the_tables() {
    let plot = root().join("benches/peers/plot.py");
    let output = std::process::Command::new("python3").arg(plot).arg("--check").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
