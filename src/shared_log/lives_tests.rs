//! Names of lives, sequence by sequence.

use super::*;

/// A batch's bytes depend on its life and seq.
fn digest(life: u8, seq: u64) -> Digest {
    let mut bytes = [life; 16];
    bytes[..8].copy_from_slice(&seq.to_be_bytes());
    Digest(bytes)
}

fn batches(life: u8, seqs: impl IntoIterator<Item = u64>) -> BTreeMap<Seq, Digest> {
    seqs.into_iter().map(|seq| (Seq(seq), digest(life, seq))).collect()
}

/// A bridge that has read these seqs of a life and still hears it.
fn own(life: u8, seqs: std::ops::Range<u64>) -> Own {
    Own {
        next_seq: Seq(seqs.end),
        digests: batches(life, seqs),
        settled: true,
        heard: Heard::Since,
        ..Own::default()
    }
}

fn named(epoch: u64, life: u8, seqs: impl IntoIterator<Item = u64>) -> Record {
    let life = Life { epoch: Epoch(epoch), anchors: batches(life, seqs), incarnation: None };
    let (content, by) = ("c".to_owned(), "b".to_owned());
    Record { life, published: Seq(0), past: Vec::new(), content, by }
}

fn tail(epoch: u64, life: u8, seqs: std::ops::Range<u64>) -> Tail {
    let next_seq = Seq(seqs.end);
    let life = Life { epoch: Epoch(epoch), anchors: batches(life, seqs), incarnation: None };
    Tail { life, next_seq, missing: Vec::new() }
}

fn question<'a>(record: Option<&'a Record>, tail: Option<&'a Tail>, own: &'a Own) -> Question<'a> {
    Question {
        record,
        tail,
        own,
        content: "c",
        others: false,
        local: Epoch(1),
        floor: Epoch(1),
        now_ms: 100,
    }
}

fn verdict(record: Option<&Record>, tail: Option<&Tail>, own: &Own) -> Verdict {
    decide(&question(record, tail, own))
}

#[test]
fn who_hears_a_replica_first_names_it() {
    assert_eq!(verdict(None, None, &own(1, 0..1)), Verdict::Mint(Epoch(101)));
    assert_eq!(verdict(None, None, &Own::default()), Verdict::Wait(Silence::NotHeard));
}

#[test]
fn the_same_life_is_adopted_by_its_twin() {
    let record = named(50, 1, [0]);
    assert_eq!(verdict(Some(&record), None, &own(1, 0..3)), Verdict::Adopt(Epoch(50)));
    // The newest batch on the log must be compared too, and it has not come yet.
    let log = tail(50, 1, 0..9);
    assert_eq!(
        verdict(Some(&record), Some(&log), &own(1, 0..3)),
        Verdict::Wait(Silence::CatchingUp)
    );
    assert_eq!(verdict(Some(&record), Some(&log), &own(1, 0..9)), Verdict::Adopt(Epoch(50)));
}

/// 3.1: A named life 2 and died; the engine restarted; B comes back and reads life 3.
#[test]
fn a_name_is_not_taken_for_another_life() {
    let mut record = named(60, 2, [0, 300]);
    record.past.push(named(50, 1, [0, 40]).life);
    let log = tail(60, 2, 200..301);
    let three = own(3, 0..5);
    assert_eq!(verdict(Some(&record), Some(&log), &three), Verdict::Mint(Epoch(101)));
    // Not before it was heard after the record was read.
    let silent = Own { heard: Heard::Not, ..three };
    assert_eq!(verdict(Some(&record), Some(&log), &silent), Verdict::Wait(Silence::NotHeard));
}

/// 3.1, the mirror case: both see the same restart, and B lost the compare-and-set.
#[test]
fn the_loser_of_a_mint_compares_and_adopts() {
    let record = named(60, 2, [0]);
    let loser = own(2, 0..4);
    assert_eq!(verdict(Some(&record), None, &loser), Verdict::Adopt(Epoch(60)));
}

