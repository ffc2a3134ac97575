//! Sources on the command line: `--<engine> tcp://…` opens one, the options after it belong to it.
//!
//! clap's derive cannot say "belongs to the one before", so the indices of all values are read and
//! each option goes to the source with the greatest index below its own.

use clap::{
    Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches,
    error::{Error, ErrorKind},
};

use kvbridge_schemas::EngineKind;

use crate::{config::SourceFile, pipeline::registry};

/// The sources, in the order typed.
#[derive(Clone, Debug, Default)]
pub struct SourceArgs {
    /// As if they were `[[sources]]` of a file.
    pub sources: Vec<SourceFile>,
}

/// Opens a source whose engine is not named.
const ENGINE_URL: &str = "engine-url";

/// Options of a source: name, placeholder, help.
const OPTIONS: [(&str, &str, &str); 12] = [
    ("replay", "ENDPOINT", "Where its journal answers"),
    ("snapshot", "ENDPOINT", "Where it answers what it holds (snapshot-v1); with --plain-cache"),
    ("plain-cache", "", "The engine has one tier, and no two pages under one hash"),
    ("model", "NAME", "The served model's name, as routers say it"),
    (
        "instance",
        "HOST:PORT",
        "What a router sends requests to; {host}, {ip}, {port} and {rank} stand for the engine's [default: {host}:{port}]",
    ),
    ("dp", "N", "Data-parallel ranks, at port + r; of an engine that is asked: all there"),
    ("topic", "PREFIX", "ZeroMQ topic prefix"),
    ("transport", "LIBRARY", "What reads its sockets: zeromq or, where built in, omq"),
    ("bind", "", "The engine connects to us"),
    ("metrics", "URL", "The engine's own metrics, for the size of its cache and its traffic"),
    ("flush", "URL", "Where it is asked to empty its cache"),
    ("member", "URL", "Metrics of one of the engine's processes, for its start; repeatable"),
];

