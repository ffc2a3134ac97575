//! The contract of every adapter, with this engine.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use kvbridge::{
    adapters::Opening,
    api::{Counters, Source},
    config::Endpoint,
    schemas::Replica,
};
use kvbridge_adapters_conformance::{Harness, suite};

use crate::engine::Engine;

struct Tiny {
    engine: Engine,
    has_journal: bool,
}

#[async_trait]
impl Harness for Tiny {
    async fn start(journal: bool) -> Tiny {
        Tiny { engine: Engine::start().await, has_journal: journal }
    }

    async fn open(&mut self, queue: usize) -> Box<dyn Source> {
        let at = |port| Endpoint { host: "127.0.0.1".to_owned(), port };
        let opening = Opening {
            replica: Replica { model: "m".to_owned(), instance: "i".to_owned(), rank: 0 },
            endpoint: at(self.engine.live),
            url: None,
            replay: self.has_journal.then(|| at(self.engine.journal)),
            options: serde_json::from_str(r#"{"block_size": 2}"#).unwrap(),
            queue_batches: queue,
            frame_bytes_max: 64 * 1024,
            reconnect: (Duration::from_millis(5), Duration::from_millis(20)),
            counters: Arc::new(Counters::default()),
        };
        adapter_minimal::open(opening).unwrap().source
    }

    async fn read(&mut self) {
        self.engine.read().await;
    }

    async fn publish(&mut self, seq: u64) {
        let line = format!(
            r#"{{"seq": {seq}, "stored": [{{"hash": "{:x}", "parent": null, "tokens": [1, 2]}}]}}"#,
            seq + 1
        );
        self.engine.publish(seq, &line);
    }

    async fn publish_bytes(&mut self, _seq: u64, bytes: &[u8]) {
        // A line cannot hold a line break, nor here what is no text.
        self.engine.send(&String::from_utf8_lossy(bytes).replace('\n', " "));
    }

    async fn cut(&mut self) {
        self.engine.cut().await;
    }

    async fn restart(&mut self) {
        self.engine.forget_journal();
        self.engine.cut().await;
    }

    async fn hold_answers(&mut self, held: bool) {
        self.engine.hold_answers(held);
    }

    async fn is_read(&mut self) -> bool {
        self.engine.is_read()
    }
}

suite!(Tiny);