#[test]
fn an_ended_life_never_gets_a_new_name() {
    let mut record = named(60, 2, [0, 7]);
    record.past.push(named(50, 1, [0, 40]).life);
    // Cut off from the engine since life 1, which was named.
    let one = own(1, 0..41);
    assert_eq!(verdict(Some(&record), None, &one), Verdict::Wait(Silence::Closed));
    // Not in the registry any more, but it had a name here, and a later one was given.
    record.past.clear();
    let one = Own { named: Some(Epoch(50)), ..one };
    assert_eq!(verdict(Some(&record), None, &one), Verdict::Wait(Silence::Closed));
    // Still heard long after: then it is the other name that was wrong.
    let one = Own { heard: Heard::LongSince, ..one };
    assert_eq!(verdict(Some(&record), None, &one), Verdict::Mint(Epoch(101)));
}

/// 3.2: the clock is behind what was ever given, and the registry may be lost.
#[test]
fn a_new_name_is_above_all_names_ever_given() {
    let other = own(9, 0..3);
    assert_eq!(
        verdict(Some(&named(5_000, 1, [0])), Some(&tail(4_000, 1, 0..2)), &other),
        Verdict::Mint(Epoch(5_001))
    );
    assert_eq!(verdict(None, Some(&tail(6_000, 1, 0..2)), &other), Verdict::Mint(Epoch(6_001)));
    let floor = Question { floor: Epoch(7_000), ..question(None, None, &other) };
    assert_eq!(decide(&floor), Verdict::Mint(Epoch(7_001)));
}

/// The registry and the log were lost together, and this bridge still knows what was in them:
/// readers do too, and take nothing below it.
#[test]
fn a_lost_registry_is_not_forgotten_by_who_read_it() {
    let knows = Own { given: Epoch(8_000), ..own(1, 0..3) };
    assert_eq!(verdict(None, None, &knows), Verdict::Mint(Epoch(8_001)));
    // Somebody who knew nothing named the same life below it.
    let record = named(5_000, 1, [0, 2]);
    assert_eq!(verdict(Some(&record), None, &knows), Verdict::Mint(Epoch(8_001)));
    let over = Own { heard: Heard::Not, ..knows };
    assert_eq!(verdict(Some(&record), None, &over), Verdict::Wait(Silence::NotHeard));
}

/// A twin is always a little ahead: that alone is no other life, however long it lasts.
#[test]
fn a_bridge_that_lags_is_not_of_another_life() {
    let record = named(50, 1, [0]);
    let log = tail(50, 1, 30..41);
    let behind = Own { heard: Heard::LongSince, ..own(1, 20..38) };
    assert_eq!(verdict(Some(&record), Some(&log), &behind), Verdict::Wait(Silence::CatchingUp));
    let restarted = Own { heard: Heard::LongSince, ..own(2, 1..5) };
    assert_eq!(verdict(Some(&record), Some(&log), &restarted), Verdict::Mint(Epoch(101)));
}

#[test]
fn the_number_that_recovery_gave_is_kept_where_it_is_the_highest() {
    let other = own(9, 0..3);
    let record = named(50, 1, [0]);
    let local = |local| Question {
        local: Epoch(local),
        floor: Epoch(0),
        ..question(Some(&record), None, &other)
    };
    assert_eq!(decide(&local(51)), Verdict::Mint(Epoch(51)));
    assert_eq!(decide(&local(50)), Verdict::Mint(Epoch(101)));
}

/// 3.3: a life that began while the bus was away is named when it can be compared, not before.
#[test]
fn a_spooled_life_takes_the_name_its_twin_gave_meanwhile() {
    let record = named(60, 2, [0, 1]);
    let log = tail(60, 2, 0..5);
    assert_eq!(verdict(Some(&record), Some(&log), &own(2, 0..90)), Verdict::Adopt(Epoch(60)));
    let (cursor, missing) = resume(Epoch(60), Some(&record), Some(&log));
    assert_eq!((cursor.next_seq, missing), (Seq(5), Vec::new()));
}

