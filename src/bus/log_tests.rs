//! What a writer does while its bus takes nothing.

use async_trait::async_trait;
use futures::FutureExt;
use kvbridge_schemas::{
    Digest, Engine, EngineKind, Epoch, HashInfo, HashScheme, Replica, ReplicaKey,
};

use super::*;
use crate::{
    bus::{Full, Receipt},
    shared_log::{Name, Named},
};

/// Takes nothing, and always says that it soon will.
struct NoRoom;

#[async_trait]
impl Writer for NoRoom {
    fn wanted(&self) -> bool {
        true
    }

    fn publish(&mut self, _message: &Outgoing) -> Result<Receipt, Full> {
        Err(Full)
    }

    async fn room(&mut self) {}
}

fn replica() -> Replica {
    Replica { model: "m".into(), instance: "h:1".into(), rank: 0 }
}

fn batch(epoch: u64, seq: u64) -> Arc<Envelope> {
    Arc::new(Envelope {
        replica: replica(),
        epoch: Epoch(epoch),
        incarnation: None,
        seq: Seq(seq),
        span: 1,
        digest: Digest([1; 16]),
        trust: Trust::Exact,
        ts: 0,
        engine: Engine { kind: EngineKind::Vllm, format: "f".into() },
        hash: HashInfo { scheme: HashScheme::Unknown, block_size: 0 },
        events: Vec::new(),
    })
}

/// Takes everything, and notes whether more is said to come.
struct Noting(Arc<LogLife>, Arc<std::sync::Mutex<Vec<bool>>>);

#[async_trait]
impl Writer for Noting {
    fn wanted(&self) -> bool {
        true
    }

    fn publish(&mut self, _message: &Outgoing) -> Result<Receipt, Full> {
        self.1.lock().unwrap().push(self.0.waits());
        Ok(Receipt::new().1)
    }

    async fn room(&mut self) {}
}

fn log(life: Arc<LogLife>) -> LogWriter {
    log_to(Box::new(NoRoom), life)
}

fn log_to(writer: Box<dyn Writer>, life: Arc<LogLife>) -> LogWriter {
    let bridge: Arc<str> = Arc::from("b");
    let key: ReplicaKey = replica().key();
    let lane = Lane::new(replica(), EngineKind::Vllm, Arc::clone(&bridge));
    let metrics = BusLogMetrics::register(&key);
    LogWriter::new(lane, writer, SpoolFull::Resync, metrics, bridge).with_life(life)
}

fn named(life: &LogLife, local: u64) {
    let log = Cursor { epoch: Epoch(9), next_seq: Seq(0) };
    let local = Epoch(local);
    life.own(Epoch(0), 0);
    life.call(local, Name::Named(Named { local, log, missing: Vec::new() }));
}

/// Behind, in a life that was named, at batch 0 of the next one.
fn behind() -> LogWriter {
    let life = Arc::new(LogLife::new(replica(), String::new(), Cursor::default()));
    let mut log = log(Arc::clone(&life));
    log.applied(batch(7, 0));
    named(&life, 7);
    log.applied(batch(7, 1));
    assert!(log.author.is_behind());
    log.applied(batch(8, 0));
    log
}

fn at(epoch: u64) -> Cursor {
    Cursor { epoch: Epoch(epoch), next_seq: Seq(0) }
}

#[tokio::test]
async fn a_life_without_a_name_does_not_keep_its_source_from_being_read() {
    let mut log = behind();
    // News of the name that went before is heard once.
    let heard = log.room(at(8), Trust::LowerBound, "joined_late").now_or_never();
    assert_eq!(heard, Some(Offered::Taken));
    assert!(!log.can_write(at(8), Trust::LowerBound));
    assert_eq!(log.room(at(8), Trust::LowerBound, "joined_late").now_or_never(), None);
}

#[tokio::test]
async fn something_waits_until_all_that_had_no_name_is_handed_over() {
    let life = Arc::new(LogLife::new(replica(), String::new(), Cursor::default()));
    let noted = Arc::default();
    let mut log =
        log_to(Box::new(Noting(Arc::clone(&life), Arc::clone(&noted))), Arc::clone(&life));
    (0..3).for_each(|seq| log.applied(batch(7, seq)));
    assert!(life.waits() && noted.lock().unwrap().is_empty());
    named(&life, 7);
    log.take_name();
    assert_eq!(*noted.lock().unwrap(), [true; 3]);
    assert!(!life.waits());
}
