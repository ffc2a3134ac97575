//! Which event is whose, what is missing, which process it is.

use kvbridge_adapters_trtllm::{Instance, Step, Strange};
use kvbridge_schemas::{BlockHash, Event, Parent, Seq, SnapshotRecord, Tier};
use serde_json::{Value, json};

use crate::{batches, block, created, removed, steps, stored, with, words};

fn of(rank: u32, event: Value) -> Value {
    with(with(event, "attention_dp_rank", rank), "layer_group_id", 0)
}

fn said(instance: &mut Instance, events: &[Value]) -> Vec<Vec<String>> {
    steps(instance, &json!(events).to_string()).iter().map(words).collect()
}

#[test]
fn each_rank_counts_for_itself() {
    let mut instance = Instance::new(4, 2);
    let said = said(
        &mut instance,
        &[of(4, created(0)), of(5, created(0)), of(5, removed(1, &[1])), of(4, removed(1, &[1]))],
    );
    assert_eq!(
        said,
        [
            vec!["0 pool 100", "0 live 0"],
            vec!["1 pool 100", "1 live 0"],
            vec!["1 live 1"],
            vec!["0 live 1"]
        ]
    );
}

#[test]
fn a_gap_on_one_rank_is_a_loss_of_all_others() {
    let mut instance = Instance::new(0, 3);
    said(&mut instance, &[of(0, created(0)), of(1, created(0)), of(2, created(0))]);
    let said = said(&mut instance, &[of(1, removed(5, &[1])), of(0, removed(1, &[1]))]);
    assert_eq!(said, [vec!["0 lost", "2 lost", "1 live 5"], vec!["0 live 1"]]);
}

/// Whether each of these answers shows another reader.
fn robbed(instance: &mut Instance, answers: &[&[Value]]) -> Vec<bool> {
    let read = |events: &&[Value]| {
        said(instance, events);
        instance.ends_answer()
    };
    answers.iter().map(read).collect()
}

#[test]
fn a_jump_that_no_full_buffer_explains_is_another_reader() {
    let take = |from: u64, to: u64| (from..to).map(|id| of(0, removed(id, &[1]))).collect();
    let taken = |from, to| -> Vec<Value> { take(from, to) };
    let mut instance = Instance::new(0, 2);
    let first = [of(0, created(0)), of(1, created(0))];
    assert_eq!(robbed(&mut instance, &[&first, &taken(3, 5), &taken(5, 6)]), [false, true, false]);
    // As long as any buffer may be, and one that is shorter than what came before.
    assert_eq!(robbed(&mut instance, &[&taken(9, 73), &taken(73, 173)]), [false, false]);
    assert_eq!(robbed(&mut instance, &[&taken(180, 279), &taken(290, 390)]), [true, false]);
    // What is missing behind our own losses was ours.
    instance.held_up();
    assert_eq!(robbed(&mut instance, &[&taken(400, 401), &taken(405, 406)]), [false, true]);
    instance.lost();
    assert_eq!(robbed(&mut instance, &[&taken(410, 411)]), [false]);
    let strange = [json!({}), of(0, removed(420, &[1]))];
    assert_eq!(robbed(&mut instance, &[&strange, &[created(421)]]), [false, false]);
    assert_eq!(robbed(&mut instance, &[&taken(430, 431)]), [false]);
    // Another process, whose head came late.
    assert_eq!(robbed(&mut instance, &[&taken(2, 3), &taken(4, 5)]), [false, true]);
}

#[test]
fn an_engine_that_ran_before_has_lost_its_start() {
    let mut instance = Instance::new(0, 2);
    assert_eq!(said(&mut instance, &[of(0, removed(3, &[1]))]), [["1 lost", "0 live 3"]]);
}

#[test]
fn an_id_that_came_before_is_a_new_process_of_all_ranks() {
    let mut instance = Instance::new(0, 2);
    let stored = stored(1, None, &[block(1, 4), block(2, 4)]);
    said(&mut instance, &[of(0, created(0)), of(1, created(0)), of(0, stored.clone())]);
    let events = [of(1, created(0)), of(0, created(0)), of(0, stored), of(0, removed(2, &[2]))];
    assert!(instance.is_restart(&events[0].to_string()));
    let said = said(&mut instance, &events);
    assert_eq!(said[0], ["0 restarted", "1 restarted", "1 pool 100", "1 live 0"]);
    assert_eq!(said[1..], [vec!["0 pool 100", "0 live 0"], vec!["0 live 1"], vec!["0 live 2"]]);
    assert!(!instance.is_restart(&of(0, removed(3, &[1])).to_string()));
}

