//! Who may do what: the tokens file, and what a request is granted.
//!
//! Tokens are kept as SHA-256 digests and compared in constant time, each one of them at every
//! request, so that neither an answer's time nor a core dump tells one.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Arc, PoisonError, RwLock},
};

use axum::http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::Problem;
use crate::config::{Problems, Secret};

/// Shortest token accepted: 16 random characters are beyond guessing over a network.
const TOKEN_BYTES_MIN: usize = 16;

/// Tokens in the file. Every request is compared with each.
const TOKEN_COUNT_MAX: usize = 1024;

/// What a token can be good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// See and ask: matches, replicas, events, snapshots, alarms, metrics.
    Read,
    /// See prompts: token ids, salts, extra keys, sessions.
    Tokens,
    /// Change something: resync, reload, sources.
    Write,
    /// Tell what came of requests. Apart from `read`, because it moves what others see, and from
    /// `write`, because a router has no business resyncing.
    Report,
}

impl Scope {
    const ALL: [Scope; 4] = [Scope::Read, Scope::Tokens, Scope::Write, Scope::Report];

    /// Its name in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Scope::Read => "read",
            Scope::Tokens => "tokens",
            Scope::Write => "write",
            Scope::Report => "report",
        }
    }
}

/// What one request is granted.
#[derive(Clone, PartialEq, Eq)]
pub struct Grant {
    /// Digest of the token it was given for; absent where nobody is asked.
    token: Option<[u8; 32]>,
    scopes: BTreeSet<Scope>,
    /// Absent = all.
    models: Option<BTreeSet<String>>,
    expires_ms: Option<u64>,
}

impl Grant {
    /// What everybody is granted where nobody is asked: all but prompts.
    pub fn open() -> Grant {
        let scopes = [Scope::Read, Scope::Write, Scope::Report].into();
        Grant { token: None, scopes, models: None, expires_ms: None }
    }

    /// Whether replicas of that model are shown.
    pub fn sees(&self, model: &str) -> bool {
        self.models.as_ref().is_none_or(|models| models.contains(model))
    }

    /// Whether only some models are shown.
    pub fn is_restricted(&self) -> bool {
        self.models.is_some()
    }

    /// Whether its time is over.
    pub fn expired(&self, unix_ms: u64) -> bool {
        self.expires_ms.is_some_and(|expires_ms| expires_ms <= unix_ms)
    }

    /// Refuses what lies outside the scope.
    pub fn require(&self, scope: Scope) -> Result<(), Problem> {
        if self.scopes.contains(&scope) {
            return Ok(());
        }
        let detail = format!("this needs a token with the scope {}", scope.as_str());
        Err(Problem::new(StatusCode::FORBIDDEN, "scope_missing", detail))
    }

    /// Whether the query asks for prompts and may have them.
    pub fn shows_tokens(&self, query: Option<&str>) -> Result<bool, Problem> {
        match query.unwrap_or("") {
            "" | "tokens=false" => Ok(false),
            "tokens=true" => self.require(Scope::Tokens).map(|()| true),
            _ => {
                let detail = "the only parameter is tokens, true or false";
                Err(Problem::new(StatusCode::BAD_REQUEST, "unknown_parameter", detail))
            }
        }
    }
}

struct Known {
    digest: [u8; 32],
    grant: Arc<Grant>,
}

/// Who is asked for what.
#[derive(Clone)]
pub enum Access {
    /// Nobody is asked.
    Open,
    /// Everybody shows a token.
    Tokens(Arc<Tokens>),
}

/// The access in force, until a reload reads another one.
pub struct InForce(RwLock<Access>);

impl InForce {
    /// This one, for now.
    pub fn new(access: Access) -> InForce {
        InForce(RwLock::new(access))
    }

    /// What is in force now.
    pub fn now(&self) -> Access {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on another one.
    pub fn put(&self, access: Access) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = access;
    }
}

