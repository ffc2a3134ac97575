//! The engine, as far as tests need it: real sockets, and whatever goes wrong on demand.

use std::sync::{Arc, Mutex, MutexGuard};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
};

/// What connections share.
struct Shared {
    kept: Mutex<Kept>,
    /// Raised to end every connection.
    cuts: watch::Sender<u64>,
    held: watch::Sender<bool>,
    /// Live connections that are open.
    reader_count: watch::Sender<usize>,
}

#[derive(Default)]
struct Kept {
    journal: Vec<(u64, String)>,
    readers: Vec<mpsc::UnboundedSender<String>>,
}

pub(crate) struct Engine {
    pub(crate) live: u16,
    pub(crate) journal: u16,
    shared: Arc<Shared>,
}

impl Engine {
    pub(crate) async fn start() -> Engine {
        let shared = Arc::new(Shared {
            kept: Mutex::default(),
            cuts: watch::Sender::new(0),
            held: watch::Sender::new(false),
            reader_count: watch::Sender::new(0),
        });
        let (live, journal) = (bind().await, bind().await);
        let ports = (live.local_addr().unwrap().port(), journal.local_addr().unwrap().port());
        tokio::spawn(serve(live, Arc::clone(&shared), send_live));
        tokio::spawn(serve(journal, Arc::clone(&shared), answer));
        Engine { live: ports.0, journal: ports.1, shared }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.shared.kept.lock().unwrap()
    }

    /// Sends a line and keeps it for those who ask.
    pub(crate) fn publish(&self, seq: u64, line: &str) {
        self.kept().journal.push((seq, line.to_owned()));
        self.send(line);
    }

    /// Sends a line and forgets it.
    pub(crate) fn send(&self, line: &str) {
        let line = format!("{line}\n");
        self.kept().readers.retain(|reader| reader.send(line.clone()).is_ok());
    }

    pub(crate) async fn read(&self) {
        self.shared.reader_count.subscribe().wait_for(|count| *count > 0).await.unwrap();
    }

    pub(crate) async fn unread(&self) {
        self.shared.reader_count.subscribe().wait_for(|count| *count == 0).await.unwrap();
    }

    pub(crate) fn is_read(&self) -> bool {
        *self.shared.reader_count.borrow() > 0
    }

    /// Ends every connection; returns when nobody is sent anything any more.
    pub(crate) async fn cut(&self) {
        self.kept().readers.clear();
        let before = *self.shared.reader_count.borrow();
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
        // A new reader may be there before the old one is seen to have gone.
        let gone = |count: &usize| *count < before || before == 0;
        self.shared.reader_count.subscribe().wait_for(gone).await.unwrap();
    }

    pub(crate) fn forget_journal(&self) {
        self.kept().journal.clear();
    }

    pub(crate) fn hold_answers(&self, held: bool) {
        self.shared.held.send_replace(held);
    }
}

async fn bind() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

async fn serve<F: Future<Output = ()> + Send + 'static>(
    listener: TcpListener,
    shared: Arc<Shared>,
    connection: fn(TcpStream, Arc<Shared>) -> F,
) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        let mut cuts = shared.cuts.subscribe();
        tokio::spawn(async move {
            tokio::select! {
                () = connection(stream, shared) => (),
                _ = cuts.changed() => (),
            }
        });
    }
}

/// Counts a live connection as long as it is there.
struct Counted(Arc<Shared>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.reader_count.send_modify(|count| *count -= 1);
    }
}

async fn send_live(stream: TcpStream, shared: Arc<Shared>) {
    let (queue, mut lines) = mpsc::unbounded_channel();
    shared.kept.lock().unwrap().readers.push(queue);
    shared.reader_count.send_modify(|count| *count += 1);
    let _counted = Counted(shared);
    let (mut from, mut to) = stream.into_split();
    let mut byte = [0];
    loop {
        tokio::select! {
            line = lines.recv() => match line {
                Some(line) => if to.write_all(line.as_bytes()).await.is_err() { return },
                None => return,
            },
            // A reader sends nothing: whatever comes of it is its end.
            _ = from.read(&mut byte) => return,
        }
    }
}

async fn answer(stream: TcpStream, shared: Arc<Shared>) {
    let mut stream = BufReader::new(stream);
    let mut start = String::new();
    if stream.read_line(&mut start).await.is_err() {
        return;
    }
    let Ok(start) = start.trim().parse::<u64>() else { return };
    shared.held.subscribe().wait_for(|held| !held).await.unwrap();
    let journal = shared.kept.lock().unwrap().journal.clone();
    for (_, line) in journal.into_iter().filter(|(seq, _)| *seq >= start) {
        if stream.write_all(format!("{line}\n").as_bytes()).await.is_err() {
            return;
        }
    }
    // Whoever asked may have gone.
    drop(stream.write_all(b"end\n").await);
}
