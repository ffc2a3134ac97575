//! Rules of the live stream.

use std::time::Duration;

use kvbridge_adapters_api::{Continuity, Loss};

use crate::{
    Harness,
    reading::{QUEUE, Said, connected, expect_live, next, renumbers, said, until_live},
    soon,
};

/// How long a source may say nothing before the engine speaks again.
const QUIET: Duration = Duration::from_millis(50);

/// Attached first, then every batch, as it was sent.
pub async fn batches_come_in_order_and_whole<H: Harness>() {
    let (mut engine, mut source) = connected::<H>(true, QUEUE).await;
    for seq in 0..200 {
        engine.publish(seq).await;
    }
    assert_eq!(next(&mut *source).await, Said::Attached);
    expect_live(&mut *source, 0..200).await;
}

/// Numbers that are left out, come again or go back are passed on: deciding is recovery's work. A
/// source that numbers for itself tells what is missing instead.
pub async fn no_batch_is_invented_or_left_out<H: Harness>() {
    let (mut engine, mut source) = connected::<H>(true, QUEUE).await;
    assert_eq!(next(&mut *source).await, Said::Attached);
    if renumbers(&*source) {
        for seq in [0, 1, 5, 6] {
            engine.publish(seq).await;
        }
        expect_live(&mut *source, 0..2).await;
        let (before, seq) = until_live(&mut *source).await;
        let is_told = !before.is_empty() || seq > 2;
        assert!(is_told, "three batches are missing, and nothing was told of it");
        return;
    }
    let sent = [0, 1, 5, 5, 2, 9];
    for seq in sent {
        engine.publish(seq).await;
    }
    expect_live(&mut *source, sent).await;
}

/// What was sent before comes before the word of the break, and a new connection behind it.
pub async fn a_cut_is_told_before_what_comes_after<H: Harness>() {
    let (mut engine, mut source) = connected::<H>(true, QUEUE).await;
    engine.publish(0).await;
    assert_eq!(next(&mut *source).await, Said::Attached);
    expect_live(&mut *source, [0]).await;
    engine.cut().await;
    soon("a new connection", engine.read()).await;
    engine.publish(1).await;
    let (before, seq) = until_live(&mut *source).await;
    assert!(renumbers(&*source) || seq == 1, "batch {seq} came, and 1 was sent");
    told_of_break(&before, source.capabilities().continuity);
}

/// A process that counts from 0 again is not the one of before.
pub async fn a_restart_is_told_before_what_comes_after<H: Harness>() {
    let (mut engine, mut source) = connected::<H>(true, QUEUE).await;
    for seq in 0..3 {
        engine.publish(seq).await;
    }
    assert_eq!(next(&mut *source).await, Said::Attached);
    expect_live(&mut *source, 0..3).await;
    engine.restart().await;
    soon("a new connection", engine.read()).await;
    engine.publish(0).await;
    let (before, seq) = until_live(&mut *source).await;
    assert!(renumbers(&*source) || seq == 0, "batch {seq} came, and 0 was sent");
    told_of_break(&before, source.capabilities().continuity);
}

fn told_of_break(before: &[Said], continuity: Continuity) {
    if continuity == Continuity::Unproven {
        return;
    }
    let at = |said: &Said| before.iter().position(|it| it == said);
    let broke = at(&Said::Detached).or_else(|| at(&Said::Restarted));
    assert!(broke.is_some(), "the connection is a new one, and was told of as {before:?}");
    let detached = at(&Said::Detached);
    assert!(detached.is_none() || at(&Said::Attached) > detached, "{before:?}");
}

