//! What is written is read again, what is too old is gone, and a bad file is no end.

use kvbridge_schemas::{Engine, EngineKind, HashInfo, HashScheme, Replica, Trust};
use proptest::prelude::*;

use super::*;

fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("kvbridge-journal-{}-{name}", std::process::id()));
    drop(std::fs::remove_dir_all(&path));
    path
}

fn key(instance: &str) -> ReplicaKey {
    Replica { model: "m".into(), instance: instance.into(), rank: 0 }.key()
}

/// An envelope whose digest is its seq.
fn message(instance: &str, epoch: u64, seq: u64, span: u32) -> Message {
    let mut digest = [0; 16];
    digest[8..].copy_from_slice(&(seq + 1).to_be_bytes());
    let envelope = Envelope {
        replica: Replica { model: "m".into(), instance: instance.into(), rank: 0 },
        epoch: Epoch(epoch),
        incarnation: None,
        seq: Seq(seq),
        span,
        digest: Digest(digest),
        trust: Trust::Exact,
        ts: 0,
        engine: Engine { kind: EngineKind::Vllm, format: "test".to_owned() },
        hash: HashInfo { scheme: HashScheme::Unknown, block_size: 16 },
        events: Vec::new(),
    };
    let payload = codec::encode_msgpack(&envelope).into();
    Message { key: key(instance), epoch: Epoch(epoch), seq: Seq(seq), span, payload }
}

fn run(instance: &str, epoch: u64, seqs: std::ops::Range<u64>) -> Vec<Message> {
    seqs.map(|seq| message(instance, epoch, seq, 1)).collect()
}

fn put(journal: &Journal, messages: &[Message]) {
    journal.append(messages, &|_| true).unwrap();
}

fn read(journal: &Journal, instance: &str, epoch: u64, first: Seq) -> ReplayAnswer {
    let wanted = Wanted { key: &key(instance), epoch: Epoch(epoch), first, after: 0 };
    journal.read(&wanted).unwrap()
}

fn seqs(answer: &ReplayAnswer) -> Vec<u64> {
    answer.messages.iter().map(|(seq, _)| seq.0).collect()
}

#[test]
fn a_restart_goes_on_with_what_was_written() {
    let dir = folder("restart");
    let journal = Journal::open(&dir, 1 << 20).unwrap();
    assert_eq!(journal.tail(&key("a")).unwrap(), None);
    put(&journal, &run("a", 7, 0..3));
    drop(journal);
    let journal = Journal::open(&dir, 1 << 20).unwrap();
    let (tail, engine) = journal.tail(&key("a")).unwrap().unwrap();
    assert_eq!(engine, EngineKind::Vllm);
    assert_eq!(tail.cursor, Cursor { epoch: Epoch(7), next_seq: Seq(3) });
    let kept: Vec<u64> = tail.digests.iter().map(|(seq, _)| seq.0).collect();
    assert_eq!(kept, [0, 1, 2]);
    put(&journal, &run("a", 7, 3..5));
    let answer = read(&journal, "a", 7, Seq(2));
    assert_eq!((answer.first, answer.next, seqs(&answer)), (Seq(0), Seq(5), vec![2, 3, 4]));
    assert_eq!(answer.messages[0].1, message("a", 7, 2, 1).payload);
}

#[test]
fn one_replica_is_not_another_whose_name_begins_the_same() {
    let journal = Journal::open(&folder("names"), 1 << 20).unwrap();
    put(&journal, &run("a", 7, 0..2));
    put(&journal, &run("ab", 8, 0..3));
    assert_eq!(read(&journal, "a", 0, Seq(0)).next, Seq(2));
    assert_eq!(read(&journal, "ab", 0, Seq(0)).epoch, Epoch(8));
}

#[test]
fn a_lost_start_is_told_by_the_journals_first_seq() {
    let journal = Journal::open(&folder("wrapped"), 4096).unwrap();
    for seq in 0..100 {
        put(&journal, &run("a", 7, seq..seq + 1));
    }
    let answer = read(&journal, "a", 7, Seq(3));
    assert!(answer.first > Seq(60), "{answer:?}");
    assert_eq!((answer.next, seqs(&answer)), (Seq(100), vec![]));
    let kept = read(&journal, "a", 7, answer.first);
    assert_eq!(seqs(&kept), (answer.first.0..100).collect::<Vec<_>>());
}

#[test]
fn a_reader_of_an_ended_life_gets_the_newest_one() {
    let journal = Journal::open(&folder("lives"), 1 << 20).unwrap();
    put(&journal, &run("a", 7, 0..50));
    put(&journal, &run("a", 9, 0..2));
    let answer = read(&journal, "a", 7, Seq(49));
    assert_eq!((answer.epoch, seqs(&answer)), (Epoch(9), vec![0, 1]));
}

#[test]
fn a_reset_answers_for_the_seqs_that_it_covers() {
    let journal = Journal::open(&folder("reset"), 1 << 20).unwrap();
    put(&journal, &[message("a", 7, 0, 40)]);
    put(&journal, &run("a", 7, 40..42));
    assert_eq!(seqs(&read(&journal, "a", 7, Seq(17))), [0, 40, 41]);
    assert_eq!(seqs(&read(&journal, "a", 7, Seq(40))), [40, 41]);
}

