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

/// An earlier process of this bridge was killed with a hole in its window. The view was restored
/// from behind it, so only the engine's journal still has those batches; what it has not is said.
#[test]
fn what_is_missing_below_the_end_of_the_log_is_asked_for_and_then_said() {
    let lane = Lane::new(replica(), EngineKind::Vllm, Arc::from("b"));
    let limits = UnnamedLimits { batches_max: 9, bytes_max: 1 << 20 };
    let at = Cursor { epoch: Epoch(7), next_seq: Seq(5) };
    let (mut author, mut life) = (Author::new(lane, limits, 100), Naming::new(at, 9));
    life.restore((0..5).map(|seq| (Seq(seq), Digest([1; 16]))));
    author.attached(&mut life, true, false);
    life.own(Epoch(7), 1);
    let missing = vec![Seq(2), Seq(3)];
    assert!(life.call(Epoch(7), Name::Named(Named { local: Epoch(7), log: at, missing })));
    author.take_name(1, &mut life);
    author.applied(2, batch(5, 1), Some(&mut life));
    assert_eq!(author.wish(2, true), Some(Seq(2)));
    author.answered(3, batch(2, 1), &mut life);
    author.give_up(200, &mut life);
    author.applied(201, batch(6, 1), Some(&mut life));
    let made = author.made();
    let covered =
        made.iter().map(|it| (it.envelope.seq.0, it.envelope.span, it.envelope.events.len()));
    assert_eq!(covered.collect::<Vec<_>>(), [(2, 1, 0), (3, 1, 1), (5, 1, 0), (6, 1, 0)]);
}

/// A bridge takes the name of another one's log, and that log ends where its view was long ago.
/// That it believes its view says nothing of that end.
#[test]
fn what_is_believed_is_said_where_the_view_is() {
    let lane = Lane::new(replica(), EngineKind::Vllm, Arc::from("b"));
    let limits = UnnamedLimits { batches_max: 9, bytes_max: 1 << 20 };
    let at = |next_seq| Cursor { epoch: Epoch(7), next_seq: Seq(next_seq) };
    let (mut author, mut life) = (Author::new(lane, limits, 100), Naming::new(at(5), 9));
    life.restore([(Seq(4), Digest([1; 16]))]);
    author.attached(&mut life, true, false);
    life.own(Epoch(7), 1);
    let name = Named { local: Epoch(7), log: at(2), missing: Vec::new() };
    assert!(life.call(Epoch(7), Name::Named(name)));
    let said = |author: &mut Author| {
        let made = author.made().into_iter().map(|it| it.envelope).filter(|it| it.span == 0);
        made.map(|it| (it.seq.0, it.trust)).collect::<Vec<_>>()
    };
    author.settled(2, at(5), (Trust::Exact, "r"), Some(&mut life));
    assert_eq!(said(&mut author), []);
    author.applied(3, batch(5, 1), Some(&mut life));
    author.settled(3, at(6), (Trust::Exact, "r"), Some(&mut life));
    assert_eq!(said(&mut author), [(6, Trust::Exact)]);
    // Less is said at once.
    author.settled(4, at(9), (Trust::LowerBound, "r"), Some(&mut life));
    assert_eq!(said(&mut author), [(6, Trust::LowerBound)]);
}
