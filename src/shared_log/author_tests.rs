//! What a writer asks of the engine's journal.

use kvbridge_schemas::{Digest, Engine, EngineKind, HashInfo, HashScheme, Replica};

use super::*;

fn replica() -> Replica {
    Replica { model: "m".into(), instance: "h:1".into(), rank: 0 }
}

fn batch(seq: u64, byte: u8) -> Arc<Envelope> {
    Arc::new(Envelope {
        replica: replica(),
        epoch: Epoch(7),
        incarnation: None,
        seq: Seq(seq),
        span: 1,
        digest: Digest([byte; 16]),
        trust: Trust::Exact,
        ts: 0,
        engine: Engine { kind: EngineKind::Vllm, format: "f".into() },
        hash: HashInfo { scheme: HashScheme::Unknown, block_size: 0 },
        events: Vec::new(),
    })
}

/// Asked for batch 0, to compare this life with the one on record.
fn asking() -> (Author, Naming) {
    let lane = Lane::new(replica(), EngineKind::Vllm, Arc::from("b"));
    let limits = UnnamedLimits { batches_max: 9, bytes_max: 1 << 20 };
    let (mut author, mut life) =
        (Author::new(lane, limits, 100), Naming::new(Cursor::default(), 9));
    author.attached(&mut life, false, false);
    author.applied(1, batch(5, 1), Some(&mut life));
    life.own(Epoch(9), 1);
    assert!(life.call(Epoch(7), Name::Asking(Seq(0))));
    author.take_name(1, &mut life);
    assert_eq!(author.wish(1, true), Some(Seq(0)));
    (author, life)
}

#[test]
fn an_answer_is_compared() {
    let (mut author, mut life) = asking();
    author.answered(2, batch(0, 1), &mut life);
    assert!(life.is_ours(Seq(0), Digest([1; 16])));
    assert_eq!(*life.name(), Name::Undecided);
}

/// Whoever answers on the next connection may be the next life: its batch is no batch of this one.
#[test]
fn a_question_does_not_outlive_its_connection() {
    let (mut author, mut life) = asking();
    author.attached(&mut life, true, false);
    assert_eq!(*life.name(), Name::Undecided, "it is asked anew, of a view that stands");
    author.answered(2, batch(0, 2), &mut life);
    assert!(!life.is_ours(Seq(0), Digest([2; 16])));
    assert_eq!(author.asked_until_ms(), None);
}
