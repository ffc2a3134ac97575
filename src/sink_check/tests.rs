//! A reader that finds what is wrong, and nothing where nothing is.

use kvbridge_schemas::msgpack::Pen;

use super::{Checker, Judged, Rule, Verdict, specimen};
use crate::sink_line::{Needs, Preset};

/// What checkers make of the whole made-up line.
fn verdicts(preset: Preset, needs: Needs, count: usize) -> Vec<Verdict> {
    let specimen = specimen(preset, count, 1_700_000_000_000);
    let verdict = |judged| match judged {
        Judged::Asks(_) => None,
        Judged::Message(message) => Some(message.verdict),
    };
    let all: Vec<Verdict> = specimen.judged(needs).filter_map(verdict).collect();
    assert_eq!(all.len(), count);
    all
}

fn broken(verdicts: &[Verdict]) -> Vec<(Rule, &str)> {
    let all = verdicts.iter().flat_map(|verdict| &verdict.broken);
    all.map(|broken| (broken.rule, broken.why.as_str())).collect()
}

#[test]
fn what_a_sink_says_breaks_no_rule_of_its_reader_and_every_rule_is_tried() {
    for preset in Preset::ALL {
        let needs = preset.needs();
        let all = verdicts(preset, needs, 90);
        assert_eq!(broken(&all), [], "{}", preset.as_str());
        for rule in Rule::ALL.into_iter().filter(|rule| rule.meaning(&needs).is_some()) {
            let tried = all.iter().any(|verdict| verdict.kept.contains(&rule));
            assert!(tried, "{}: {}", preset.as_str(), rule.as_str());
        }
    }
}

#[test]
fn what_is_said_for_one_reader_breaks_the_rules_of_another() {
    let rules = |said: Preset, read: Preset| {
        let mut rules: Vec<Rule> =
            broken(&verdicts(said, read.needs(), 60)).iter().map(|(rule, _)| *rule).collect();
        rules.sort();
        rules.dedup();
        rules
    };
    assert_eq!(rules(Preset::Vllm, Preset::Dynamo), [Rule::Salt]);
    assert_eq!(rules(Preset::Vllm, Preset::LlmD), [Rule::Topic]);
    assert_eq!(rules(Preset::Vllm, Preset::Aibrix), [Rule::Form, Rule::Single]);
    assert_eq!(rules(Preset::Aibrix, Preset::Conductor), [Rule::Form]);
    assert!(rules(Preset::Dynamo, Preset::LlmD).contains(&Rule::Range));
}

/// A batch of one event by position.
fn batch(event: impl FnOnce(&mut Pen)) -> Vec<u8> {
    let mut pen = Pen::new(64);
    pen.array(3);
    pen.float(1.0);
    pen.array(1);
    event(&mut pen);
    pen.uint(0);
    pen.into_bytes()
}

fn stored(keys: &[u64], parent: Option<u64>) -> Vec<u8> {
    batch(|pen| {
        pen.array(5);
        pen.text("BlockStored");
        pen.array(keys.len());
        keys.iter().for_each(|key| pen.wide_uint(*key));
        match parent {
            Some(parent) => pen.wide_uint(parent),
            None => pen.nil(),
        }
        pen.array(2 * keys.len());
        (0..2 * keys.len()).for_each(|_| pen.uint(7));
        pen.uint(2);
    })
}

fn live(checker: &mut Checker, seq: u64, payload: &[u8]) -> Vec<(Rule, String)> {
    let verdict = checker.live(&[b"kv@h:1@m", &seq.to_be_bytes(), payload]);
    verdict.broken.into_iter().map(|broken| (broken.rule, broken.why)).collect()
}

#[test]
fn gaps_smaller_numbers_and_strange_blocks_are_named() {
    let mut reader = Checker::new(Preset::LlmD.needs());
    assert_eq!(live(&mut reader, 0, &stored(&[1], None)), []);
    let unknown = live(&mut reader, 1, &stored(&[3], Some(2)));
    assert_eq!(unknown, [(Rule::Known, "0000000000000002 is no block that was told".to_owned())]);
    let zero = live(&mut reader, 2, &stored(&[4], Some(0)));
    assert!(zero.iter().any(|(rule, _)| *rule == Rule::Root), "{zero:?}");
    let gap = live(&mut reader, 5, &stored(&[5], None));
    assert_eq!(gap, [(Rule::Number, "3 to 4 never came".to_owned())]);
    let again = live(&mut reader, 0, &stored(&[1], None));
    let why = "0 after 5 does not clear first: what was told stays".to_owned();
    assert_eq!(again, [(Rule::Number, why)]);
    let mut other = Checker::new(Preset::Dynamo.needs());
    live(&mut other, 9, &stored(&[1], None));
    let below = live(&mut other, 3, &stored(&[1], None));
    assert_eq!(below[0], (Rule::Number, "3 is below 9: it is dropped, and all that follow".into()));
}

#[test]
fn forms_that_lose_a_batch_are_named_whatever_the_bytes_are() {
    let with_hash = |write: fn(&mut Pen)| {
        batch(|pen| {
            pen.array(2);
            pen.text("BlockRemoved");
            pen.array(1);
            write(pen);
        })
    };
    let rules = |preset: Preset, payload: &[u8]| -> Vec<Rule> {
        let mut reader = Checker::new(preset.needs());
        live(&mut reader, 7, payload).into_iter().map(|(rule, _)| rule).collect()
    };
    let (short, bytes) = (with_hash(|pen| pen.uint(5)), with_hash(|pen| pen.bin(&[7; 32])));
    assert_eq!(rules(Preset::LlmD, &short), [Rule::Hash]);
    assert_eq!(rules(Preset::Dynamo, &short), []);
    assert_eq!(rules(Preset::Dynamo, &bytes), [Rule::Hash]);
    assert_eq!(rules(Preset::LlmD, &bytes), []);
    let strange = batch(|pen| {
        pen.array(1);
        pen.text("Pinned");
    });
    assert_eq!(rules(Preset::Dynamo, &strange), [Rule::Tag]);
    for cut in 0..bytes.len() {
        assert_eq!(rules(Preset::Dynamo, &bytes[..cut]), [Rule::Batch], "{cut}");
    }
    let mut reader = Checker::new(Preset::Dynamo.needs());
    assert_eq!(reader.live(&[b"", b"1234567", b""]).broken[0].rule, Rule::Frames);
    assert_eq!(reader.live(&[b"", b""]).broken[0].rule, Rule::Frames);
}
