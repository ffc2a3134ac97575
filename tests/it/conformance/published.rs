//! The contract for engines that publish over ZeroMQ, for each library that reads their sockets.

use async_trait::async_trait;
use bytes::Bytes;
use kvbridge::{
    config::{FileText, Flags, load},
    pipeline::registry::{self, Drains},
};
use kvbridge_adapters_api::Source;
use kvbridge_adapters_conformance::Harness;
use kvbridge_adapters_zmq::{ServeSettings, Server};

/// Engine and library.
const PLAYED: [(&str, &str); 6] = [
    ("vllm", "zeromq"),
    ("sglang", "zeromq"),
    ("vllm", "omq"),
    ("sglang", "omq"),
    ("trtllm", "zeromq"),
    ("trtllm", "omq"),
];

mod vllm_over_zeromq {
    kvbridge_adapters_conformance::suite!(super::Played<0>);
}

mod sglang_over_zeromq {
    kvbridge_adapters_conformance::suite!(super::Played<1>);
}

mod trtllm_over_zeromq {
    kvbridge_adapters_conformance::suite!(super::Played<4>);
}

#[cfg(feature = "omq")]
mod trtllm_over_omq {
    kvbridge_adapters_conformance::suite!(super::Played<5>);
}

#[cfg(feature = "omq")]
mod vllm_over_omq {
    kvbridge_adapters_conformance::suite!(super::Played<2>);
}

#[cfg(feature = "omq")]
mod sglang_over_omq {
    kvbridge_adapters_conformance::suite!(super::Played<3>);
}

/// One of [`PLAYED`].
struct Played<const AT: usize> {
    /// Absent only while another takes its place.
    server: Option<Server>,
    has_journal: bool,
}

/// One store of one block: in the oldest form of two engines, an array of arrays, or as the third
/// has it, by key.
fn payload(engine: &str, seq: u64) -> Bytes {
    if engine == "trtllm" {
        return by_key(seq);
    }
    let mut bytes = vec![0x92, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0, 0x91, 0x96, 0xab];
    bytes.extend(b"BlockStored");
    // Its hash, no parent, two tokens, two tokens a block, no adapter.
    bytes.extend([0x91, 0xcf]);
    bytes.extend((seq + 1).to_be_bytes());
    bytes.extend([0xc0, 0x92, 1, 2, 2, 0xc0]);
    bytes.into()
}

fn by_key(seq: u64) -> Bytes {
    let mut bytes = vec![0x93, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0, 0x91, 0x85];
    let mut pair = |key: &str, value: &[u8]| {
        bytes.push(0xa0 | u8::try_from(key.len()).unwrap());
        bytes.extend(key.as_bytes());
        bytes.extend(value);
    };
    pair("type", b"\xabBlockStored");
    let hash = i64::try_from(seq).unwrap() - 1;
    pair("block_hashes", &[&[0x91, 0xd3], &hash.to_be_bytes()[..]].concat());
    pair("parent_block_hash", &[0xc0]);
    pair("token_ids", &[0x92, 1, 2]);
    pair("block_size", &[2]);
    bytes.push(0);
    bytes.into()
}

impl<const AT: usize> Played<AT> {
    fn server(&self) -> &Server {
        self.server.as_ref().expect("a server")
    }
}

#[async_trait]
impl<const AT: usize> Harness for Played<AT> {
    async fn start(journal: bool) -> Played<AT> {
        let server = Server::bind(ServeSettings::default()).await.unwrap();
        Played { server: Some(server), has_journal: journal }
    }

    async fn open(&mut self, queue: usize) -> Box<dyn Source> {
        let (engine, transport) = PLAYED[AT];
        let (live, replay) = (self.server().live(), self.server().replay());
        let replay =
            if self.has_journal { format!("replay = \"{replay}\"\n") } else { String::new() };
        let text = format!(
            "[limits]\nsource_queue = {queue}\nreconnect_min = \"5ms\"\nreconnect_max = \"20ms\"\n\
             [[sources]]\nengine = \"{engine}\"\ntransport = \"{transport}\"\n\
             endpoint = \"{live}\"\n{replay}"
        );
        let file = FileText { name: "conformance".to_owned(), text };
        let config = load(Some(&file), &[], Flags::default()).unwrap();
        registry::open(&config.sources[0], &config, (&Drains::default(), None)).unwrap().source
    }

    async fn read(&mut self) {
        self.server().wait_subscribers(1).await.unwrap();
    }

    async fn publish(&mut self, seq: u64) {
        self.server().publish(seq, payload(PLAYED[AT].0, seq)).unwrap();
    }

    async fn publish_bytes(&mut self, seq: u64, bytes: &[u8]) {
        self.server().publish(seq, Bytes::copy_from_slice(bytes)).unwrap();
    }

    async fn cut(&mut self) {
        self.restart().await;
    }

    async fn restart(&mut self) {
        let before = self.server.take().expect("a server");
        let (live, replay) = (before.live().to_owned(), before.replay().to_owned());
        before.close().await;
        let settings = ServeSettings { live, replay, ..ServeSettings::default() };
        self.server = Some(Server::bind(settings).await.unwrap());
    }

    async fn hold_answers(&mut self, held: bool) {
        self.server().stall(held);
    }

    async fn is_read(&mut self) -> bool {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let to = |endpoint: &str| {
            let port: u16 = endpoint.rsplit(':').next().unwrap().parse().unwrap();
            format!("0100007F:{port:04X}")
        };
        let remotes = [to(self.server().live()), to(self.server().replay())];
        // Established, as the connecting side has it.
        table.lines().any(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            fields.get(3) == Some(&"01") && remotes.iter().any(|it| fields.get(2) == Some(&&**it))
        })
    }
}
