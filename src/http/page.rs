//! GET / and /page/{name}: the page of operators, as it lies in `src/http/page`.
//!
//! It is open as the health checks are: nothing in it is secret, and a browser that opens an
//! address shows no token. What it shows it asks of the API, with the token that is typed into it.

use axum::{
    Router,
    body::Body,
    extract::Path,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
    routing::get,
};

use super::{Api, Problem};

/// Nothing from elsewhere, nothing inline, no text turned into markup, no page around this one.
const POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'; require-trusted-types-for 'script'";

const INDEX: &str = include_str!("page/index.html");

/// Name, type, text.
const FILES: &[(&str, &str, &str)] = &[
    ("style.css", "text/css", include_str!("page/style.css")),
    ("icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
    ("app.js", "text/javascript", include_str!("page/app.js")),
    ("api.js", "text/javascript", include_str!("page/api.js")),
    ("sse.js", "text/javascript", include_str!("page/sse.js")),
    ("state.js", "text/javascript", include_str!("page/state.js")),
    ("text.js", "text/javascript", include_str!("page/text.js")),
    ("dom.js", "text/javascript", include_str!("page/dom.js")),
    ("replicas.js", "text/javascript", include_str!("page/replicas.js")),
    ("detail.js", "text/javascript", include_str!("page/detail.js")),
    ("timeline.js", "text/javascript", include_str!("page/timeline.js")),
    ("envelopes.js", "text/javascript", include_str!("page/envelopes.js")),
    ("alarms.js", "text/javascript", include_str!("page/alarms.js")),
    ("orders.js", "text/javascript", include_str!("page/orders.js")),
];

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/", get(index)).route("/page/{name}", get(file))
}

async fn index() -> Response {
    answer("text/html", INDEX)
}

async fn file(Path(name): Path<String>) -> Response {
    match FILES.iter().find(|(known, ..)| *known == name) {
        Some((_, kind, text)) => answer(kind, text),
        None => Problem::not_found().into_response(),
    }
}

fn answer(kind: &str, text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    let kind = HeaderValue::from_str(&format!("{kind}; charset=utf-8"));
    for (name, value) in [
        (header::CONTENT_TYPE, kind.unwrap_or(HeaderValue::from_static("text/plain"))),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        // Another version of the program has another page at the same address.
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ] {
        response.headers_mut().insert(name, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_asked_for_is_there_and_nothing_of_elsewhere() {
        let mut asked = Vec::new();
        let files = FILES.iter().map(|(name, _, text)| (*name, *text));
        for (name, text) in files.chain([("index.html", INDEX)]) {
            let lines = text.lines().count();
            assert!(lines <= 400, "{name} has {lines} lines");
            // The namespace of SVG is a name, not an address.
            let text = text.replace("http://www.w3.org/2000/svg", "");
            for inline in ["style=", "onclick", "innerHTML", "http://", "https://", "eval("] {
                assert!(!text.contains(inline), "{inline} in {name}");
            }
            for part in text.split(['"', '\'']) {
                let file = part.strip_prefix("/page/").or_else(|| part.strip_prefix("./"));
                asked.extend(file.map(str::to_owned));
            }
        }
        for file in &asked {
            assert!(FILES.iter().any(|(known, ..)| known == file), "{file} is not served");
        }
        for (name, ..) in FILES {
            assert!(asked.iter().any(|file| file == name), "nobody asks for {name}");
        }
    }
}
