//! The task that drains an engine, against a server that answers as it is told.

use std::{sync::Arc, time::Duration};

use kvbridge_adapters_api::{Counters, Delivery, Source, SourceEvent};
use kvbridge_adapters_trtllm::{Permit, PollSettings, Poller, RankSource};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

/// No test waits longer for one thing.
const LIMIT: Duration = Duration::from_secs(30);

/// A request that waits for its answer.
struct Asked {
    line: String,
    stream: TcpStream,
}

impl Asked {
    async fn answer(mut self, status: &str, body: &str) {
        let length = body.len();
        self.raw(&format!(
            "HTTP/1.1 {status}\r\nconnection: close\r\n\
             content-length: {length}\r\n\r\n{body}"
        ))
        .await;
    }

    async fn raw(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.expect("a client that waits");
    }
}

/// Requests as they come; those for `/server_info` are answered.
struct Server {
    url: String,
    asked: mpsc::Receiver<Asked>,
}

impl Server {
    async fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let (tx, asked) = mpsc::channel(8);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.expect("a whole head"));
                }
                let head = String::from_utf8(head).expect("text");
                let line = head.lines().next().unwrap_or_default().to_owned();
                let asked = Asked { line, stream };
                if asked.line.contains("/server_info") {
                    asked.answer("200 OK", "{\"tokens_per_block\": 4}").await;
                } else if tx.send(asked).await.is_err() {
                    return;
                }
            }
        });
        Server { url, asked }
    }

    async fn asked(&mut self) -> Asked {
        let asked = tokio::time::timeout(LIMIT, self.asked.recv()).await;
        asked.expect("a request").expect("a server")
    }

    fn poller(&self, rank_count: u32) -> Arc<Poller> {
        let settings = PollSettings {
            url: self.url.clone(),
            client: crate::bridge::http_client(),
            pace: Duration::from_millis(1),
            retry_first: Duration::from_millis(1),
            retry_max: Duration::from_millis(10),
            first_rank: 0,
            rank_count,
            permit: Permit::default(),
        };
        Poller::after(settings, None)
    }
}

fn open(poller: &Arc<Poller>, rank: u32) -> RankSource {
    let mut source = poller.open(rank, 16, Arc::new(Counters::default()));
    source.begin(None);
    source
}

/// What a rank is told next, in a word.
async fn word(source: &mut RankSource) -> String {
    let next = tokio::time::timeout(LIMIT, source.next()).await.expect("something");
    match next.expect("an open source") {
        Delivery::Event(SourceEvent::Attached) => "attached".to_owned(),
        Delivery::Event(SourceEvent::Detached) => "detached".to_owned(),
        Delivery::Event(SourceEvent::Live(batch)) => batch.seq.to_string(),
        other => panic!("not expected: {other:?}"),
    }
}

async fn words(source: &mut RankSource, count: usize) -> Vec<String> {
    let mut words = Vec::new();
    for _ in 0..count {
        words.push(word(source).await);
    }
    words
}

fn event(id: u64, rank: u32) -> String {
    format!(
        "{{\"event_id\":{id},\"layer_group_id\":0,\"attention_dp_rank\":{rank},\
         \"data\":{{\"type\":\"removed\",\"block_hashes\":[1]}}}}"
    )
}

#[tokio::test]
async fn a_server_that_answers_405_is_asked_in_the_other_way() {
    let mut server = Server::start().await;
    let poller = server.poller(1);
    let mut source = open(&poller, 0);
    let asked = server.asked().await;
    assert!(asked.line.starts_with("POST /kv_cache_events "), "{}", asked.line);
    asked.answer("405 Method Not Allowed", "").await;
    for id in 0..2 {
        let asked = server.asked().await;
        assert!(asked.line.starts_with("GET /kv_cache_events "), "{}", asked.line);
        asked.answer("200 OK", &format!("[{}]", event(id, 0))).await;
    }
    assert_eq!(words(&mut source, 3).await, ["attached", "0", "1"]);
}

#[tokio::test]
async fn a_failed_or_unreadable_answer_detaches_every_rank() {
    let mut server = Server::start().await;
    let poller = server.poller(2);
    let mut first = open(&poller, 0);
    let mut second = open(&poller, 1);
    let both = |id| format!("[{},{}]", event(id, 0), event(id, 1));
    server.asked().await.answer("200 OK", &both(0)).await;
    server.asked().await.answer("500 Internal Server Error", "").await;
    server.asked().await.answer("200 OK", &both(1)).await;
    server.asked().await.answer("200 OK", "[{\"event_id\": 2").await;
    server.asked().await.answer("200 OK", &both(2)).await;
    let mut cut = server.asked().await;
    cut.raw("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n[").await;
    drop(cut);
    server.asked().await.answer("200 OK", &both(3)).await;
    let expected = [
        "attached", "0", "detached", "attached", "1", "detached", "attached", "2", "detached",
        "attached",
    ];
    for source in [&mut first, &mut second] {
        assert_eq!(words(source, expected.len()).await, expected);
    }
}

#[tokio::test]
async fn nobody_is_asked_before_every_rank_is_read() {
    let mut server = Server::start().await;
    let poller = server.poller(2);
    let mut first = open(&poller, 0);
    assert!(server.asked.try_recv().is_err());
    let mut second = open(&poller, 1);
    let body = format!("[{},{}]", event(0, 1), event(0, 0));
    server.asked().await.answer("200 OK", &body).await;
    for source in [&mut first, &mut second] {
        assert_eq!(words(source, 2).await, ["attached", "0"]);
    }
}

#[tokio::test]
async fn a_drain_that_is_wound_up_ends_behind_its_last_answer() {
    let mut server = Server::start().await;
    let poller = server.poller(2);
    let mut sources = [open(&poller, 0), open(&poller, 1)];
    let asked = server.asked().await;
    // One rank is enough: what the answer holds is of all.
    assert!(sources[0].wind_up());
    asked.answer("200 OK", &format!("[{},{}]", event(0, 0), event(0, 1))).await;
    for source in &mut sources {
        assert_eq!(words(source, 2).await, ["attached", "0"]);
        assert!(tokio::time::timeout(LIMIT, source.next()).await.expect("an end").is_none());
    }
    assert!(server.asked.try_recv().is_err());
    // Whoever reads then begins anew.
    let mut sources = [open(&poller, 0), open(&poller, 1)];
    server.asked().await.answer("200 OK", &format!("[{}]", event(1, 1))).await;
    assert_eq!(words(&mut sources[1], 2).await, ["attached", "1"]);
    // One that was never asked has nothing.
    let mut alone = open(&server.poller(2), 0);
    assert!(alone.wind_up());
    assert!(alone.next().await.is_none());
}

#[tokio::test]
async fn one_request_is_open_at_a_time_and_outlives_its_readers() {
    let mut server = Server::start().await;
    let poller = server.poller(1);
    let source = open(&poller, 0);
    let asked = server.asked().await;
    drop(source);
    // A new reader comes while the request of the old one is open: it gets the answer.
    let mut source = open(&poller, 0);
    assert!(server.asked.try_recv().is_err());
    asked.answer("200 OK", &format!("[{}]", event(0, 0))).await;
    assert_eq!(words(&mut source, 2).await, ["attached", "0"]);
    // Nobody reads any more: the open request is the last one.
    let asked = server.asked().await;
    drop(source);
    asked.answer("200 OK", "[]").await;
    let mut source = open(&poller, 0);
    server.asked().await.answer("200 OK", &format!("[{}]", event(1, 0))).await;
    assert_eq!(words(&mut source, 2).await, ["attached", "1"]);
}
