//! The contract for an engine that is drained over HTTP: what one request took no other one sees.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use kvbridge::{
    config::{FileText, Flags, load},
    pipeline::registry::{self, Drains},
};
use kvbridge_adapters_api::Source;
use kvbridge_adapters_conformance::Harness;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::{Notify, watch},
    task::{JoinHandle, JoinSet},
};

kvbridge_adapters_conformance::suite!(Drained, without a journal);

/// How long an answer waits for an event; the engine's own waits for 2 s.
const WAIT: Duration = Duration::from_millis(50);

/// One process of an engine: what it holds for whoever asks first.
struct Process {
    events: Mutex<Vec<Vec<u8>>>,
    news: Notify,
    held: watch::Sender<bool>,
    /// Requests for events since it can be reached.
    asked: watch::Sender<u64>,
    /// Those that wait for their answer.
    waiting: watch::Sender<u64>,
    /// Connections.
    open: AtomicUsize,
}

impl Process {
    fn start() -> Arc<Process> {
        Arc::new(Process {
            events: Mutex::default(),
            news: Notify::new(),
            held: watch::Sender::new(false),
            asked: watch::Sender::new(0),
            waiting: watch::Sender::new(0),
            open: AtomicUsize::new(0),
        })
    }

    fn push(&self, event: Vec<u8>) {
        self.events.lock().unwrap().push(event);
        self.news.notify_one();
    }

    /// Everything, and nobody gets it again.
    async fn take(&self) -> Vec<u8> {
        self.asked.send_modify(|count| *count += 1);
        self.waiting.send_modify(|count| *count += 1);
        self.held.subscribe().wait_for(|held| !held).await.unwrap();
        if self.events.lock().unwrap().is_empty() {
            drop(tokio::time::timeout(WAIT, self.news.notified()).await);
        }
        self.waiting.send_modify(|count| *count -= 1);
        let events = std::mem::take(&mut *self.events.lock().unwrap());
        [b"[".to_vec(), events.join(&b','), b"]".to_vec()].concat()
    }

    async fn serve(self: Arc<Process>, listener: TcpListener) {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(Arc::clone(&self).converse(stream));
        }
    }

    async fn converse(self: Arc<Process>, stream: TcpStream) {
        let _open = Open::of(&self);
        let mut stream = BufReader::new(stream);
        while let Some(path) = request(&mut stream).await {
            let (status, body) = match path.as_str() {
                "POST /kv_cache_events" => ("200 OK", self.take().await),
                "GET /server_info" => ("200 OK", b"{\"tokens_per_block\": 2}".to_vec()),
                _ => ("404 Not Found", Vec::new()),
            };
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
            if stream.write_all(&[head.into_bytes(), body].concat()).await.is_err() {
                return;
            }
        }
    }
}

/// A connection, while it lasts.
struct Open<'a>(&'a Process);

impl Open<'_> {
    fn of(process: &Process) -> Open<'_> {
        process.open.fetch_add(1, Ordering::Relaxed);
        Open(process)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Method and path of the next request; none of them has a body.
async fn request(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut first = None;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => return first,
            line => {
                first.get_or_insert_with(|| line.trim_end_matches(" HTTP/1.1").to_owned());
            }
        }
    }
}

/// An engine, and where it is reached.
struct Drained {
    process: Arc<Process>,
    address: SocketAddr,
    server: JoinHandle<()>,
    hashes: AtomicU64,
}

impl Drained {
    async fn reached(process: &Arc<Process>, address: SocketAddr) -> (SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        (address, tokio::spawn(Arc::clone(process).serve(listener)))
    }

    /// Ends every connection while a request waits: what breaks between two requests costs nobody
    /// anything, and is nothing to be told of. Goes on as that process at the same address.
    async fn go_on_as(&mut self, process: Arc<Process>) {
        self.process.held.send_replace(true);
        self.process.waiting.subscribe().wait_for(|count| *count > 0).await.unwrap();
        self.server.abort();
        let ended = (&mut self.server).await;
        assert!(ended.is_err_and(|error| error.is_cancelled()));
        for of_connections in [&process.asked, &process.waiting] {
            of_connections.send_replace(0);
        }
        process.held.send_replace(false);
        let (_, server) = Drained::reached(&process, self.address).await;
        (self.process, self.server) = (process, server);
    }
}

#[async_trait]
impl Harness for Drained {
    /// An engine of this kind has no journal, whatever is wanted.
    async fn start(_journal: bool) -> Drained {
        let process = Process::start();
        let (address, server) = Drained::reached(&process, ([127, 0, 0, 1], 0).into()).await;
        Drained { process, address, server, hashes: AtomicU64::new(1) }
    }

    async fn open(&mut self, queue: usize) -> Box<dyn Source> {
        let text = format!(
            "[limits]\nsource_queue = {queue}\nreconnect_min = \"5ms\"\nreconnect_max = \"20ms\"\n\
             [[sources]]\nengine = \"trtllm\"\nurl = \"http://{}\"\nmodel = \"m\"\n",
            self.address
        );
        let file = FileText { name: "conformance".to_owned(), text };
        let config = load(Some(&file), &[], Flags::default()).unwrap();
        registry::open(&config.sources[0], &config, (&Drains::default(), None)).unwrap().source
    }

    async fn read(&mut self) {
        self.process.asked.subscribe().wait_for(|count| *count > 0).await.unwrap();
    }

    async fn publish(&mut self, seq: u64) {
        let hash = self.hashes.fetch_add(1, Ordering::Relaxed);
        let token = r#"{"type": "unique_token", "token_id": 1, "token_extra_id": 0}"#;
        let event = format!(
            r#"{{"event_id": {seq}, "window_size": 4096, "layer_group_id": 0, "data": {{
                "type": "stored", "parent_hash": null, "blocks": [{{"type": "stored_block",
                "block_hash": {hash}, "tokens": [{token}, {token}], "cache_level": 0,
                "priority": 35, "mm_keys": [], "cache_salt": null}}]}}}}"#
        );
        self.process.push(event.into_bytes());
    }

    /// In the place of an event of the list, as they are: they may end the whole answer.
    async fn publish_bytes(&mut self, _seq: u64, bytes: &[u8]) {
        self.process.push(bytes.to_vec());
    }

    /// What nobody has taken stays where it is.
    async fn cut(&mut self) {
        let process = Arc::clone(&self.process);
        self.go_on_as(process).await;
    }

    async fn restart(&mut self) {
        self.go_on_as(Process::start()).await;
    }

    async fn hold_answers(&mut self, held: bool) {
        self.process.held.send_replace(held);
    }

    async fn is_read(&mut self) -> bool {
        self.process.open.load(Ordering::Relaxed) > 0
    }
}
