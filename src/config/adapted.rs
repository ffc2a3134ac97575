//! Entries of engines that an adapter of the program itself reads.

use kvbridge_schemas::EngineKind;

use super::{Options, SourceFile, reach::Reach, validate::Check};
use crate::pipeline::registry;

/// What an adapter of the program is told beside what every source has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdaptedConfig {
    /// The engine's HTTP server, where the entry names that and no endpoint.
    pub url: Option<String>,
    /// Its own table.
    pub options: Options,
}

impl Check<'_> {
    /// Whether an adapter of the program reads that engine.
    pub(super) fn is_adapted(&self, engine: Option<&EngineKind>) -> bool {
        engine.is_some_and(|engine| self.adapters.has(engine))
    }

    /// Engines that an entry may name.
    pub(super) fn engine_names(&self) -> Vec<&str> {
        let built_in = registry::engine_names().map(|name| -> &str { name });
        built_in.chain(self.adapters.names()).collect()
    }

    /// By `endpoint` or by `url`. What belongs to built-in engines is refused: the adapter would
    /// never hear of it.
    pub(super) fn reach_adapted(&mut self, path: &str, file: &SourceFile) -> Option<Reach> {
        let of_built_in = [
            ("discover", file.discover.is_some()),
            ("snapshot", file.snapshot.is_some()),
            ("plain_cache", file.plain_cache.is_some()),
            ("bind", file.bind == Some(true)),
            ("topic", file.topic.is_some()),
            ("transport", file.transport.is_some()),
            ("ignore_tags", file.ignore_tags.is_some()),
        ];
        for (field, _) in of_built_in.into_iter().filter(|(_, given)| *given) {
            let message = "belongs to built-in engines: tell an adapter in sources.options";
            self.note(&format!("{path}.{field}"), message);
        }
        match (&file.endpoint, &file.url) {
            (Some(_), Some(_)) => {
                self.note(&format!("{path}.url"), "one of endpoint and url is enough");
                None
            }
            (None, None) => {
                let message = "is missing, expected tcp://host:port, or a url";
                self.note(&format!("{path}.endpoint"), message);
                None
            }
            (Some(text), None) => {
                let endpoint = self.endpoint(&format!("{path}.endpoint"), text, false)?;
                Some(Reach { endpoint, url: None })
            }
            (None, Some(url)) => {
                let (url, address) = self.server(path, url)?;
                Some(Reach { endpoint: address.into(), url: Some(url) })
            }
        }
    }

    /// Options belong to an adapter of the program.
    pub(super) fn options(&mut self, path: &str, file: &SourceFile, engine: Option<&EngineKind>) {
        if file.options.is_some() && !self.is_adapted(engine) {
            let message = "belongs to an engine that an adapter of the program reads";
            self.note(&format!("{path}.options"), message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        adapters::Adapters,
        config::{Config, FileText, Flags, load},
    };

    /// With an adapter for `tiny`.
    fn read(text: &str) -> Result<Config, String> {
        let mut adapters = Adapters::new();
        adapters.add("tiny", |_| Err("opens nothing".into())).unwrap();
        let file = FileText { name: "f".to_owned(), text: format!("[[sources]]\n{text}") };
        load(Some(&file), &[], Flags { adapters, ..Flags::default() })
            .map_err(|problems| problems.to_string())
    }

    #[test]
    fn an_adapter_gets_what_its_entry_says() {
        let config = read(
            "engine = \"tiny\"\nendpoint = \"tcp://h:5\"\nreplay = \"tcp://h:7\"\ndp = 2\n\
             [sources.options]\ndepth = 3\nnested = { words = [\"a\"] }",
        )
        .unwrap();
        let ports: Vec<_> = config
            .sources
            .iter()
            .map(|it| (it.endpoint.port, it.replay.as_ref().unwrap().port, it.replica.rank))
            .collect();
        assert_eq!(ports, [(5, 7, 0), (6, 8, 1)]);
        for source in &config.sources {
            assert_eq!(source.engine, EngineKind::Other("tiny".to_owned()));
            let AdaptedConfig { url, options } = source.adapted.as_ref().unwrap();
            assert_eq!(*url, None);
            let text = serde_json::to_string(options).unwrap();
            assert_eq!(text, r#"{"depth":3,"nested":{"words":["a"]}}"#);
        }
    }

    #[test]
    fn a_url_is_the_adapters_own_business() {
        let config = read("engine = \"tiny\"\nurl = \"http://h:9/\"").unwrap();
        assert!(config.engines.is_empty(), "nobody else asks there");
        let source = &config.sources[0];
        assert_eq!(source.adapted.as_ref().unwrap().url.as_deref(), Some("http://h:9"));
        assert_eq!((&*source.replica.instance, source.endpoint.port), ("h:9", 9));
        assert!(source.polled.is_none());
    }

    #[test]
    fn what_no_adapter_would_hear_of_is_refused() {
        for (text, problem) in [
            ("engine = \"tiny\"", "endpoint: is missing"),
            ("engine = \"tiny\"\nendpoint = \"tcp://h:5\"\nurl = \"http://h:1\"", "is enough"),
            ("engine = \"tiny\"\nendpoint = \"tcp://h:5\"\ntopic = \"t\"", "topic: belongs to"),
            ("engine = \"tiny\"\ndiscover = { dns = \"a.b\", port = 1 }", "discover: belongs to"),
            ("engine = \"tinny\"\nendpoint = \"tcp://h:5\"", "tiny, got \"tinny\""),
            ("url = \"http://h:1\"\n[sources.options]", "options: belongs to"),
        ] {
            let problems = read(text).unwrap_err();
            assert!(problems.contains(problem), "{text}: {problems}");
        }
    }

    #[test]
    fn a_source_that_is_added_later_has_the_same_adapters() {
        let config = read("engine = \"tiny\"\nendpoint = \"tcp://h:5\"").unwrap();
        let added = r#"{"name": "b", "engine": "tiny", "endpoint": "tcp://h:6", "options": {}}"#;
        let added = config.with_added(&[serde_json::from_str(added).unwrap()]).unwrap();
        assert_eq!(added.sources.len(), 2);
        assert!(added.sources[1].adapted.is_some());
    }
}