/// 3.4: back after an hour, with a journal that no longer reaches what was compared.
#[test]
fn truncation_is_not_a_restart() {
    let record = named(50, 1, [0, 40]);
    let log = tail(50, 1, 30..41);
    let late = own(1, 900..950);
    assert_eq!(verdict(Some(&record), Some(&log), &late), Verdict::AskJournal(Seq(40)));
    // The journal had it.
    let mut anchored = late.clone();
    anchored.digests.insert(Seq(40), digest(1, 40));
    assert_eq!(verdict(Some(&record), Some(&log), &anchored), Verdict::Adopt(Epoch(50)));
    // It has not: silent beside a bridge that speaks, a new name where nobody does.
    let spent = Own { journal_spent: true, ..late };
    let beside = Question { others: true, ..question(Some(&record), Some(&log), &spent) };
    assert_eq!(decide(&beside), Verdict::Wait(Silence::OthersSpeak));
    assert_eq!(verdict(Some(&record), Some(&log), &spent), Verdict::Mint(Epoch(101)));
}

#[test]
fn an_engine_that_counts_from_0_again_is_told_although_nothing_is_common() {
    let record = named(50, 1, [400]);
    let restarted = own(2, 0..5);
    assert_eq!(verdict(Some(&record), None, &restarted), Verdict::Wait(Silence::CatchingUp));
    let long = Own { heard: Heard::LongSince, ..restarted };
    assert_eq!(verdict(Some(&record), None, &long), Verdict::Mint(Epoch(101)));
    // A replay that has not come that far yet is no restart.
    let replaying = Own { settled: false, ..long };
    assert_eq!(verdict(Some(&record), None, &replaying), Verdict::Wait(Silence::CatchingUp));
}

#[test]
fn equal_beginnings_of_two_lives_are_not_enough() {
    // A clock that stands still: 0 and 1 are equal, what the log has last is not.
    let mut record = named(50, 1, [0, 1]);
    record.life.anchors.insert(Seq(300), digest(1, 300));
    let mut second = own(1, 0..200);
    assert_eq!(verdict(Some(&record), None, &second), Verdict::Wait(Silence::CatchingUp));
    second.digests.insert(Seq(300), digest(2, 300));
    second.next_seq = Seq(301);
    assert_eq!(verdict(Some(&record), None, &second), Verdict::Mint(Epoch(101)));
}

#[test]
fn an_incarnation_tells_lives_apart_before_any_seq_is_common() {
    let mut record = named(50, 1, [400]);
    record.life.incarnation = Some("a".to_owned());
    let other = Own { incarnation: Some("b".to_owned()), ..own(2, 0..2) };
    assert_eq!(verdict(Some(&record), None, &other), Verdict::Mint(Epoch(101)));
}

#[test]
fn another_decoder_is_silent_beside_the_first_and_takes_over_after_it() {
    let record = named(50, 1, [0]);
    let same = own(1, 0..3);
    let mut other = Question { content: "d", ..question(Some(&record), None, &same) };
    assert_eq!(decide(&other), Verdict::Mint(Epoch(101)));
    other.others = true;
    assert_eq!(decide(&other), Verdict::Wait(Silence::SettingsDiffer));
}

#[test]
fn a_record_keeps_the_oldest_the_newest_and_the_lives_before() {
    let before = named(50, 1, [0]);
    let record = record(Some(&before), &own(2, 10..5_000), Epoch(60), "c", "me");
    assert_eq!(record.past, [before.life]);
    let seqs: Vec<u64> = record.life.anchors.keys().map(|seq| seq.0).collect();
    assert_eq!((seqs.len(), seqs[0], seqs[15]), (ANCHORS_MAX, 10, 4_999));
    assert!(seqs.windows(2).all(|two| two[0] < two[1]));
    assert_eq!(record.by, "me");
    // The same life again, with newer anchors.
    let again = super::record(Some(&record), &own(2, 10..5_001), Epoch(60), "c", "me");
    assert_eq!(again.past, record.past);
}

#[test]
fn a_log_whose_messages_are_gone_is_gone_on_with_where_it_was() {
    let mine = Own { named: Some(Epoch(50)), acked: Seq(41), ..own(1, 0..60) };
    let record = record(None, &mine, Epoch(50), "c", "me");
    assert_eq!(resume(Epoch(50), Some(&record), None).0.next_seq, Seq(41));
    assert_eq!(resume(Epoch(60), Some(&record), None).0.next_seq, Seq(0));
}
