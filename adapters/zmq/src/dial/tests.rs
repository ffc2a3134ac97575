//! Against the library's socket, and readers made of bytes.

use super::*;
use zeromq::{Socket, SocketRecv, SubSocket};

async fn bound(endpoint: &str) -> (SubSocket, String) {
    let mut socket = SubSocket::new();
    let bound = socket.bind(endpoint).await.unwrap().to_string();
    socket.subscribe("kv@").await.unwrap();
    (socket, bound)
}

async fn listens(dial: &mut Dial) -> u64 {
    match dial.events.recv().await.unwrap() {
        DialEvent::Listens { connection, prefix } => {
            assert_eq!(prefix, "kv@");
            connection
        }
        other => panic!("{other:?}"),
    }
}

fn message(word: &'static str) -> Multipart {
    vec![Bytes::from_static(b"kv@h:1@m"), Bytes::from_static(word.as_bytes())]
}

#[tokio::test]
async fn a_reader_that_comes_back_is_known_and_sees_nothing_that_was_for_the_one_before() {
    let (mut socket, endpoint) = bound("tcp://127.0.0.1:0").await;
    let authority = endpoint.strip_prefix("tcp://").unwrap().to_owned();
    let mut dial = Dial::spawn(authority, 8);
    let first = listens(&mut dial).await;
    let send = |dial: &Dial, connection, word| {
        dial.place().unwrap().fill(connection, vec![message(word)]);
    };
    send(&dial, first, "one");
    assert_eq!(socket.recv().await.unwrap().into_vec()[1], "one");
    drop(socket);
    assert_eq!(dial.events.recv().await, Some(DialEvent::Lost));
    send(&dial, first, "late");
    // Its port may take a moment to be free.
    let mut again = SubSocket::new();
    while again.bind(&endpoint).await.is_err() {
        sleep(Duration::from_millis(10)).await;
    }
    again.subscribe("kv@").await.unwrap();
    let second = listens(&mut dial).await;
    assert_eq!(second, first + 1);
    send(&dial, first, "late");
    send(&dial, second, "two");
    dial.finish(second, Vec::new()).await;
    assert_eq!(again.recv().await.unwrap().into_vec()[1], "two");
}

/// A reader made of bytes, that has subscribed to so many topics.
async fn raw(listener: &tokio::net::TcpListener, topics: u8) -> TcpStream {
    let (mut stream, _) = listener.accept().await.unwrap();
    let ready = b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03SUB";
    stream.write_all(&[&wire::greeting()[..], ready].concat()).await.unwrap();
    for topic in 0..topics {
        stream.write_all(&[0, 2, 1, topic]).await.unwrap();
    }
    stream
}

#[tokio::test]
async fn a_reader_that_is_behind_has_bounded_room_and_hears_the_end() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut dial = Dial::spawn(listener.local_addr().unwrap().to_string(), 8);
    let mut stream = raw(&listener, 1).await;
    let event = dial.events.recv().await.unwrap();
    assert!(matches!(event, DialEvent::Listens { connection: 1, .. }), "{event:?}");
    let large = Bytes::from(vec![7; 1024 * 1024]);
    let mut given = 0;
    while let Some(place) = dial.place() {
        place.fill(1, vec![vec![large.clone()]]);
        given += large.len();
        tokio::task::yield_now().await;
    }
    assert!(dial.load.waiting() < PARCELS_BYTES_MAX + 2 * large.len());
    assert!(given >= PARCELS_BYTES_MAX && !dial.is_idle());
    let mut all = Vec::new();
    let reads = stream.read_to_end(&mut all);
    let (read, ()) = tokio::join!(reads, dial.finish(1, vec![message("gone")]));
    assert!(read.unwrap() < given, "what waited is thrown away");
    assert!(all.ends_with(&wire::message(&message("gone"))));
}

#[tokio::test]
async fn a_reader_of_too_many_topics_is_hung_up_on() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut dial = Dial::spawn(listener.local_addr().unwrap().to_string(), 2);
    let _stream = raw(&listener, 3).await;
    for _ in 0..2 {
        let event = dial.events.recv().await.unwrap();
        assert!(matches!(event, DialEvent::Listens { .. }), "{event:?}");
    }
    assert_eq!(dial.events.recv().await, Some(DialEvent::Lost));
}

#[tokio::test]
async fn what_is_no_reader_is_left_alone_and_tried_again() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = listener.local_addr().unwrap().to_string();
    let _dial = Dial::spawn(authority, 8);
    for answer in [
        &b"HTTP/1.1 400 Bad Request\r\n\r\nHTTP/1.1 400 Bad Request\r\n\r\n12345678"[..],
        &[0xff; 80],
    ] {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(answer).await.unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        assert_eq!(all.len(), wire::GREETING_BYTES, "nothing but our greeting");
    }
}