#[test]
fn a_long_answer_goes_on_where_it_stopped() {
    let journal = Journal::open(&folder("long"), 1 << 30).unwrap();
    put(&journal, &run("a", 7, 0..3));
    // What covers no seq shares it with what comes next.
    put(&journal, &vec![message("a", 7, 3, 0); 600]);
    put(&journal, &run("a", 7, 3..400));
    let (mut count, mut after, mut first) = (0, 0, Seq(0));
    loop {
        let wanted = Wanted { key: &key("a"), epoch: Epoch(7), first, after };
        let answer = journal.read(&wanted).unwrap();
        count += answer.messages.len();
        after = answer.after;
        if after == 0 {
            assert_eq!(answer.next, Seq(400));
            break;
        }
        first = answer.messages.last().unwrap().0;
    }
    assert_eq!(count, 1000);
}

#[test]
fn an_idle_replica_keeps_its_newest_message() {
    let journal = Journal::open(&folder("idle"), 4096).unwrap();
    put(&journal, &run("idle", 7, 0..3));
    put(&journal, &run("gone", 7, 0..3));
    for seq in 0..200 {
        let group = run("busy", 7, seq..seq + 1);
        journal.append(&group, &|key| !key.contains("gone")).unwrap();
    }
    let idle = read(&journal, "idle", 7, Seq(2));
    assert_eq!((idle.first, idle.next, seqs(&idle)), (Seq(2), Seq(3), vec![2]));
    assert_eq!(read(&journal, "gone", 7, Seq(2)).next, Seq(0));
}

#[test]
fn a_bound_below_one_message_keeps_that_one() {
    let journal = Journal::open(&folder("tiny"), 1).unwrap();
    put(&journal, &run("a", 7, 0..10));
    assert_eq!(seqs(&read(&journal, "a", 7, Seq(9))), [9]);
}

#[test]
fn a_second_process_is_told_so() {
    let dir = folder("lock");
    let _first = Journal::open(&dir, 1 << 20).unwrap();
    assert!(matches!(Journal::open(&dir, 1 << 20), Err(JournalError::InUse { .. })));
}

#[test]
fn a_foreign_file_is_moved_aside() {
    let dir = folder("foreign");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("journal.redb"), b"something else entirely").unwrap();
    let journal = Journal::open(&dir, 1 << 20).unwrap();
    put(&journal, &run("a", 7, 0..2));
    let aside = std::fs::read_dir(&dir).unwrap();
    let aside = aside
        .filter(|entry| entry.as_ref().unwrap().file_name().to_str().unwrap().contains("damaged"));
    assert_eq!(aside.count(), 1);
}

#[test]
fn a_replacement_that_fails_is_tried_again() {
    let dir = folder("replaced");
    let journal = Journal::open(&dir, 1 << 20).unwrap();
    put(&journal, &run("a", 7, 0..2));
    // Nothing can be moved or made in a folder that is gone.
    std::fs::remove_dir_all(&dir).unwrap();
    assert!(journal.start_over(&JournalError::Damaged { what: "a test" }).is_err());
    let group = run("a", 7, 2..4);
    assert!(journal.append(&group, &|_| true).is_err());
    std::fs::create_dir_all(&dir).unwrap();
    put(&journal, &group);
    assert_eq!(seqs(&read(&journal, "a", 7, Seq(2))), [2, 3]);
}

/// A journal of some messages, closed, with these bytes of its file changed.
fn damaged(name: &str, changes: &[(usize, u8)], cut: Option<usize>) -> PathBuf {
    let dir = folder(name);
    let journal = Journal::open(&dir, 1 << 20).unwrap();
    put(&journal, &run("a", 7, 0..200));
    drop(journal);
    let path = dir.join("journal.redb");
    let mut bytes = std::fs::read(&path).unwrap();
    for (at, with) in changes {
        let at = at % bytes.len();
        bytes[at] ^= with;
    }
    if let Some(cut) = cut {
        bytes.truncate(cut % bytes.len());
    }
    std::fs::write(&path, bytes).unwrap();
    dir
}

/// What [`damage_is_named_and_survived`] says, of one damage.
fn survives(name: &str, changes: &[(usize, u8)], cut: Option<usize>) {
    let dir = damaged(name, changes, cut);
    let journal = Journal::open(&dir, 1 << 20).unwrap();
    drop(journal.tail(&key("a")));
    let wanted = Wanted { key: &key("a"), epoch: Epoch(7), first: Seq(0), after: 0 };
    if let Ok(answer) = journal.read(&wanted) {
        for (seq, payload) in answer.messages {
            assert_eq!(payload, message("a", 7, seq.0, 1).payload);
        }
    }
    let group = run("a", 8, 0..2);
    let outcomes: Vec<_> = (0..3).map(|_| journal.append(&group, &|_| true)).collect();
    assert!(outcomes.iter().any(Result::is_ok), "{outcomes:?}");
}

/// The store asserted when it was used, and again when it was closed for that.
#[test]
fn a_store_that_gives_up_twice_is_survived() {
    survives("twice", &[(4_614_468_849_978_990_789, 2)], None);
}

/// The bytes of a message were whole, its seq was not.
#[test]
fn a_message_under_another_seq_is_none() {
    survives("seq", &[(6_147_797_168_671_932_998, 1)], None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever is wrong with the file: no panic, no false message, and after at most one failure
    /// it takes messages again.
    #[test]
    fn damage_is_named_and_survived(
        changes in prop::collection::vec((any::<usize>(), 1..=u8::MAX), 1..40),
        cut in prop::option::of(any::<usize>()),
    ) {
        survives("damage", &changes, cut);
    }
}