/// Between two batches that do not follow each other stands one Overflowed, and nowhere else; and
/// the stream goes on once it is read. A source may also let the engine wait, and drop nothing.
pub async fn a_slow_reader_is_told_what_was_dropped<H: Harness>() {
    const SENT: u64 = 2_000;
    let (mut engine, mut source) = connected::<H>(true, 4).await;
    for seq in 0..SENT {
        engine.publish(seq).await;
    }
    assert_eq!(next(&mut *source).await, Said::Attached);
    let (mut last, mut overflowed, mut sent) = (None, false, SENT);
    while last.is_none_or(|last| last < SENT) {
        let Ok(delivery) = tokio::time::timeout(QUIET, source.next()).await else {
            // What waits in the source has been read, so there is room for another one.
            engine.publish(sent).await;
            sent += 1;
            assert!(sent < SENT + 600, "nothing comes any more after batch {last:?}");
            continue;
        };
        let Some(delivery) = delivery else { panic!("the source closed by itself") };
        match said(&delivery) {
            Some(Said::Overflowed) => {
                assert!(!overflowed, "two Overflowed for one run, after batch {last:?}");
                overflowed = true;
            }
            Some(Said::Live(seq, Loss::Nothing)) => {
                let follows = last.map_or(0, |last| last + 1);
                assert!(seq >= follows, "batch {seq} after {last:?}");
                let is_told = renumbers(&*source) || overflowed == (seq > follows);
                assert!(is_told, "{last:?}, then {seq}; Overflowed between: {overflowed}");
                (last, overflowed) = (Some(seq), false);
            }
            Some(other) => panic!("a slow reader was told {other:?}"),
            None => (),
        }
    }
}

/// A bridge waits for several things at once, and drops the wait for a source whenever another one
/// is first.
pub async fn a_dropped_next_loses_nothing<H: Harness>() {
    const SENT: u64 = 500;
    let (mut engine, mut source) = connected::<H>(true, QUEUE).await;
    for seq in 0..SENT {
        engine.publish(seq).await;
    }
    let mut came = Vec::new();
    let all = async {
        while came.len() < 500 {
            tokio::select! {
                biased;
                delivery = source.next() => match delivery.as_ref().and_then(said) {
                    Some(Said::Live(seq, Loss::Nothing)) => came.push(seq),
                    Some(Said::Attached) | None => (),
                    Some(other) => panic!("{other:?} among the batches"),
                },
                () = tokio::task::yield_now() => (),
            }
        }
    };
    soon("every batch", all).await;
    assert!(came.iter().copied().eq(0..SENT), "{came:?}");
}

/// A source is stopped by dropping it: nothing may go on reading for nobody.
pub async fn a_dropped_source_leaves_nobody_behind<H: Harness>() {
    let (mut engine, source) = connected::<H>(true, QUEUE).await;
    engine.publish(0).await;
    drop(source);
    let left = async {
        let mut sent = 1;
        while engine.is_read().await {
            // An engine that only ever sends notices a reader's end when it does.
            engine.publish(sent).await;
            sent += 1;
            tokio::time::sleep(QUIET).await;
        }
    };
    soon("the end of the connection", left).await;
}

/// They are a loss, a hole or a break; never a batch that is said to be whole, and never the end of
/// the source.
pub async fn bytes_that_are_no_batch_do_no_harm<H: Harness>() {
    let (mut engine, mut source) = connected::<H>(true, QUEUE).await;
    assert_eq!(next(&mut *source).await, Said::Attached);
    let deep = [b"[".repeat(5_000), vec![0x91; 5_000], vec![0xdf; 64]].concat();
    let hostile: [&[u8]; 7] = [
        b"",
        b"\x00",
        b"{\"seq\": 18446744073709551616, \"events\": [",
        b"\xff\xfe\xfd not any text",
        // Arrays and maps of msgpack that promise four thousand million elements.
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff\xc0",
        &deep,
    ];
    let mut seq = 0;
    for bytes in hostile {
        engine.publish_bytes(seq, bytes).await;
        soon("a reader", engine.read()).await;
        engine.publish(seq + 1).await;
        let mut tries = 0;
        loop {
            let Ok(delivery) = tokio::time::timeout(QUIET, source.next()).await else {
                // It went to a connection that the bytes before it had ended.
                soon("a reader", engine.read()).await;
                engine.publish(seq + 1).await;
                tries += 1;
                assert!(tries < 600, "nothing comes any more after {bytes:x?}");
                continue;
            };
            let Some(delivery) = delivery else { panic!("the source closed by itself") };
            match said(&delivery) {
                Some(Said::Live(came, Loss::Nothing)) if renumbers(&*source) || came == seq + 1 => {
                    break;
                }
                Some(Said::Live(came, Loss::Nothing)) => {
                    let is_late = came % 2 == 1 && came < seq;
                    assert!(is_late, "batch {came} is whole, and was {bytes:x?}");
                }
                Some(Said::Answer(..)) => panic!("an answer, and nothing was asked"),
                _ => (),
            }
        }
        seq += 2;
    }
}
