//! Who we are to a real server, in every way it can be told, and what is said when it is wrong.

use std::path::PathBuf;

use kvbridge::{
    bus::{BusState, Standing},
    config::{NatsAuth, NatsConfig, NatsTls, Secret},
};
use nkeys::KeyPair;
use serde_json::{Value, json};

use crate::{
    nats_bus::{World, config},
    nats_server::Server,
    security::Files,
};

fn server(name: &str, more: &str) -> Server {
    let mut server = Server::prepared(name, more);
    server.start();
    server
}

/// How the bus stands after it was tried with this configuration.
async fn stands(config: &NatsConfig, state: BusState) -> Standing {
    let world = World::start(config);
    let standing = world.until(state).await;
    world.end().await;
    standing
}

fn with(server: &Server, auth: NatsAuth) -> NatsConfig {
    NatsConfig { auth, ..config(server) }
}

#[tokio::test]
async fn a_token_opens_and_another_one_does_not() {
    let server = server("auth-token", "authorization { token: right-token }");
    let token = |text: &str| with(&server, NatsAuth::Token(Secret::new(text)));
    stands(&token("right-token"), BusState::Ready).await;
    let refused = stands(&token("wrong-token"), BusState::CredentialsRefused).await;
    assert!(!refused.detail.contains("wrong-token"), "{refused:?}");
    stands(&config(&server), BusState::CredentialsRefused).await;
}

#[tokio::test]
async fn an_nkey_opens_and_another_one_does_not() {
    let (known, other) = (KeyPair::new_user(), KeyPair::new_user());
    let users = format!("authorization {{ users: [ {{ nkey: {} }} ] }}", known.public_key());
    let server = server("auth-nkey", &users);
    let nkey = |pair: &KeyPair| NatsAuth::Nkey(Secret::new(pair.seed().unwrap()));
    stands(&with(&server, nkey(&known)), BusState::Ready).await;
    stands(&with(&server, nkey(&other)), BusState::CredentialsRefused).await;
    let no_seed = with(&server, NatsAuth::Nkey(Secret::new("no seed")));
    let refused = stands(&no_seed, BusState::CredentialsRefused).await;
    assert!(!refused.detail.contains("no seed"), "{refused:?}");
}

/// As `nsc` makes them: an operator signs an account, the account a user.
#[tokio::test]
async fn credentials_of_an_account_open_and_those_of_another_do_not() {
    let (operator, account, stranger) =
        (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account());
    let limits = json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true,
        "conn": -1, "leaf": -1, "mem_storage": -1, "disk_storage": -1, "streams": -1,
        "consumer": -1
    });
    let of_operator = token(&operator, &operator, "operator", json!({}));
    let of_account = token(&operator, &account, "account", json!({"limits": limits}));
    let system = KeyPair::new_account();
    let of_system = token(&operator, &system, "account", json!({"limits": {"conn": -1}}));
    let (name, system) = (account.public_key(), system.public_key());
    let more = format!(
        "operator: {of_operator}\nsystem_account: {system}\nresolver: MEMORY\n\
         resolver_preload {{\n {name}: {of_account}\n {system}: {of_system}\n}}"
    );
    let server = server("auth-creds", &more);
    for (signer, state) in [(&account, BusState::Ready), (&stranger, BusState::CredentialsRefused)]
    {
        let user = KeyPair::new_user();
        let nats = json!({"subs": -1, "data": -1, "payload": -1});
        let path = server.dir().join(format!("{state}.creds"));
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
            token(signer, &user, "user", nats),
            user.seed().unwrap()
        );
        std::fs::write(&path, text).unwrap();
        stands(&with(&server, NatsAuth::Creds(path)), state).await;
    }
    let absent = with(&server, NatsAuth::Creds("/nonexistent/b.creds".into()));
    let refused = stands(&absent, BusState::CredentialsRefused).await;
    assert!(refused.detail.starts_with("credentials /nonexistent/b.creds"), "{refused:?}");
}

/// What one key says of another, signed.
fn token(signer: &KeyPair, subject: &KeyPair, kind: &str, mut nats: Value) -> String {
    nats["type"] = json!(kind);
    nats["version"] = json!(2);
    let claims = json!({
        "jti": "J", "iat": 1_700_000_000, "iss": signer.public_key(), "name": kind,
        "sub": subject.public_key(), "nats": nats
    });
    let head = json!({"typ": "JWT", "alg": "ed25519-nkey"});
    let text = format!("{}.{}", base64(head.to_string()), base64(claims.to_string()));
    let signature = signer.sign(text.as_bytes()).unwrap();
    format!("{text}.{}", base64(signature))
}

/// For addresses, without padding.
fn base64(bytes: impl AsRef<[u8]>) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for three in bytes.as_ref().chunks(3) {
        let bits = three.iter().fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte));
        let bits = bits << (8 * (3 - three.len()));
        for digit in 0..=three.len() {
            text.push(char::from(DIGITS[bits >> (18 - 6 * digit) & 63]));
        }
    }
    text
}

#[tokio::test]
async fn tls_with_an_authority_and_a_certificate_of_our_own() {
    let files = Files::make("auth-tls");
    let path = |name: &str| PathBuf::from(files.path(name));
    // The server believes `other`, which signed the client's certificate.
    let more = format!(
        "tls {{ cert_file: \"{}\", key_file: \"{}\", ca_file: \"{}\", verify: true }}",
        files.path("cert.pem"),
        files.path("key.pem"),
        files.path("other.pem")
    );
    let server = server("auth-tls", &more);
    let good = NatsTls {
        required: true,
        ca: Some(path("ca.pem")),
        client: Some((path("client.pem"), path("client.key"))),
    };
    let tls = |tls: NatsTls| NatsConfig { tls, ..config(&server) };
    stands(&tls(good.clone()), BusState::Ready).await;
    let other = NatsTls { ca: Some(path("other.pem")), ..good.clone() };
    let refused = stands(&tls(other), BusState::TlsRefused).await;
    assert!(refused.detail.contains("TLS with the server failed"), "{refused:?}");
    let nobody = NatsTls { client: None, ..good.clone() };
    stands(&tls(nobody), BusState::TlsRefused).await;
}

/// The server cannot keep as much as a stream may hold.
#[tokio::test]
async fn a_server_without_room_is_named_and_tried_again() {
    let mut server = Server::prepared("auth-room", "");
    let small = server.dir().join("small");
    let more = |room: &str| {
        let store = small.display();
        format!("no_jetstream\njetstream {{ store_dir: \"{store}\", max_file_store: {room} }}")
    };
    server.set_more(&more("64MB"));
    server.start();
    let world = World::start(&config(&server));
    let standing = world.until(BusState::NoStream).await;
    assert!(standing.detail.contains("insufficient storage"), "{standing:?}");
    server.kill();
    server.set_more(&more("16GB"));
    server.start();
    world.until(BusState::Ready).await;
    world.end().await;
}
