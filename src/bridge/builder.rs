//! What a bridge in another program is made of.

use std::path::PathBuf;

use super::{Bridge, BridgeError};
use crate::{
    adapters::{Adapted, AdapterError, AdapterFault, Opening},
    config::{self, FileText, Flags, SourceFile},
};

/// What a file is called that a program wrote itself.
const OWN_TEXT: &str = "the program";

/// What a bridge is to do. Nothing is read or opened before [`start`](BridgeBuilder::start).
#[derive(Debug, Default)]
pub struct BridgeBuilder {
    flags: Flags,
    file: Option<FileFrom>,
    /// The first that was refused.
    refused: Option<AdapterError>,
}

#[derive(Debug)]
enum FileFrom {
    Path(PathBuf),
    Text(String),
}

impl BridgeBuilder {
    /// A configuration file, in the place of one given before.
    pub fn config_file(mut self, path: impl Into<PathBuf>) -> BridgeBuilder {
        self.file = Some(FileFrom::Path(path.into()));
        self
    }

    /// The text of one.
    pub fn config_text(mut self, text: impl Into<String>) -> BridgeBuilder {
        self.file = Some(FileFrom::Text(text.into()));
        self
    }

    /// A source, as `[[sources]]` of a file has it. With any, the list of the file does not count.
    pub fn source(mut self, source: SourceFile) -> BridgeBuilder {
        self.flags.sources.push(source);
        self
    }

    /// What reads engines of that name; see [`Adapters::add`](crate::adapters::Adapters::add).
    pub fn adapter<F>(mut self, name: &str, factory: F) -> BridgeBuilder
    where
        F: Fn(Opening) -> Result<Adapted, AdapterFault> + Send + Sync + 'static,
    {
        let added = self.flags.adapters.add(name, factory);
        self.refused = self.refused.or(added.err());
        self
    }

    /// Reads the configuration and starts, inside a tokio runtime.
    pub async fn start(self) -> Result<Bridge, BridgeError> {
        if let Some(refused) = self.refused {
            return Err(refused.into());
        }
        let file = self.file.map(FileFrom::read).transpose()?;
        Bridge::start(config::load(file.as_ref(), &[], self.flags)?).await
    }
}

impl FileFrom {
    fn read(self) -> Result<FileText, BridgeError> {
        match self {
            FileFrom::Text(text) => Ok(FileText { name: OWN_TEXT.to_owned(), text }),
            FileFrom::Path(path) => match std::fs::read_to_string(&path) {
                Ok(text) => Ok(FileText { name: path.display().to_string(), text }),
                Err(source) => Err(BridgeError::Unreadable { path, source }),
            },
        }
    }
}