impl Args for SourceArgs {
    fn augment_args(command: Command) -> Command {
        let command = registry::engine_names().fold(command, |command, engine| {
            let help = if registry::is_polled(&EngineKind::from_name(engine)) {
                format!(
                    "A {engine} engine's server, http://host:port, or the endpoint of its native \
                     stream, tcp://host:port; repeatable"
                )
            } else {
                format!(
                    "A {engine} engine's event endpoint, tcp://host:port, or its server, \
                     http://host:port, which tells where its events are; repeatable"
                )
            };
            command.arg(
                Arg::new(engine)
                    .long(engine)
                    .value_name("ENDPOINT")
                    .action(ArgAction::Append)
                    .help_heading("Sources")
                    .help(help),
            )
        });
        let command = command.arg(
            Arg::new(ENGINE_URL)
                .long(ENGINE_URL)
                .value_name("URL")
                .action(ArgAction::Append)
                .help_heading("Sources")
                .help("The server of any engine, which is asked what it is; repeatable"),
        );
        OPTIONS.iter().fold(command, |command, (name, value, help)| {
            let arg = Arg::new(*name)
                .long(*name)
                .action(ArgAction::Append)
                .help_heading("Sources")
                .help(*help);
            command.arg(match *value {
                "" => arg.num_args(0).default_missing_value("true"),
                value => arg.value_name(value),
            })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        SourceArgs::augment_args(command)
    }
}

impl FromArgMatches for SourceArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<SourceArgs, Error> {
        let mut opened: Vec<(usize, SourceFile)> = Vec::new();
        for engine in registry::engine_names() {
            for (index, endpoint) in indexed(matches, engine) {
                let is_polled = registry::is_polled(&EngineKind::from_name(engine));
                let begins = |with: &[&str]| with.iter().any(|it| endpoint.starts_with(it));
                let is_endpoint = !is_polled || begins(&["tcp://"]);
                let (url, endpoint) = if begins(&["http://", "https://"]) || !is_endpoint {
                    (Some(endpoint), None)
                } else {
                    (None, Some(endpoint))
                };
                let engine = Some(engine.to_owned());
                let source = SourceFile { engine, url, endpoint, ..SourceFile::default() };
                opened.push((index, source));
            }
        }
        for (index, url) in indexed(matches, ENGINE_URL) {
            opened.push((index, SourceFile { url: Some(url), ..SourceFile::default() }));
        }
        opened.sort_by_key(|(index, _)| *index);
        for (name, ..) in OPTIONS {
            for (index, value) in indexed(matches, name) {
                let Some((_, source)) = opened.iter_mut().rev().find(|(open, _)| *open < index)
                else {
                    return Err(usage(format!(
                        "--{name} belongs to the source before it; none is\n"
                    )));
                };
                set(source, name, value)?;
            }
        }
        Ok(SourceArgs { sources: opened.into_iter().map(|(_, source)| source).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = SourceArgs::from_arg_matches(matches)?;
        Ok(())
    }
}

fn set(source: &mut SourceFile, name: &str, value: String) -> Result<(), Error> {
    let taken = match name {
        "dp" => {
            let count = value.parse().map_err(|_| usage(format!("--dp {value} is no number\n")))?;
            source.dp.replace(count).is_some()
        }
        "bind" => source.bind.replace(true).is_some(),
        "plain-cache" => source.plain_cache.replace(true).is_some(),
        "snapshot" => source.snapshot.replace(value).is_some(),
        "replay" => source.replay.replace(value).is_some(),
        "model" => source.model.replace(value).is_some(),
        "instance" => source.instance.replace(value).is_some(),
        "metrics" => source.metrics.replace(value).is_some(),
        "flush" => source.flush.replace(value).is_some(),
        "member" => {
            source.members.get_or_insert_default().push(value);
            false
        }
        "transport" => source.transport.replace(value).is_some(),
        _ => source.topic.replace(value).is_some(),
    };
    if taken { Err(usage(format!("--{name} is given twice for one source\n"))) } else { Ok(()) }
}

fn indexed(matches: &ArgMatches, name: &str) -> Vec<(usize, String)> {
    let indices = matches.indices_of(name).into_iter().flatten();
    let values = matches.get_many::<String>(name).into_iter().flatten().cloned();
    indices.zip(values).collect()
}

fn usage(message: String) -> Error {
    Error::raw(ErrorKind::ArgumentConflict, message)
}

#[cfg(test)]
#[cfg(feature = "vllm")]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        sources: SourceArgs,
    }

    fn parse(line: &str) -> Result<Vec<SourceFile>, String> {
        Line::try_parse_from(std::iter::once("x").chain(line.split_whitespace()))
            .map(|line| line.sources.sources)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn an_option_belongs_to_the_source_before_it() {
        let sources = parse(
            "--vllm tcp://a:1 --replay tcp://a:2 --model m --vllm tcp://b:1 --bind --dp 4 \
             --transport zeromq --vllm tcp://c:1 --replay tcp://c:2 --bind",
        )
        .unwrap();
        let seen: Vec<_> = sources
            .iter()
            .map(|s| (s.endpoint.as_deref(), s.replay.as_deref(), s.model.as_deref(), s.bind, s.dp))
            .collect();
        assert_eq!(
            seen,
            [
                (Some("tcp://a:1"), Some("tcp://a:2"), Some("m"), None, None),
                (Some("tcp://b:1"), None, None, Some(true), Some(4)),
                (Some("tcp://c:1"), Some("tcp://c:2"), None, Some(true), None),
            ]
        );
        let transports: Vec<_> = sources.iter().map(|s| s.transport.as_deref()).collect();
        assert_eq!(transports, [None, Some("zeromq"), None]);
    }

    #[test]
    fn an_engine_is_named_by_its_events_or_by_its_server() {
        let sources = parse("--vllm tcp://a:1 --vllm https://b --engine-url http://c:2").unwrap();
        let seen: Vec<_> = sources
            .iter()
            .map(|s| (s.engine.as_deref(), s.endpoint.as_deref(), s.url.as_deref()))
            .collect();
        assert_eq!(
            seen,
            [
                (Some("vllm"), Some("tcp://a:1"), None),
                (Some("vllm"), None, Some("https://b")),
                (None, None, Some("http://c:2")),
            ]
        );
    }

    #[test]
    fn members_add_up_and_there_is_one_address_of_metrics() {
        let sources = parse("--vllm tcp://a:1 --member u --member v --metrics w").unwrap();
        let members = sources[0].members.as_deref().unwrap();
        assert_eq!(
            (members, sources[0].metrics.as_deref()),
            (&["u".into(), "v".into()][..], Some("w"))
        );
        assert!(parse("--vllm tcp://a:1 --metrics u --metrics v").is_err());
    }

    #[test]
    fn an_option_without_a_source_or_given_twice_is_refused() {
        assert!(parse("--replay tcp://a:2").unwrap_err().contains("belongs to the source before"));
        assert!(parse("--vllm tcp://a:1 --dp 2 --dp 3").unwrap_err().contains("given twice"));
        assert!(parse("--vllm tcp://a:1 --dp x").unwrap_err().contains("no number"));
    }
}
