//! Sources that were added over HTTP: how they are kept, and what they add to a configuration.

use super::{BusConfig, Config, Problems, SourceFile, sources::Named, validate::Check};

/// Format of the file; another one is refused by name.
const VERSION: u32 = 1;

/// Where problems of such a source are said to come from.
const ORIGIN: &str = "POST /v1/sources";

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct AddedFile {
    version: u32,
    sources: Vec<SourceFile>,
}

/// Why a file of added sources cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum AddedError {
    /// Not what this program writes.
    #[error("is not a list of sources: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Of another program.
    #[error("has version {found}, expected {VERSION}")]
    Version {
        /// What it says.
        found: u32,
    },
}

/// Reads what [`write_added`] wrote.
pub fn read_added(bytes: &[u8]) -> Result<Vec<SourceFile>, AddedError> {
    let file: AddedFile = serde_json::from_slice(bytes)?;
    if file.version != VERSION {
        return Err(AddedError::Version { found: file.version });
    }
    Ok(file.sources)
}

/// The file of these sources.
pub fn write_added(sources: &[SourceFile]) -> Vec<u8> {
    let file = AddedFile { version: VERSION, sources: sources.to_vec() };
    serde_json::to_vec_pretty(&file).expect("texts and numbers serialise")
}

impl Config {
    /// This configuration with sources that were added over HTTP, or all that is wrong with them.
    pub fn with_added(&self, added: &[SourceFile]) -> Result<Config, Problems> {
        let origin = |_: &str| Some(ORIGIN.to_owned());
        let mut check = Check::of(&origin);
        let mut named = Named::of(self);
        check.sources(&mut named, added, true);
        for (at, file) in added.iter().enumerate() {
            if file.name.is_none() {
                check.note(&format!("sources[{at}].name"), "is missing: it is taken away by name");
            }
        }
        if let BusConfig::Zmq(zmq) = &self.bus
            && zmq.journal.is_none()
            && !added.is_empty()
        {
            check.note("bus.journal", "is missing: a folder to keep what is published");
        }
        check.done()?;
        let Named { sources, engines, entries, .. } = named;
        Ok(Config { sources, engines, entries, ..self.clone() })
    }
}

#[cfg(test)]
#[cfg(feature = "vllm")]
mod tests {
    use super::*;
    use crate::config::{EntryOrigin, FileText, Flags, load};

    fn base() -> Config {
        let text = "[[sources]]\nname = \"a\"\nengine = \"vllm\"\nendpoint = \"tcp://h:1\"";
        let file = FileText { name: "kvbridge.toml".to_owned(), text: text.to_owned() };
        load(Some(&file), &[], Flags::default()).unwrap()
    }

    fn file(json: &str) -> SourceFile {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn what_is_written_is_read_again_and_nothing_else_is() {
        let sources = [
            file(r#"{"name": "b", "engine": "vllm", "endpoint": "tcp://h:2", "dp": 2}"#),
            file(r#"{"name": "c", "url": "http://h:8000", "members": ["http://h:1/m"]}"#),
        ];
        let written = write_added(&sources);
        assert_eq!(read_added(&written).unwrap(), sources);
        assert!(!String::from_utf8(written).unwrap().contains("null"));
        for text in ["", "{}", r#"{"version": 2, "sources": []}"#, r#"{"version": 1, "x": 1}"#] {
            assert!(read_added(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn added_sources_stand_beside_the_files_and_not_in_their_place() {
        let added = [
            file(r#"{"name": "b", "engine": "vllm", "endpoint": "tcp://h:2"}"#),
            file(r#"{"name": "c", "url": "http://h:8000"}"#),
        ];
        let config = base().with_added(&added).unwrap();
        let names: Vec<_> = config.entries.iter().map(|it| (&*it.name, &it.origin)).collect();
        let of_file = EntryOrigin::File("kvbridge.toml".to_owned());
        let http = EntryOrigin::Http;
        assert_eq!(names, [("a", &of_file), ("b", &http), ("c", &http)]);
        assert_eq!((config.sources.len(), config.engines.len()), (2, 1));
        for (json, problem) in [
            (r#"{"engine": "vllm", "endpoint": "tcp://h:2"}"#, "name: is missing"),
            (r#"{"name": "a", "engine": "vllm", "endpoint": "tcp://h:2"}"#, "have the name a"),
            (r#"{"name": "b", "engine": "vllm", "endpoint": "tcp://h:1"}"#, "speak of replica"),
            (r#"{"name": "b", "engine": "vllm"}"#, "endpoint: is missing"),
        ] {
            let problems = base().with_added(&[file(json)]).unwrap_err().to_string();
            assert!(problems.contains(problem), "{problems}");
            assert!(problems.contains("POST /v1/sources"), "{problems}");
        }
    }
}
