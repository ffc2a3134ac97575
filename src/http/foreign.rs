//! Requests that a web page of somebody else has a browser send. They are refused before anything
//! else is looked at.
//!
//! A browser lets any page post to whatever its machine can reach, the loopback too, where nobody
//! shows a token. Whose page it is the browser says itself, in `Sec-Fetch-Site` and `Origin`; a
//! program sends neither. One page passes for ours: that whose own name was led here after it was
//! loaded (DNS rebinding), which may then read as well. That shows in `Host` alone: a name that is
//! not ours. An address in `Host` is nobody's name and cannot be led anywhere.

use std::net::{IpAddr, SocketAddr};

use axum::{
    extract::{Request, State},
    http::{
        HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri,
        header::{HOST, ORIGIN},
        uri::Authority,
    },
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::{Api, Problem};
use crate::config::HttpConfig;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// By which names the API is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Beside localhost and all addresses; lower case.
    own: Vec<String>,
    /// Whether any other one is refused.
    only: bool,
}

/// What gives such a request away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    CrossSite,
    UnknownHost,
}

impl Sign {
    fn problem(self) -> Problem {
        match self {
            Sign::CrossSite => {
                let detail = "a page of another origin changes nothing here; where a proxy gives \
                              its own page another name, http.names lists it";
                Problem::new(StatusCode::FORBIDDEN, "cross_site", detail)
            }
            Sign::UnknownHost => {
                let detail = "this name is not known to be this API's: ask by an address or \
                              localhost, or list it in http.names";
                Problem::new(StatusCode::MISDIRECTED_REQUEST, "unknown_host", detail)
            }
        }
    }
}

impl Names {
    /// Others are refused where a foreign page could read by them: where neither a token nor a
    /// certificate of the right name is needed. Beyond the loopback we do not know our own name.
    pub fn of(config: &HttpConfig, listen: SocketAddr) -> Names {
        let guarded = config.tokens_file.is_some() || config.tls.is_some();
        let known = listen.ip().is_loopback() || !config.names.is_empty();
        let own = config.names.iter().map(|name| bare(name)).collect();
        Names { own, only: known && !guarded }
    }

