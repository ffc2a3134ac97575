//! Rules of requests and their answers.

use kvbridge_adapters_api::{Attempt, Loss, Replay, RequestRefused, Source, SourceRequest};

use crate::{
    Harness,
    reading::{Part, QUEUE, Said, connected, next, renumbers, replay, until_live},
};

/// An engine with ten batches in its journal, and a source that has read them.
async fn journaled<H: Harness>() -> (H, Box<dyn Source>) {
    let (mut engine, mut source) = connected::<H>(true, QUEUE).await;
    let replay = source.capabilities().replay;
    assert_ne!(replay, Replay::Absent, "there is no journal: suite!(harness, without a journal)");
    for seq in 0..10 {
        engine.publish(seq).await;
    }
    assert_eq!(next(&mut *source).await, Said::Attached);
    for _ in 0..10 {
        assert!(matches!(next(&mut *source).await, Said::Live(_, Loss::Nothing)));
    }
    (engine, source)
}

fn refuses(source: &mut dyn Source, request: SourceRequest) {
    let refused = source.request(request.clone());
    assert_eq!(refused, Err(RequestRefused::Unsupported), "{request:?}");
}

/// The batches from `start` on and the end, all under that attempt.
async fn expect_answer(source: &mut dyn Source, attempt: u32, start: u64) {
    for seq in start..10 {
        let part = Said::Answer(attempt, Part::Batch(seq, Loss::Nothing));
        assert_eq!(next(source).await, part);
    }
    assert_eq!(next(source).await, Said::Answer(attempt, Part::End));
}

/// Capabilities are a promise both ways: what is not among them is refused at once, because a
/// recovery that waits for an answer trusts nothing meanwhile. A cancel is never refused.
pub async fn what_it_cannot_do_is_refused<H: Harness>() {
    for journal in [true, false] {
        let (_engine, mut source) = connected::<H>(journal, QUEUE).await;
        let able = source.capabilities();
        assert!(journal || able.replay == Replay::Absent, "there is no journal to ask");
        if able.replay == Replay::Absent {
            refuses(&mut *source, replay(1, 0));
        }
        if able.snapshot.is_none() {
            refuses(&mut *source, SourceRequest::Snapshot { attempt: Attempt(2), object: None });
        }
        assert_eq!(source.request(SourceRequest::Cancel), Ok(()));
    }
}

/// Of a source whose engine keeps nothing for it, in the place of the rules of answers: it says so
/// whatever the engine is set to, refuses wherever the replay would begin, and reads on.
pub async fn without_a_journal_every_replay_is_refused<H: Harness>() {
    let (mut engine, mut source) = connected::<H>(true, QUEUE).await;
    assert_eq!(source.capabilities().replay, Replay::Absent, "it has a journal: suite!(harness)");
    assert_eq!(next(&mut *source).await, Said::Attached);
    for seq in 0..3 {
        engine.publish(seq).await;
        let (before, came) = until_live(&mut *source).await;
        assert!(before.is_empty() && (renumbers(&*source) || came == seq), "{before:?}, {came}");
        for start in 0..4 {
            refuses(&mut *source, replay(1, start));
        }
        assert_eq!(source.request(SourceRequest::Cancel), Ok(()));
    }
}

/// Everything from the number asked for on, the end, and the attempt with all of it.
pub async fn a_journal_answers_from_where_it_is_asked<H: Harness>() {
    let (_engine, mut source) = journaled::<H>().await;
    for (attempt, start) in [(7, 4), (8, 0), (12, 9), (13, 10)] {
        assert_eq!(source.request(replay(attempt, start)), Ok(()));
        expect_answer(&mut *source, attempt, start).await;
    }
}

/// One request is open: of one that was replaced nothing is heard any more.
pub async fn a_new_request_takes_the_place_of_the_old<H: Harness>() {
    let (mut engine, mut source) = journaled::<H>().await;
    engine.hold_answers(true).await;
    for attempt in 1..=3 {
        assert_eq!(source.request(replay(attempt, 2)), Ok(()));
        tokio::task::yield_now().await;
    }
    engine.hold_answers(false).await;
    expect_answer(&mut *source, 3, 2).await;
}

/// Neither what had come of it nor what comes late.
pub async fn a_cancelled_answer_is_not_heard_of<H: Harness>() {
    let (mut engine, mut source) = journaled::<H>().await;
    assert_eq!(source.request(replay(1, 0)), Ok(()));
    // A part of it has been read, and more is on its way.
    assert_eq!(next(&mut *source).await, Said::Answer(1, Part::Batch(0, Loss::Nothing)));
    assert_eq!(source.request(SourceRequest::Cancel), Ok(()));
    engine.publish(10).await;
    assert_eq!(next(&mut *source).await, Said::Live(10, Loss::Nothing));
    assert_eq!(source.request(SourceRequest::Cancel), Ok(()), "there is nothing left to cancel");
}

/// Whoever waits for the rest would wait for ever.
pub async fn an_answer_that_breaks_off_is_told<H: Harness>() {
    let (mut engine, mut source) = journaled::<H>().await;
    engine.hold_answers(true).await;
    assert_eq!(source.request(replay(5, 0)), Ok(()));
    engine.restart().await;
    engine.hold_answers(false).await;
    loop {
        match next(&mut *source).await {
            Said::Answer(5, Part::Failed) => break,
            // It was asked only when the new process was there, which has nothing to tell.
            Said::Answer(5, Part::End) => break,
            Said::Detached | Said::Attached | Said::Restarted => (),
            other => panic!("{other:?} in the place of a broken answer"),
        }
    }
}
