//! Places: so many in all, one for each engine, none kept longer than its answer is open.

use std::collections::VecDeque;

use kvbridge_adapters_api::{Continuity, Drain, Removal, Replay};
use kvbridge_schemas::Scope;
use proptest::prelude::*;

use super::*;

/// Answers what a test puts in, and notes how often it was asked for a replay.
#[derive(Default)]
struct Script {
    says: VecDeque<Delivery>,
    asked: Arc<Mutex<u32>>,
}

#[async_trait]
impl Source for Script {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            epoch_on_wire: false,
            replay: Replay::Journal,
            snapshot: None,
            continuity: Continuity::Proven,
            removal: Removal::PerCopy,
            clear_scope: Scope::All,
            drain: Drain::Shared,
            one_hash_per_block: true,
        }
    }

    async fn next(&mut self) -> Option<Delivery> {
        self.says.pop_front()
    }

    fn request(&mut self, request: SourceRequest) -> Result<(), RequestRefused> {
        *self.asked.lock().unwrap() += u32::from(request != SourceRequest::Cancel);
        Ok(())
    }
}

fn end(attempt: u32) -> Delivery {
    SourceEvent::Answer { attempt: Attempt(attempt), part: AnswerPart::End }.into()
}

fn replay(attempt: u32) -> SourceRequest {
    SourceRequest::Replay { attempt: Attempt(attempt), start_seq: Seq(0) }
}

/// A rank of an engine, and how often its engine was really asked.
fn rank(budget: &Arc<Budget>, instance: &str, rank: u32) -> (Budgeted, Arc<Mutex<u32>>) {
    let script = Script { says: VecDeque::from([end(1), end(2)]), ..Script::default() };
    let asked = Arc::clone(&script.asked);
    let replica = Replica { model: "m".into(), instance: instance.into(), rank };
    (Budgeted::new(Box::new(script), &replica, budget), asked)
}

async fn told(source: &mut Budgeted) -> AnswerPart {
    match source.next().await {
        Some(Delivery::Event(SourceEvent::Answer { part, .. })) => part,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn two_ranks_of_an_engine_are_asked_one_after_the_other() {
    let budget = Arc::new(Budget::new(8));
    let (mut first, _) = rank(&budget, "a", 0);
    let (mut second, asked) = rank(&budget, "a", 1);
    first.request(replay(1)).unwrap();
    second.request(replay(1)).unwrap();
    assert_eq!((told(&mut second).await, *asked.lock().unwrap()), (AnswerPart::Busy, 0));
    assert_eq!(told(&mut first).await, AnswerPart::End);
    second.request(replay(2)).unwrap();
    assert_eq!(*asked.lock().unwrap(), 1);
}

#[tokio::test]
async fn a_fleet_has_so_many_places_and_gives_each_back() {
    let budget = Arc::new(Budget::new(2));
    let mut ranks: Vec<_> = ["a", "b", "c"].map(|it| rank(&budget, it, 0)).into();
    ranks.iter_mut().for_each(|(source, _)| source.request(replay(1)).unwrap());
    let asked = |ranks: &[(Budgeted, Arc<Mutex<u32>>)]| -> Vec<u32> {
        ranks.iter().map(|(_, asked)| *asked.lock().unwrap()).collect()
    };
    assert_eq!(asked(&ranks), [1, 1, 0]);
    // Cancelled, and a replica that is dropped with its request open.
    ranks[0].0.request(SourceRequest::Cancel).unwrap();
    ranks[2].0.request(replay(2)).unwrap();
    assert_eq!(asked(&ranks), [1, 1, 1]);
    drop(ranks.remove(1));
    ranks[0].0.request(replay(2)).unwrap();
    assert_eq!(asked(&ranks), [2, 1]);
}

proptest! {
    /// Whatever is asked, cancelled and answered: never more open than places, never two at one
    /// engine, and with all cancelled every place is free.
    #[test]
    fn no_more_are_open_than_there_are_places(
        steps in prop::collection::vec((0..5_usize, 0..2_u32, any::<bool>()), 1..60),
        most in 1..4_u32,
    ) {
        let budget = Arc::new(Budget::new(most));
        let name = |engine: usize| ["a", "b", "c", "d", "e"][engine];
        let mut all: Vec<_> =
            (0..10).map(|at: usize| rank(&budget, name(at / 2), u32::try_from(at % 2).unwrap())).collect();
        for (engine, of, ask) in steps {
            let (source, _) = &mut all[engine * 2 + usize::try_from(of).unwrap()];
            source.request(if ask { replay(1) } else { SourceRequest::Cancel }).unwrap();
            let open: Vec<&Engine> =
                all.iter().filter(|(it, _)| it.open.is_some()).map(|(it, _)| &it.engine).collect();
            let engines: BTreeSet<&Engine> = open.iter().copied().collect();
            prop_assert_eq!(open.len(), engines.len());
            prop_assert!(open.len() <= usize::try_from(most).unwrap());
        }
        all.iter_mut().for_each(|(it, _)| it.request(SourceRequest::Cancel).unwrap());
        prop_assert!(budget.taken().is_empty());
    }
}
