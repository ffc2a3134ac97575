//! The engine's sockets, of libzmq: a PUB, and a ROUTER that answers from a journal.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

/// What ends an answer.
const END: [u8; 8] = [0xff; 8];

pub struct Engine {
    pub live: String,
    pub replay: String,
    publisher: zmq::Socket,
    payloads: Arc<Vec<Vec<u8>>>,
    sent: Arc<AtomicU64>,
    closing: Arc<AtomicBool>,
    journal: Option<thread::JoinHandle<()>>,
}

impl Engine {
    /// `hwm` messages wait for a subscriber (0 = all), `kept` in the journal.
    pub fn bind(payloads: Arc<Vec<Vec<u8>>>, hwm: i32, kept: u64) -> anyhow::Result<Engine> {
        let context = zmq::Context::new();
        let publisher = context.socket(zmq::PUB)?;
        publisher.set_sndhwm(hwm)?;
        publisher.set_linger(0)?;
        publisher.bind("tcp://127.0.0.1:*")?;
        let router = context.socket(zmq::ROUTER)?;
        router.set_linger(0)?;
        // A slow reader is left nothing out, as with the usual bound. A socket that waits for one
        // waits for ever when he leaves, and answers nobody any more.
        router.set_sndhwm(0)?;
        router.bind("tcp://127.0.0.1:*")?;
        let endpoint = |socket: &zmq::Socket| socket.get_last_endpoint().map(Result::ok);
        let [live, replay] = [endpoint(&publisher)?, endpoint(&router)?]
            .map(|endpoint| endpoint.expect("an endpoint is text"));
        let (sent, closing) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let journal = Journal {
            router,
            payloads: Arc::clone(&payloads),
            sent: Arc::clone(&sent),
            kept,
            closing: Arc::clone(&closing),
        };
        let journal = Some(thread::spawn(move || journal.serve()));
        Ok(Engine { live, replay, publisher, payloads, sent, closing, journal })
    }

    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Acquire)
    }

    /// Publishes the next payload.
    pub fn publish(&self) -> anyhow::Result<()> {
        let seq = self.sent();
        let payload = &self.payloads[usize::try_from(seq)?];
        self.publisher.send(&b""[..], zmq::SNDMORE)?;
        self.publisher.send(&seq.to_be_bytes()[..], zmq::SNDMORE)?;
        self.publisher.send(payload.as_slice(), 0)?;
        self.sent.store(seq + 1, Ordering::Release);
        Ok(())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Release);
        if let Some(journal) = self.journal.take() {
            journal.join().ok();
        }
    }
}

struct Journal {
    router: zmq::Socket,
    payloads: Arc<Vec<Vec<u8>>>,
    sent: Arc<AtomicU64>,
    kept: u64,
    closing: Arc<AtomicBool>,
}

impl Journal {
    fn serve(self) {
        while !self.closing.load(Ordering::Acquire) {
            if self.router.poll(zmq::POLLIN, 20).unwrap_or(0) == 0 {
                continue;
            }
            let Ok(request) = self.router.recv_multipart(0) else { continue };
            let [peer, _, start] = request.as_slice() else { continue };
            let Ok(start) = start.as_slice().try_into().map(u64::from_be_bytes) else { continue };
            if self.answer(peer, start).is_err() {
                return;
            }
        }
    }

    fn answer(&self, peer: &[u8], start: u64) -> zmq::Result<()> {
        let sent = self.sent.load(Ordering::Acquire);
        for seq in start.max(sent.saturating_sub(self.kept))..sent {
            let payload = &self.payloads[usize::try_from(seq).unwrap_or(usize::MAX)];
            let seq = seq.to_be_bytes();
            self.router.send_multipart([peer, b"", b"", &seq, payload], 0)?;
        }
        self.router.send_multipart([peer, b"", b"", &END, b""], 0)
    }
}
