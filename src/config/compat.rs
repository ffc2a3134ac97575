//! `[compat]`: APIs of other programs, so that their clients can ask this one.

use std::net::SocketAddr;

use super::{limits, validate::Check};

/// APIs of other programs that are answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompatConfig {
    /// The HTTP of Dynamo's indexer; absent = not answered.
    pub dynamo: Option<DynamoConfig>,
}

/// The HTTP of Dynamo's indexer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DynamoConfig {
    /// Where it listens: its paths are those of a program of its own.
    pub listen: SocketAddr,
    /// Which engine a registered endpoint is, where the request does not tell; absent = the first
    /// of this build.
    pub engine: Option<String>,
}

/// `[compat]` as typed.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompatFile {
    /// Present = answered.
    pub dynamo: Option<DynamoFile>,
}

/// `[compat.dynamo]` as typed.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DynamoFile {
    /// Where it listens.
    pub listen: Option<String>,
    /// Listen beyond the loopback although nobody is asked who they are.
    pub insecure: Option<bool>,
    /// Which engine a registered endpoint is.
    pub engine: Option<String>,
}

impl Check<'_> {
    /// `asks` = the API asks everybody who they are, and so does this.
    pub(super) fn compat(&mut self, file: CompatFile, asks: bool) -> CompatConfig {
        CompatConfig { dynamo: file.dynamo.map(|file| self.dynamo(file, asks)) }
    }

    fn dynamo(&mut self, file: DynamoFile, asks: bool) -> DynamoConfig {
        let at = "compat.dynamo.listen";
        let listen = self.bus_address(at, file.listen.as_deref(), limits::COMPAT_DYNAMO_LISTEN);
        if !listen.ip().is_loopback() && !asks && !file.insecure.unwrap_or(false) {
            let message = "is not the loopback, and nobody is asked who they are: set \
                           http.tokens_file or http.tls.client_ca, or insecure here";
            self.note(at, message);
        }
        if file.engine.as_deref() == Some("") {
            self.note("compat.dynamo.engine", "must not be empty");
        }
        DynamoConfig { listen, engine: file.engine }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, FileText, Flags, Problems, load};

    fn config(text: &str) -> Result<Config, Problems> {
        let file = FileText { name: "kvbridge.toml".to_owned(), text: text.to_owned() };
        load(Some(&file), &[], Flags::default())
    }

    #[test]
    fn an_empty_block_answers_at_the_loopback_and_none_answers_nowhere() {
        assert_eq!(config("").unwrap().compat.dynamo, None);
        let dynamo = config("[compat.dynamo]\n").unwrap().compat.dynamo.unwrap();
        assert_eq!((dynamo.listen.to_string().as_str(), dynamo.engine), ("127.0.0.1:8092", None));
    }

    #[test]
    fn beyond_the_loopback_somebody_is_asked_or_it_is_said_that_nobody_is() {
        let open = "[compat.dynamo]\nlisten = \"0.0.0.0:1\"\n";
        let problems = config(open).unwrap_err().to_string();
        assert!(problems.contains("compat.dynamo.listen: is not the loopback"), "{problems}");
        assert!(config(&format!("{open}insecure = true\n")).is_ok());
        assert!(config(&format!("{open}[http]\ntokens_file = \"t\"\n")).is_ok());
        assert!(config("[compat.dynamo]\nengine = \"\"\n").is_err());
    }
}
