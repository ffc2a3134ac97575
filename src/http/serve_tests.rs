//! Real sockets with short deadlines: slow heads, slow bodies, slow readers, too many, a stop.

use std::time::Duration;

use axum::routing::get;
use kvbridge_schemas::Trust;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::timeout,
};

use super::{world_tests::guarded, *};

const LONG: Duration = Duration::from_secs(20);

struct Server {
    address: std::net::SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

async fn server(config: HttpConfig) -> Server {
    let api = guarded(Trust::Exact, Limits::default(), Access::Open).api;
    // More than any buffer between us takes.
    let endless = futures::stream::repeat_with(|| Ok::<_, std::io::Error>(vec![b'x'; 65_536]));
    let endless = Mutex::new(Some(Body::from_stream(endless)));
    let body = Arc::new(endless);
    let router = api.router().route(
        "/endless",
        get(move || {
            let body = Arc::clone(&body);
            async move { body.lock().unwrap().take().unwrap() }
        }),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
    let service = Service::new(router, tokio::sync::watch::channel(None).1, config, stop.clone());
    Server { address, stop, task: tokio::spawn(service.serve(listener)) }
}

impl Server {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends, and reads until the other side closes.
    async fn closed_after(&self, text: &str) -> String {
        let mut stream = self.connect().await;
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // A reset is as good an end as a close.
        drop(timeout(LONG, stream.read_to_end(&mut answer)).await.expect("closed in time"));
        String::from_utf8(answer).unwrap()
    }

    async fn alive(&self) -> bool {
        let answer = self
            .closed_after("GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        answer.await.starts_with("HTTP/1.1 200")
    }
}

fn short() -> HttpConfig {
    HttpConfig { header_deadline: Duration::from_millis(200), ..HttpConfig::default() }
}

#[tokio::test]
async fn a_head_that_dribbles_is_cut_off() {
    let server = server(short()).await;
    let mut slow = server.connect().await;
    let dribble = async {
        loop {
            if slow.write_all(b"GET ").await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(LONG, dribble)
        .await
        .expect("each byte in time, the head never whole: closed all the same");
    assert!(server.alive().await);
}

#[tokio::test]
async fn a_body_that_never_comes_is_408_and_a_head_too_large_431() {
    let server = server(HttpConfig::default()).await;
    let head = "POST /v1/match HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n{";
    let answer = server.closed_after(head).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains("body_timeout"), "{answer}");
    let lines = "a: b\r\n".repeat(limits::HTTP_HEADER_COUNT_MAX);
    let answer =
        server.closed_after(&format!("GET / HTTP/1.1\r\nhost: localhost\r\n{lines}\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    let long = "y".repeat(2 * limits::HTTP_HEAD_BYTES_MAX);
    let answer = server.closed_after(&format!("GET / HTTP/1.1\r\nhost: {long}\r\n\r\n")).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    assert!(server.alive().await);
}

#[tokio::test]
async fn connections_beyond_the_bound_are_closed_and_places_come_back() {
    let config = HttpConfig { connection_count_max: 2, ..HttpConfig::default() };
    let server = server(config).await;
    let first = server.connect().await;
    let second = server.connect().await;
    let mut third = server.connect().await;
    let mut nothing = [0; 1];
    let read = timeout(LONG, third.read(&mut nothing)).await.expect("closed at once");
    assert!(matches!(read, Ok(0) | Err(_)));
    drop((first, second));
    let came_back = async {
        while !server.alive().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, came_back).await.expect("the places of those who left are free again");
}

#[tokio::test]
async fn a_reader_that_takes_nothing_is_cut_off() {
    let config = HttpConfig {
        stall_deadline: Duration::from_millis(200),
        connection_count_max: 1,
        ..HttpConfig::default()
    };
    let server = server(config).await;
    let mut stuck = server.connect().await;
    stuck.write_all(b"GET /endless HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let freed = async {
        while !server.alive().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LONG, freed).await.expect("its place is given back although it still holds the socket");
    drop(stuck);
}

#[tokio::test]
async fn ten_thousand_garbage_connections_leave_it_alive() {
    let server = server(HttpConfig { connection_count_max: 64, ..short() }).await;
    for _ in 0..10_000 {
        if let Ok(mut stream) = TcpStream::connect(server.address).await {
            // It may be closed already: that is the point.
            drop(stream.write_all(b"\x16\x03\x01\x00garbage\r\n\r\n").await);
        }
    }
    let again = async {
        while !server.alive().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LONG, again).await.expect("alive");
}

#[tokio::test]
async fn a_stop_ends_idle_connections_and_the_task() {
    let server = server(HttpConfig::default()).await;
    let mut idle = server.connect().await;
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut answer = [0; 12];
    idle.read_exact(&mut answer).await.unwrap();
    server.stop.cancel();
    timeout(LONG, server.task).await.expect("ended").unwrap();
}