    fn sign(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<Sign> {
        // What the request line names counts as Host does.
        let hosts = || headers.get_all(HOST).iter().map(authority);
        let asked = || uri.authority().cloned().map(Some).into_iter().chain(hosts());
        let is_ours = |host: Option<Authority>| host.is_some_and(|it| self.is_ours(it.host()));
        if self.only && !asked().all(is_ours) {
            return Some(Sign::UnknownHost);
        }
        if [Method::GET, Method::HEAD, Method::OPTIONS].contains(method) {
            return None;
        }
        let own_origin = |origin| self.is_own_origin(origin, asked().flatten());
        let own = headers.get_all(SEC_FETCH_SITE).iter().all(is_own_site)
            && headers.get_all(ORIGIN).iter().all(own_origin);
        (!own).then_some(Sign::CrossSite)
    }

    fn is_ours(&self, host: &str) -> bool {
        let host = bare(host);
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        bare.parse::<IpAddr>().is_ok()
            || host == "localhost"
            || host.ends_with(".localhost")
            || self.own.contains(&host)
    }

    /// Scheme aside, which whatever encrypts in front of us changes.
    fn is_own_origin(&self, origin: &HeaderValue, asked: impl Iterator<Item = Authority>) -> bool {
        let uri = origin.to_str().ok().and_then(|origin| origin.parse::<Uri>().ok());
        let Some((scheme, origin)) =
            uri.as_ref().and_then(|it| it.scheme_str().zip(it.authority()))
        else {
            return false;
        };
        let port_left_out = if scheme == "https" { 443 } else { 80 };
        let port = |of: &Authority| of.port_u16().unwrap_or(port_left_out);
        let mut asked = asked.filter(|asked| port(asked) == port(origin));
        self.own.contains(&bare(origin.host()))
            || asked.any(|asked| bare(asked.host()) == bare(origin.host()))
    }
}

/// A name as it is compared: a dot at the end says that it is whole, and case nothing.
fn bare(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

fn authority(value: &HeaderValue) -> Option<Authority> {
    value.to_str().ok()?.parse().ok()
}

fn is_own_site(value: &HeaderValue) -> bool {
    value == "same-origin" || value == "none"
}

/// Refuses, and counts why.
pub(super) async fn refuse(State(api): State<Api>, request: Request, next: Next) -> Response {
    let sign = api.0.names.sign(request.method(), request.uri(), request.headers());
    let Some(sign) = sign else { return next.run(request).await };
    let foreign = &api.0.metrics.foreign;
    match sign {
        Sign::CrossSite => foreign.cross_site.increment(1),
        Sign::UnknownHost => foreign.unknown_host.increment(1),
    }
    sign.problem().into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(listen: &str, more: HttpConfig) -> Names {
        Names::of(&more, listen.parse().unwrap())
    }

    fn sign(names: &Names, method: &str, headers: &[(&str, &str)]) -> Option<Sign> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: HeaderName = name.parse().unwrap();
            map.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        names.sign(&method.parse().unwrap(), &Uri::from_static("/v1/flush"), &map)
    }

    #[test]
    fn what_changes_something_comes_from_our_own_page_or_from_no_page() {
        let names = names("127.0.0.1:8090", HttpConfig::default());
        let own = "127.0.0.1:8090";
        for (headers, refused) in [
            (&[][..], false),
            (&[("sec-fetch-site", "same-origin"), ("origin", "http://127.0.0.1:8090")], false),
            (&[("sec-fetch-site", "none")], false),
            (&[("origin", "https://127.0.0.1:8090")], false),
            (&[("sec-fetch-site", "cross-site")], true),
            (&[("sec-fetch-site", "same-site")], true),
            (&[("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")], true),
            (&[("sec-fetch-site", "\u{e9}")], true),
            (&[("origin", "http://elsewhere.example")], true),
            (&[("origin", "http://127.0.0.1:8091")], true),
            (&[("origin", "http://127.0.0.1")], true),
            (&[("origin", "http://127.0.0.1:8090@elsewhere.example")], true),
            (&[("origin", "null")], true),
            (&[("origin", "127.0.0.1:8090")], true),
            (&[("origin", "")], true),
            (&[("sec-fetch-site", "same-origin"), ("origin", "http://elsewhere.example")], true),
        ] {
            let headers = [&[("host", own)][..], headers].concat();
            for method in ["POST", "DELETE", "PUT", "PATCH", "NEW"] {
                let wanted = refused.then_some(Sign::CrossSite);
                assert_eq!(sign(&names, method, &headers), wanted, "{method} {headers:?}");
            }
            for method in ["GET", "HEAD", "OPTIONS"] {
                assert_eq!(sign(&names, method, &headers), None, "{method} {headers:?}");
            }
        }
        let without_port = [("host", "localhost"), ("origin", "https://localhost:443")];
        assert_eq!(sign(&names, "POST", &without_port), None);
    }

    #[test]
    fn on_the_loopback_a_name_that_is_not_ours_reads_nothing() {
        let open = names("127.0.0.1:8090", HttpConfig::default());
        for host in [
            "localhost:8090",
            "LOCALHOST",
            "localhost.",
            "kv.localhost:1",
            "127.0.0.1:8090",
            "127.9.9.9",
            "[::1]:8090",
            "10.0.0.7:8090",
        ] {
            assert_eq!(sign(&open, "GET", &[("host", host)]), None, "{host}");
        }
        for host in [
            "elsewhere.example:8090",
            "localhost.elsewhere.example",
            "127.0.0.1.elsewhere.example",
            "notlocalhost",
            "",
            "a b",
        ] {
            let refused = sign(&open, "GET", &[("host", host)]);
            assert_eq!(refused, Some(Sign::UnknownHost), "{host}");
        }
        let twice = [("host", "localhost"), ("host", "elsewhere.example")];
        assert_eq!(sign(&open, "GET", &twice), Some(Sign::UnknownHost));
        // HTTP/1.0: no browser.
        assert_eq!(sign(&open, "GET", &[]), None);
        let line = Uri::from_static("http://elsewhere.example/v1/replicas");
        assert_eq!(open.sign(&Method::GET, &line, &HeaderMap::new()), Some(Sign::UnknownHost));
    }

    #[test]
    fn names_are_looked_at_where_they_guard_something() {
        let foreign = [("host", "elsewhere.example")];
        let own = HttpConfig { names: vec!["Bridge.example.".to_owned()], ..HttpConfig::default() };
        let tokens = HttpConfig { tokens_file: Some("t".into()), ..HttpConfig::default() };
        let (loopback, everywhere) = ("[::1]:1", "0.0.0.0:1");
        assert_eq!(sign(&names(everywhere, HttpConfig::default()), "GET", &foreign), None);
        assert_eq!(sign(&names(loopback, tokens), "GET", &foreign), None);
        for listen in [loopback, everywhere] {
            let names = names(listen, own.clone());
            assert_eq!(sign(&names, "GET", &foreign), Some(Sign::UnknownHost));
            assert_eq!(sign(&names, "GET", &[("host", "bridge.example:8090")]), None);
            // A proxy that asks by address, and the page that it shows.
            let behind = [("host", "10.0.0.7:8090"), ("origin", "https://bridge.example")];
            assert_eq!(sign(&names, "POST", &behind), None);
            let whole = [("host", "bridge.example.:8090"), ("origin", "https://bridge.example.")];
            assert_eq!(sign(&names, "POST", &whole), None);
        }
    }
}