#[test]
fn a_life_whose_start_is_gone_begins_with_a_loss() {
    let mut instance = Instance::new(0, 2);
    said(&mut instance, &[of(0, created(0)), of(0, removed(1, &[1])), of(0, removed(2, &[1]))]);
    let said = said(&mut instance, &[of(0, removed(1, &[1]))]);
    assert_eq!(said, [["0 restarted", "1 restarted", "1 lost", "0 live 1"]]);
}

#[test]
fn a_kept_view_goes_on_with_its_blocks_and_their_descendants() {
    let record = |hash: u64, parent: Parent, partial: bool| SnapshotRecord {
        hash: BlockHash::from_u64(hash),
        parent,
        content: None,
        block_size: if partial { 0 } else { 4 },
        tier: Tier::Device,
        group: None,
        count: 1,
        lora: None,
        salt: None,
        extra: None,
        partial,
        bigram: false,
        parked: false,
        hint: false,
    };
    let below = |hash| Parent::Block(BlockHash::from_u64(hash));
    let records = vec![
        record(1, Parent::Root, false),
        record(2, below(1), false),
        record(3, Parent::Unknown, true),
    ];
    let resumed = || {
        let mut instance = Instance::new(0, 2);
        instance.resume(1, Seq(7), records.clone());
        instance
    };
    let hashes = |step: &Step| -> Vec<BlockHash> {
        let removed = |event: &Event| match event {
            Event::Removed(removed) => removed.hashes.clone(),
            _ => Vec::new(),
        };
        batches(step)[0].1.events.iter().flat_map(removed).collect()
    };
    let of_numbers = |numbers: &[u64]| -> Vec<BlockHash> {
        numbers.iter().map(|number| BlockHash::from_u64(*number)).collect()
    };
    // The newer manager tells of each block.
    let mut instance = resumed();
    let body = json!([of(1, removed(7, &[1])), of(1, removed(8, &[3]))]).to_string();
    let read = steps(&mut instance, &body);
    assert_eq!(
        (words(&read[0]), words(&read[1])),
        (vec!["1 live 7".into()], vec!["1 live 8".into()])
    );
    assert_eq!((hashes(&read[0]), hashes(&read[1])), (of_numbers(&[1, 2]), of_numbers(&[3])));
    // Under the older one a block of which only its place is known may have gone with any other.
    let older = with(removed(7, &[2]), "attention_dp_rank", 1);
    let read = steps(&mut resumed(), &json!([older]).to_string());
    assert_eq!(words(&read[0]), ["1 unannounced", "1 live 7"]);
    assert_eq!(hashes(&read[0]), of_numbers(&[3, 2]));
    // What is missing is told as ever.
    let read = steps(&mut resumed(), &json!([of(1, removed(9, &[1]))]).to_string());
    assert_eq!(words(&read[0]), ["0 lost", "1 live 9"]);
    assert!(hashes(&read[0]).is_empty());
}

#[test]
fn the_older_manager_is_said_to_remove_silently_once_per_reader() {
    let mut instance = Instance::new(0, 1);
    let said = |instance: &mut Instance, event| said(instance, &[event]).remove(0);
    assert_eq!(said(&mut instance, created(0)), ["0 unannounced", "0 pool 100", "0 live 0"]);
    assert_eq!(said(&mut instance, removed(1, &[1])), ["0 live 1"]);
    instance.attached(0);
    assert_eq!(said(&mut instance, removed(2, &[1])), ["0 unannounced", "0 live 2"]);
}

#[test]
fn events_of_no_place_are_named() {
    let mut instance = Instance::new(0, 2);
    let body = json!([of(7, created(0)), created(0), {}, {"event_id": "x"}, 5, null]).to_string();
    let read = steps(&mut instance, &body);
    let strange: Vec<_> = read.iter().map(|step| step.strange).collect();
    let unnumbered = Some(Strange::Unnumbered);
    assert_eq!(
        strange,
        [
            Some(Strange::OtherRank { rank: 7 }),
            Some(Strange::NoRank),
            None,
            unnumbered,
            unnumbered,
            unnumbered
        ]
    );
    assert!(words(&read[0]).is_empty() && words(&read[2]).is_empty());
    // Whose it was nobody can tell.
    assert_eq!(words(&read[1]), ["0 lost", "1 lost"]);
    assert_eq!(words(&read[3]), ["0 lost", "1 lost"]);
}
