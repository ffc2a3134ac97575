//! Requests of the indexer's clients without a socket: forms, refusals, who may ask.

use axum::{
    body::{Body, to_bytes},
    http::{Request, StatusCode, header},
};
use expect_test::expect;
use kvbridge_schemas::{
    BlockHash, Epoch, Event, ExtraKey, Place, Removed, Seq, SnapshotHeader, Stored, StoredBlock,
    Tier, Tokens, Trust, content_hash,
};
use tower::ServiceExt;

use crate::{
    config::Limits,
    http::{
        Access, EntryStanding, SourceRequest,
        world_tests::{World, exact, guarded, replica, stored, world},
    },
    pipeline::{Command, ViewCut},
};

async fn send(world: &World, method: &str, path: &str, body: &str) -> (StatusCode, String) {
    sent(world, method, path, (None, body)).await
}

async fn sent(
    world: &World,
    method: &str,
    path: &str,
    (token, body): (Option<&str>, &str),
) -> (StatusCode, String) {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let router = world.api.clone().dynamo_router(None);
    let request = request.body(Body::from(body.to_owned())).unwrap();
    let response = router.oneshot(request).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn a_query_by_tokens_or_by_hashes_says_the_same() {
    let world = exact();
    let (_, by_tokens) =
        send(&world, "POST", "/query", r#"{"model_name":"m","token_ids":[1,2,3,4,9]}"#).await;
    expect![[r#"{"scores":{"592757471749949":{"0":4}},"frequencies":[],"instances":{"592757471749949":{"longest_matched":4,"gpu":4,"dp":{"0":4},"cpu":4,"disk":4}}}"#]]
        .assert_eq(&by_tokens);
    let hashes: Vec<i64> =
        [[1, 2], [3, 4]].iter().map(|it| content_hash(it).cast_signed()).collect();
    let body = format!(r#"{{"model_name":"m","block_hashes":{hashes:?},"colour":"red"}}"#);
    assert_eq!(send(&world, "POST", "/query_by_hash", &body).await, (StatusCode::OK, by_tokens));
    let nothing = r#"{"scores":{},"frequencies":[],"instances":{}}"#;
    for body in [
        r#"{"model_name":"m","token_ids":[7,8]}"#,
        r#"{"model_name":"m","token_ids":[1,2],"lora_name":"a"}"#,
        r#"{"model_name":"m","token_ids":[1,2],"cache_salt":"s"}"#,
        r#"{"model_name":"m","token_ids":[]}"#,
    ] {
        assert_eq!(send(&world, "POST", "/query", body).await.1, nothing, "{body}");
    }
}

#[tokio::test]
async fn what_nobody_vouches_for_is_not_named() {
    let world = world(Trust::None, Limits::default());
    let (status, body) =
        send(&world, "POST", "/query", r#"{"model_name":"m","token_ids":[1,2]}"#).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(body, r#"{"scores":{},"frequencies":[],"instances":{}}"#);
}

#[tokio::test]
async fn refusals_have_the_indexers_status_and_a_reason() {
    let limits = Limits { match_token_count_max: 3, ..Limits::default() };
    let world = world(Trust::Exact, limits);
    for (path, body, refusal) in [
        ("/query", "{", (400, "not_json")),
        ("/query", r#"{"model_name":"m"}"#, (422, "missing_field")),
        ("/query", r#"{"model_name":"m","token_ids":["a"]}"#, (422, "wrong_value")),
        ("/query", r#"{"model_name":"m","token_ids":[-1]}"#, (422, "wrong_value")),
        ("/query", r#"{"model_name":"n","token_ids":[1]}"#, (404, "unknown_model")),
        (
            "/query",
            r#"{"model_name":"m","routing_group":"g","token_ids":[1]}"#,
            (404, "unknown_model"),
        ),
        ("/query", r#"{"model_name":"m","token_ids":[1,2,3,4]}"#, (413, "prompt_too_long")),
        (
            "/query_by_hash",
            r#"{"model_name":"m","block_hashes":[1],"cache_salt":"s"}"#,
            (400, "salt_with_hashes"),
        ),
        ("/query_by_hash", r#"{"model_name":"n","block_hashes":[1]}"#, (404, "unknown_model")),
        ("/register_peer", r#"{"url":"http://h:1"}"#, (501, "peers_not_asked")),
        ("/select", "{}", (404, "not_found")),
        ("/health", "", (405, "method_not_allowed")),
    ] {
        let (status, text) = send(&world, "POST", path, body).await;
        let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
        let (status, reason) = (status.as_u16(), answer["reason"].as_str().unwrap());
        assert_eq!((status, reason), refusal, "{path} {body}");
        assert!(answer["error"].is_string(), "{text}");
    }
    let (status, text) =
        send(&world, "POST", "/query", r#"{"model_name":"n","token_ids":[1]}"#).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(text.contains("no indexer for model=n routing_group=default"), "{text}");
    assert_eq!(send(&world, "GET", "/health", "").await, (StatusCode::OK, String::new()));
    assert_eq!(send(&world, "GET", "/peers", "").await.1, "[]");
}

#[tokio::test]
async fn a_token_is_asked_where_the_api_asks_for_one() {
    let access = Access::of(
        r#"
        [[tokens]]
        token = "read-read-read-read"
        scopes = ["read"]
        models = ["m"]
        [[tokens]]
        token = "other-other-other-other"
        scopes = ["read", "write"]
        models = ["n"]
        "#,
    );
    let world = guarded(Trust::Exact, Limits::default(), access);
    let ask = r#"{"model_name":"m","token_ids":[1,2]}"#;
    let register = r#"{"model_name":"m","instance_id":7,"endpoint":"tcp://h:1","block_size":2}"#;
    for (token, path, body, status) in [
        (None, "/query", ask, 401),
        (Some("read-read-read-read"), "/query", ask, 200),
        (Some("other-other-other-other"), "/query", ask, 404),
        (Some("read-read-read-read"), "/register", register, 403),
        (Some("other-other-other-other"), "/register", register, 403),
        (None, "/unregister", "{}", 401),
    ] {
        let answer = sent(&world, "POST", path, (token, body)).await;
        assert_eq!(answer.0.as_u16(), status, "{path} {}", answer.1);
    }
    assert_eq!(send(&world, "GET", "/dump", "").await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(send(&world, "GET", "/health", "").await.0, StatusCode::OK);
}

#[tokio::test]
async fn workers_are_the_replicas_that_are_read() {
    let world = exact();
    let mut requests = world.api.source_requests().unwrap();
    let entries = vec![EntryStanding {
        name: "a".to_owned(),
        origin: crate::config::EntryOrigin::Http,
        place: "tcp://h:5557".to_owned(),
        refusal: None,
        replicas: vec![replica()],
        engines: Vec::new(),
    }];
    tokio::spawn(async move {
        while let Some(SourceRequest::List(answer)) = requests.recv().await {
            answer.send(entries.clone()).unwrap();
        }
    });
    let (_, body) = send(&world, "GET", "/workers", "").await;
    expect![[r#"[{"instance_id":592757471749949,"source":"zmq","status":"active","model_name":"m","routing_group":"default","block_size":2,"endpoints":{"0":"tcp://h:5557"},"listeners":{"0":{"endpoint":"tcp://h:5557","status":"active"}},"instance":"h:8000"}]"#]]
        .assert_eq(&body);
    for filter in ["model_name=n", "routing_group=g", "model_name=m&routing_group=g"] {
        assert_eq!(send(&world, "GET", &format!("/workers?{filter}"), "").await.1, "[]");
    }
    assert_eq!(send(&world, "GET", "/workers?model_name=m", "").await.1, body);
    for (path, body, refusal) in [
        (
            "/register",
            r#"{"model_name":"m","instance_id":8,"endpoint":"tcp://h:1","block_size":16}"#,
            (409, "block_size_mismatch"),
        ),
        (
            "/register",
            r#"{"model_name":"m","instance_id":592757471749949,"endpoint":"tcp://h:1","block_size":2}"#,
            (409, "already_registered"),
        ),
        (
            "/register",
            r#"{"model_name":"n","instance_id":592757471749949,"endpoint":"tcp://h:1","block_size":2}"#,
            (409, "other_model"),
        ),
        (
            "/register",
            r#"{"model_name":"m","instance_id":8,"endpoint":"tcp://h:1","block_size":2,"routing_group":"g"}"#,
            (400, "routing_group"),
        ),
        ("/unregister", r#"{"model_name":"m","instance_id":8}"#, (404, "unknown_instance")),
    ] {
        let (status, text) = send(&world, "POST", path, body).await;
        let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
        let reason = answer["reason"].as_str().unwrap();
        assert_eq!((status.as_u16(), reason), refusal, "{path} {body}");
    }
}

#[tokio::test]
async fn a_dump_tells_every_block_behind_the_one_before_it() {
    let World { api, mut commands, view, .. } = exact();
    let router = api.dynamo_router(None);
    let request = Request::builder().uri("/dump").body(Body::empty()).unwrap();
    let asked = tokio::spawn(router.oneshot(request));
    let Some(Command::Snapshot(answer)) = commands.recv().await else { panic!("not asked") };
    assert!(answer.send(ViewCut { header: header(), view }).is_ok());
    let body = to_bytes(asked.await.unwrap().unwrap().into_body(), usize::MAX).await.unwrap();
    let dump: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let events = dump["m:default"]["events"].as_array().unwrap();
    let stored = |at: usize| &events[at]["event"]["data"]["stored"];
    assert_eq!((events.len(), dump["m:default"]["block_size"].as_u64()), (2, Some(2)));
    assert_eq!(stored(0)["blocks"][0]["block_hash"], 0xa);
    assert_eq!(stored(0)["blocks"][0]["tokens_hash"], content_hash(&[1, 2]));
    assert_eq!((&stored(0)["parent_hash"], &stored(1)["parent_hash"]), (&().into(), &0xa.into()));
}

/// The blocks that a dump of the world's view has after these events.
async fn dumped_after(events: &[Event]) -> Vec<u64> {
    let World { api, mut commands, mut view, .. } = exact();
    view.apply(events, &mut Vec::new(), &mut Vec::new());
    let request = Request::builder().uri("/dump").body(Body::empty()).unwrap();
    let asked = tokio::spawn(api.dynamo_router(None).oneshot(request));
    let Some(Command::Snapshot(answer)) = commands.recv().await else { panic!("not asked") };
    assert!(answer.send(ViewCut { header: header(), view }).is_ok());
    let body = to_bytes(asked.await.unwrap().unwrap().into_body(), usize::MAX).await.unwrap();
    let dump: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let events = dump["m:default"]["events"].as_array().unwrap();
    let hash = |event: &serde_json::Value| {
        event["event"]["data"]["stored"]["blocks"][0]["block_hash"].as_u64().unwrap()
    };
    events.iter().map(hash).collect()
}

#[tokio::test]
async fn a_dump_has_nothing_that_the_indexer_would_know_by_another_hash_and_nothing_behind_it() {
    let Event::Stored(plain) = stored() else { panic!("a store") };
    let block = |hash: u64, tokens: &[u32]| StoredBlock {
        hash: BlockHash::from_u64(hash),
        content: Some(content_hash(tokens)),
    };
    let other = Stored { blocks: vec![block(0xc, &[5, 6]), block(0xd, &[7, 8])], ..plain };
    let tokens = Tokens(vec![5, 6, 7, 8]);
    let other = Stored { tokens, ..other };
    let of = |change: fn(&mut Stored)| {
        let mut stored = other.clone();
        change(&mut stored);
        Event::Stored(stored)
    };
    let both = [0xa, 0xb];
    for event in [
        of(|it| it.lora = Some("adapter".to_owned())),
        of(|it| it.salt = Some("salt".to_owned())),
        of(|it| it.extra = vec![vec![ExtraKey::Item { id: "image".to_owned(), offset: 0 }]]),
        // Nobody is told when it goes.
        of(|it| it.place = Place::of(Tier::Disk)),
    ] {
        assert_eq!(dumped_after(&[event]).await, both);
    }
    assert_eq!(dumped_after(&[of(|_| ())]).await, [0xa, 0xb, 0xc, 0xd]);
    // What comes after a block that is gone has no place there.
    let gone = Event::Removed(Removed {
        hashes: vec![BlockHash::from_u64(0xa)],
        place: Place::of(Tier::Device),
    });
    assert_eq!(dumped_after(&[gone]).await, [0_u64; 0]);
}

fn header() -> SnapshotHeader {
    SnapshotHeader {
        replica: replica(),
        epoch: Epoch(9),
        resume_seq: Seq(4),
        bus_seq: None,
        last_digest: None,
        trust: Trust::Exact,
        block_count: 2,
        state: None,
    }
}
