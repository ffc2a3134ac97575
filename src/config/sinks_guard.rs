//! Who may read a sink whose readers open streams, and how the streams are encrypted.

use std::path::PathBuf;

use super::{TlsConfig, sinks_file::SinkFile, validate::Check};
use crate::sink_line::Preset;

/// Read when the port is bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SinkGuard {
    /// Encryption; absent = none.
    pub tls: Option<TlsConfig>,
    /// Who may read, in the form of `http.tokens_file`; absent = nobody is asked.
    pub tokens_file: Option<PathBuf>,
}

impl SinkGuard {
    /// Whether everybody is asked who they are.
    pub fn asks(&self) -> bool {
        let of_client = self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        self.tokens_file.is_some() || of_client
    }
}

impl Check<'_> {
    pub(super) fn sink_guard(
        &mut self,
        path: &str,
        file: &SinkFile,
        preset: Option<Preset>,
    ) -> SinkGuard {
        let streamed = preset.is_some_and(|preset| preset.profile().encoding.is_streamed());
        let given = [("tls", file.tls.is_some()), ("tokens_file", file.tokens_file.is_some())];
        for (field, _) in given.into_iter().filter(|(_, given)| *given && !streamed) {
            let message =
                format!("goes with preset {}: readers of others are not asked", Preset::SMG);
            self.note(&format!("{path}.{field}"), message);
        }
        if streamed && file.replay.is_some() {
            let message = "goes with no stream: a reader says in its request where it begins";
            self.note(&format!("{path}.replay"), message);
        }
        let tls = file.tls.clone().and_then(|tls| self.tls(&format!("{path}.tls"), tls));
        let tokens_file = self.path(&format!("{path}.tokens_file"), file.tokens_file.clone());
        SinkGuard { tls, tokens_file }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::tests::{loaded, problems};

    #[test]
    fn what_guards_a_stream_goes_with_no_other_sink() {
        let text = "[[sinks]]\npreset = \"vllm\"\ntokens_file = \"t\"\ntls = { cert = \"c\", key = \"k\" }\n";
        let found = problems(text, &[]);
        assert!(found.contains("sinks[0].tls: goes with preset smg"), "{found}");
        assert!(found.contains("sinks[0].tokens_file: goes with preset smg"), "{found}");
    }

    #[test]
    #[cfg(not(feature = "sink-smg"))]
    fn a_build_without_streams_says_what_it_lacks() {
        let found = problems("[[sinks]]\npreset = \"smg\"\n", &[]);
        assert!(found.contains("got \"smg\", for which the feature sink-smg is built"), "{found}");
        assert!(loaded("", &[]).sinks.is_empty());
    }

    #[test]
    #[cfg(feature = "sink-smg")]
    fn beyond_the_loopback_a_stream_asks_who_reads() {
        let of =
            |more: &str| format!("[[sinks]]\npreset = \"smg\"\nlisten = \"0.0.0.0:1\"\n{more}");
        assert!(problems(&of(""), &[]).starts_with("sinks[0].listen: is not the loopback"));
        let encrypted = "tls = { cert = \"c\", key = \"k\" }";
        assert!(problems(&of(encrypted), &[]).starts_with("sinks[0].listen: is not the loopback"));
        let known = "tls = { cert = \"c\", key = \"k\", client_ca = \"a\" }";
        for more in ["tokens_file = \"t\"", known, "insecure = true"] {
            assert!(loaded(&of(more), &[]).sinks[0].is_streamed(), "{more}");
        }
        let found =
            problems(&of("insecure = true\nreplay = \"127.0.0.1:2\"\none_socket = true"), &[]);
        assert!(found.contains("sinks[0].replay: goes with no stream"), "{found}");
        assert!(found.contains("sinks[0].one_socket: a reader of preset smg takes"), "{found}");
    }
}
