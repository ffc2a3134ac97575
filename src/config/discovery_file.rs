//! What a file says of engines that are looked for, as typed.

use super::file::Span;

/// `discover` of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct DiscoverFile {
    /// The name; one that begins with an underscore has SRV records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns: Option<String>,
    /// Port of the engines' servers, where the records do not tell it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// `[discovery]`
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiscoveryFile {
    /// Time between two requests to an engine that answers.
    pub refresh: Option<Span>,
    /// Time between two looks at a name.
    pub resolve: Option<Span>,
    /// How long a name may leave an engine out.
    pub grace: Option<Span>,
    /// Who is asked for names, `ip:port`.
    pub nameserver: Option<String>,
}
