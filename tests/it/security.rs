//! TLS and tokens of the running program, asked by `tail`: what works, and how each refusal is
//! named.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::program::{Running, kvbridge, one_life};

const READ: &str = "read-read-read-read";
const TOKENS: &str = "tokens-tokens-tokens";

/// A folder with an authority, a server's certificate, another authority, and tokens.
pub(crate) struct Files(PathBuf);

impl Files {
    pub(crate) fn make(name: &str) -> Files {
        let files = Files(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name));
        std::fs::create_dir_all(&files.0).unwrap();
        let (ca, issuer) = authority();
        files.write("ca.pem", &ca);
        let (other, other_issuer) = authority();
        files.write("other.pem", &other);
        let client_key = KeyPair::generate().unwrap();
        let client = CertificateParams::new(vec!["client".to_owned()]).unwrap();
        let client = client.signed_by(&client_key, &other_issuer).unwrap();
        files.write("client.pem", &client.pem());
        files.write("client.key", &client_key.serialize_pem());
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]);
        let cert = params.unwrap().signed_by(&key, &issuer).unwrap();
        files.write("cert.pem", &cert.pem());
        files.write("key.pem", &key.serialize_pem());
        let tokens = format!(
            "[[tokens]]\ntoken = \"{READ}\"\nscopes = [\"read\"]\n\
             [[tokens]]\ntoken = \"{TOKENS}\"\nscopes = [\"read\", \"tokens\"]\n\
             [[tokens]]\ntoken = \"expired-expired-expired\"\nscopes = [\"read\"]\n\
             expires = \"2020-01-01T00:00:00Z\"\n"
        );
        files.write("tokens.toml", &tokens);
        files.write("read.token", &format!("{READ}\n"));
        files.write("tokens.token", TOKENS);
        files.write("expired.token", "expired-expired-expired");
        files.write("unknown.token", "unknown-unknown-unknown");
        files
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn config(&self, http: &str) -> String {
        self.write("kvbridge.toml", &format!("[http]\n{http}"));
        self.path("kvbridge.toml")
    }

    fn tls(&self, more: &str) -> String {
        self.config(&format!(
            "tokens_file = {:?}\n[http.tls]\ncert = {:?}\nkey = {:?}\n{more}",
            self.path("tokens.toml"),
            self.path("cert.pem"),
            self.path("key.pem")
        ))
    }
}

fn authority() -> (String, Issuer<'static, KeyPair>) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // Another name than the certificates that it signs: some take those for signed by themselves.
    params.distinguished_name.push(rcgen::DnType::CommonName, "an authority");
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    (pem, Issuer::new(params, key))
}