/// All tokens of the file.
pub struct Tokens(Vec<Known>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokensFile {
    #[serde(default)]
    tokens: Vec<TokenFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenFile {
    /// For people; not looked at.
    #[serde(rename = "name")]
    _name: Option<String>,
    token: Secret,
    scopes: Vec<String>,
    models: Option<BTreeSet<String>>,
    expires: Option<String>,
}

impl Access {
    /// Reads the tokens file, or says all that is wrong with it.
    pub fn read(path: &Path) -> Result<Access, Problems> {
        let mut problems = Problems::default();
        let origin = Some(path.display().to_string());
        match std::fs::read_to_string(path) {
            Ok(text) => match Access::parse(&text) {
                Ok(access) => return Ok(access),
                Err(found) => {
                    for (at, message) in found {
                        problems.add_from(&at, origin.clone(), message);
                    }
                }
            },
            Err(error) => problems.add_from("http.tokens_file", origin, format!("{error}")),
        }
        Err(problems)
    }

    /// The access that a tokens file describes. No problem shows a value: it may be a token.
    fn parse(text: &str) -> Result<Access, Vec<(String, String)>> {
        let file: TokensFile = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let line = text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
            let message =
                "expected [[tokens]] with token, scopes and, if wanted, name, models, expires";
            vec![(format!("line {line}"), message.to_owned())]
        })?;
        let mut problems = Vec::new();
        let mut known: Vec<Known> = Vec::new();
        if file.tokens.is_empty() || file.tokens.len() > TOKEN_COUNT_MAX {
            let message = format!("expected 1 to {TOKEN_COUNT_MAX}, got {}", file.tokens.len());
            problems.push(("tokens".to_owned(), message));
        }
        for (at, entry) in file.tokens.into_iter().enumerate() {
            let mut note = |field: &str, message: String| {
                problems.push((format!("tokens[{at}].{field}"), message));
            };
            let secret = entry.token.expose();
            if secret.len() < TOKEN_BYTES_MIN || !secret.bytes().all(|byte| byte.is_ascii_graphic())
            {
                let message =
                    format!("expected {TOKEN_BYTES_MIN} or more visible ASCII characters");
                note("token", message);
            }
            let digest: [u8; 32] = Sha256::digest(secret.as_bytes()).into();
            if known.iter().any(|other| other.digest == digest) {
                note("token", "is there twice".to_owned());
            }
            let named = |name: &String| Scope::ALL.into_iter().find(|scope| scope.as_str() == name);
            let scopes: Option<BTreeSet<Scope>> = entry.scopes.iter().map(named).collect();
            if scopes.as_ref().is_none_or(BTreeSet::is_empty) {
                note("scopes", "expected some of read, tokens, write, report".to_owned());
            }
            let expires = entry.expires.as_deref().map(unix_ms);
            if expires == Some(None) {
                note("expires", "expected a time such as \"2027-01-31T00:00:00Z\"".to_owned());
            }
            let grant = Grant {
                token: Some(digest),
                scopes: scopes.unwrap_or_default(),
                models: entry.models,
                expires_ms: expires.flatten(),
            };
            known.push(Known { digest, grant: Arc::new(grant) });
        }
        if problems.is_empty() {
            Ok(Access::Tokens(Arc::new(Tokens(known))))
        } else {
            Err(problems)
        }
    }

    /// Whether a grant of an earlier reading is also one of this. Without it a token that was taken
    /// out of the file could read on for as long as its stream is open.
    pub fn still_grants(&self, grant: &Arc<Grant>) -> bool {
        match self {
            Access::Open => true,
            Access::Tokens(tokens) => {
                // A pointer first: nearly always nothing was read meanwhile.
                tokens.0.iter().any(|known| Arc::ptr_eq(&known.grant, grant))
                    || tokens.0.iter().any(|known| known.grant == *grant)
            }
        }
    }

    /// What a request with these headers is granted.
    pub fn admit(&self, headers: &HeaderMap, now_ms: u64) -> Result<Arc<Grant>, Problem> {
        let Access::Tokens(tokens) = self else { return Ok(Arc::new(Grant::open())) };
        let refuse = |reason, detail| Err(Problem::new(StatusCode::UNAUTHORIZED, reason, detail));
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let Some(value) = values.next() else {
            return refuse("token_missing", "expected the header Authorization: Bearer TOKEN");
        };
        let bearer = value.to_str().ok().and_then(|value| value.split_once(' '));
        let shown = bearer.filter(|(kind, _)| kind.eq_ignore_ascii_case("bearer"));
        let (Some((_, shown)), None) = (shown, values.next()) else {
            return refuse("token_malformed", "expected one header Authorization: Bearer TOKEN");
        };
        match tokens.find(shown.trim()) {
            None => refuse("token_unknown", "no such token"),
            Some(grant) if grant.expired(now_ms) => {
                refuse("token_expired", "the token's time is over")
            }
            Some(grant) => Ok(grant),
        }
    }
}

impl Tokens {
    fn find(&self, shown: &str) -> Option<Arc<Grant>> {
        let digest: [u8; 32] = Sha256::digest(shown.as_bytes()).into();
        let mut found = None;
        for known in &self.0 {
            if bool::from(known.digest.ct_eq(&digest)) {
                found = Some(Arc::clone(&known.grant));
            }
        }
        found
    }
}

fn unix_ms(text: &str) -> Option<u64> {
    let time = humantime::parse_rfc3339(text).ok()?;
    let since = time.duration_since(std::time::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

#[cfg(test)]
impl Access {
    pub(super) fn of(text: &str) -> Access {
        match Access::parse(text) {
            Ok(access) => access,
            Err(problems) => panic!("{problems:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn problems(text: &str) -> String {
        let Err(problems) = Access::parse(text) else { panic!("expected problems") };
        problems.iter().map(|(at, message)| format!("{at}: {message}\n")).collect()
    }

    #[test]
    fn every_problem_is_named_and_none_shows_a_token() {
        let text = r#"
            [[tokens]]
            token = "SECRET"
            scopes = ["root"]
            [[tokens]]
            token = "SECRET-SECRET-SECRET"
            scopes = []
            expires = "tomorrow"
            [[tokens]]
            token = "SECRET-SECRET-SECRET"
            scopes = ["read"]
        "#;
        expect![[r#"
            tokens[0].token: expected 16 or more visible ASCII characters
            tokens[0].scopes: expected some of read, tokens, write, report
            tokens[1].scopes: expected some of read, tokens, write, report
            tokens[1].expires: expected a time such as "2027-01-31T00:00:00Z"
            tokens[2].token: is there twice
        "#]]
        .assert_eq(&problems(text));
        for text in ["[[tokens]]\ntoken = 12345", "[[tokens]]\nSECRET = 1", "SECRET", ""] {
            assert!(!problems(text).contains("SECRET"), "{text}");
            assert!(!problems(text).contains("12345"), "{text}");
        }
        expect![[r#"
            line 2: expected [[tokens]] with token, scopes and, if wanted, name, models, expires
        "#]]
        .assert_eq(&problems("[[tokens]]\ntoken = 12345"));
    }
}
