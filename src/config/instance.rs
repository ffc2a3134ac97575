//! `sources.instance`: what a router sends requests to, with places for what the source tells.

use std::{fmt::Write as _, net::IpAddr, str::FromStr};

use crate::discovery::Address;

/// An instance with placeholders. It must come out byte for byte as routers say it, so whoever
/// routes by something else than `host:port` writes it here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceTemplate(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Host,
    Ip,
    Port,
    Rank,
}

/// Why a text is no template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected text with {{host}}, {{ip}}, {{port}} or {{rank}} in it, got {text:?}")]
pub struct InstanceError {
    text: String,
}

/// `{host}:{port}`, which is what most routers send to.
impl Default for InstanceTemplate {
    fn default() -> InstanceTemplate {
        InstanceTemplate(vec![Part::Host, Part::Text(":".to_owned()), Part::Port])
    }
}

impl FromStr for InstanceTemplate {
    type Err = InstanceError;

    fn from_str(text: &str) -> Result<InstanceTemplate, InstanceError> {
        let wrong = || InstanceError { text: text.to_owned() };
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (word, after) = after.split_once('}').ok_or_else(wrong)?;
            parts.push(Part::Text(before.to_owned()));
            parts.push(match word {
                "host" => Part::Host,
                "ip" => Part::Ip,
                "port" => Part::Port,
                "rank" => Part::Rank,
                _ => return Err(wrong()),
            });
            rest = after;
        }
        parts.push(Part::Text(rest.to_owned()));
        let stray = |part: &Part| matches!(part, Part::Text(text) if text.contains('}'));
        if text.is_empty() || parts.iter().any(stray) {
            return Err(wrong());
        }
        Ok(InstanceTemplate(parts))
    }
}

impl InstanceTemplate {
    /// Whether it needs an IP address.
    pub fn names_ip(&self) -> bool {
        self.0.contains(&Part::Ip)
    }

    /// Whether each rank has its own.
    pub fn names_rank(&self) -> bool {
        self.0.contains(&Part::Rank)
    }

    /// Whether it is the same wherever the source is.
    pub fn is_fixed(&self) -> bool {
        !self.0.iter().any(|part| matches!(part, Part::Host | Part::Ip | Part::Port))
    }

    /// The instance at that address; none where it needs an IP that is not known.
    pub fn at(&self, address: &Address, rank: u32) -> Option<String> {
        let mut instance = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => instance.push_str(text),
                Part::Host => instance.push_str(&address.host),
                Part::Port => write!(instance, "{}", address.port).ok()?,
                Part::Rank => write!(instance, "{rank}").ok()?,
                Part::Ip => instance.push_str(&ip_text(address.ip?)),
            }
        }
        Some(instance)
    }
}

/// An IP as it stands before a port: routers that write `host:port` put brackets around IPv6.
pub(crate) fn ip_text(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

/// The IP that a host is, if it is one; IPv6 with or without its brackets.
pub(super) fn host_ip(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(template: &str, host: &str) -> Option<String> {
        let address = Address { host: host.to_owned(), port: 8000, ip: host_ip(host) };
        template.parse::<InstanceTemplate>().unwrap().at(&address, 3)
    }

    #[test]
    fn it_comes_out_byte_for_byte() {
        for (template, host, instance) in [
            ("{host}:{port}", "10.0.0.7", "10.0.0.7:8000"),
            ("{host}:{port}", "pod-0.svc", "pod-0.svc:8000"),
            ("{host}:{port}", "[fd00::7]", "[fd00::7]:8000"),
            ("{ip}:9000", "10.0.0.7", "10.0.0.7:9000"),
            ("{ip}:9000", "[fd00::7]", "[fd00::7]:9000"),
            ("http://{host}:{port}/v1", "a", "http://a:8000/v1"),
            ("engine-{rank}", "a", "engine-3"),
            ("plain", "a", "plain"),
            ("{rank}{rank}", "a", "33"),
        ] {
            assert_eq!(at(template, host).as_deref(), Some(instance), "{template}");
        }
        assert_eq!(at("{ip}", "a"), None);
        let default: InstanceTemplate = "{host}:{port}".parse().unwrap();
        let address = Address { host: "h".to_owned(), port: 1, ip: None };
        assert_eq!(default.at(&address, 0), InstanceTemplate::default().at(&address, 0));
    }

    #[test]
    fn an_unknown_placeholder_is_refused() {
        for text in ["", "{pod}", "{}", "{IP}", "a{", "a}", "{ip", "ip}", "{{ip}}", "{ip}}"] {
            assert!(text.parse::<InstanceTemplate>().is_err(), "{text}");
        }
    }
}