/// Exit code, output and messages of a command that ends by itself.
fn end(command: &mut Command) -> (i32, String, String) {
    let child: Child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn run(config: &str, recording: &str) -> (Running, String) {
    let mut run = kvbridge();
    run.args(["run", "--config", config, "--listen", "127.0.0.1:0", "--rate", "20", "--play"]);
    let mut run = Running::start(run.arg(one_life(recording)));
    let url = run.line().split_once(" on ").unwrap().1.to_owned();
    (run, url)
}

#[test]
fn tail_over_tls_with_tokens_and_every_refusal_is_named() {
    let files = Files::make("tls");
    let (run, url) = run(&files.tls(""), "tls.jsonl");
    assert!(url.starts_with("https://"), "{url}");
    let tail = |ca: &str, token: Option<&str>, more: &[&str]| {
        let mut tail = kvbridge();
        tail.args(["tail", "--count", "1", "--url", &url, "--ca", &files.path(ca)]).args(more);
        if let Some(token) = token {
            tail.args(["--token-file", &files.path(token)]);
        }
        end(&mut tail)
    };
    let (code, out, err) = tail("ca.pem", Some("read.token"), &[]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("\"tokens\":{\"count\":"), "{out}");
    let (code, out, err) = tail("ca.pem", Some("tokens.token"), &["--tokens"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("\"tokens\":["), "{out}");
    for (ca, token, more, wanted) in [
        ("other.pem", Some("read.token"), &[][..], "certificate"),
        ("ca.pem", None, &[], "401 token_missing"),
        ("ca.pem", Some("expired.token"), &[], "401 token_expired"),
        ("ca.pem", Some("unknown.token"), &[], "401 token_unknown"),
        ("ca.pem", Some("read.token"), &["--tokens"], "403 scope_missing"),
    ] {
        let (code, out, err) = tail(ca, token, more);
        assert_eq!((code, out.as_str()), (1, ""), "{wanted}: {err}");
        assert!(err.contains(wanted), "{wanted}: {err}");
        assert!(!err.contains(READ) && !err.contains("expired-expired"), "{err}");
    }
    let plain = url.replace("https://", "http://");
    let (code, ..) = end(kvbridge().args(["tail", "--count", "1", "--url", &plain]));
    assert_eq!(code, 1, "no answer in clear");
    assert_eq!(run.end(Some("-TERM")).0, 0);
}

#[test]
fn a_client_ca_lets_in_who_shows_a_certificate_of_it() {
    let files = Files::make("mutual");
    let more = format!("client_ca = {:?}\n", files.path("other.pem"));
    let (run, url) = run(&files.tls(&more), "mutual.jsonl");
    let (ca, ready) = (files.path("ca.pem"), format!("{url}/readyz"));
    let token = files.path("read.token");
    let tail = ["tail", "--count", "1", "--token-file", &token, "--url", &url, "--ca", &ca];
    let health = ["health", "--url", &ready, "--ca", &ca];
    let ask = |command: &[&str], identity: Option<(&str, &str)>| {
        let mut program = kvbridge();
        program.args(command);
        if let Some((cert, key)) = identity {
            program.args(["--cert", &files.path(cert), "--key", &files.path(key)]);
        }
        end(&mut program)
    };
    for command in [&tail[..], &health[..]] {
        let (code, _, err) = ask(command, None);
        assert_eq!(code, 1, "{err}");
        assert!(err.contains("a certificate of ours: --cert and --key"), "{err}");
        let (code, out, err) = ask(command, Some(("client.pem", "client.key")));
        assert_eq!(code, 0, "{err}");
        assert!(out.contains("trust"), "{out}");
        // Of another authority, and a key that is none.
        assert_eq!(ask(command, Some(("cert.pem", "key.pem"))).0, 1);
        let (code, _, err) = ask(command, Some(("client.pem", "read.token")));
        assert_eq!(code, 2, "{err}");
        assert!(err.contains("client.pem: expected a certificate"), "{err}");
    }
    assert_eq!(run.end(Some("-TERM")).0, 0);
}

#[test]
fn a_reload_reads_tokens_and_certificates_again() {
    let files = Files::make("reread");
    let (run, url) = run(&files.tls(""), "reread.jsonl");
    let tail = |ca: &str, token: &str| {
        let mut tail = kvbridge();
        tail.args(["tail", "--url", &url, "--ca", &files.path(ca)]);
        tail.args(["--token-file", &files.path(token)]);
        tail
    };
    let mut open = Running::start(&mut tail("ca.pem", "read.token"));
    assert!(open.line().contains("trust"));

    // One that cannot be used changes nothing.
    let good = std::fs::read_to_string(files.path("tokens.toml")).unwrap();
    files.write("tokens.toml", "[[tokens]]");
    run.signal("-HUP");
    assert_eq!(end(tail("ca.pem", "read.token").args(["--count", "1"])).0, 0);

    files.write("tokens.toml", &good.replace(READ, "renewed-renewed-renewed"));
    files.write("renewed.token", "renewed-renewed-renewed");
    let (ca, issuer) = authority();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    files.write("renewed.pem", &ca);
    files.write("cert.pem", &params.signed_by(&key, &issuer).unwrap().pem());
    files.write("key.pem", &key.serialize_pem());
    run.signal("-HUP");
    // The stream of a token that is gone ends, and only when all was taken over.
    assert_eq!(open.end(None).0, 1);
    let (code, _, err) = end(tail("ca.pem", "renewed.token").args(["--count", "1"]));
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("ertificate"), "{err}");
    let (code, _, err) = end(tail("renewed.pem", "read.token").args(["--count", "1"]));
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("token_unknown"), "{err}");
    let (code, _, err) = end(tail("renewed.pem", "renewed.token").args(["--count", "1"]));
    assert_eq!(code, 0, "{err}");
    assert_eq!(run.end(Some("-TERM")).0, 0);
}

#[test]
fn files_that_cannot_guard_are_named_and_exit_2() {
    let files = Files::make("broken");
    files.write("empty.pem", "");
    files.write("bad.toml", "[[tokens]]\ntoken = \"SECRET\"\nscopes = [\"root\"]");
    let config = files.config(&format!(
        "tokens_file = {:?}\n[http.tls]\ncert = {:?}\nkey = \"absent.pem\"\n",
        files.path("bad.toml"),
        files.path("empty.pem")
    ));
    let engine = ["--vllm", "tcp://127.0.0.1:9"];
    let (code, _, err) = end(kvbridge().args(["run", "--config", &config]).args(engine));
    assert_eq!(code, 2, "{err}");
    let (code, out, _) = end(kvbridge().args(["check-config", "--config", &config]));
    assert_eq!(code, 2, "{out}");
    for text in [&err, &out] {
        for wanted in ["tokens[0].token", "tokens[0].scopes", "http.tls.cert", "http.tls.key"] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        assert!(!text.contains("SECRET"), "{text}");
    }
    // Key and certificate of two pairs.
    files.write("key.pem", &KeyPair::generate().unwrap().serialize_pem());
    let (code, out, _) = end(kvbridge().args(["check-config", "--config", &files.tls("")]));
    assert_eq!(code, 2, "{out}");
    assert!(out.contains("http.tls.key"), "{out}");
}
