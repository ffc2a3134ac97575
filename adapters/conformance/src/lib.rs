//! The contract of [`Source`](kvbridge_adapters_api::Source) as tests: what every adapter must hold
//! to, whatever its engine speaks.
//!
//! The author writes a [`Harness`], which is the engine's side of the protocol on real sockets, and
//! says `kvbridge_adapters_conformance::suite!(MyHarness);` in a test. Every rule becomes a test of
//! its own. What an adapter cannot do it says in its `Capabilities`, and the rules ask those. One
//! whose engine keeps no journal says `suite!(MyHarness, without a journal)`: the rules of answers
//! are then one rule of refusals, and either form fails for a source of the other kind.
//!
//! Nothing here is of any one engine, and nothing of the bridge is needed.

mod answers;
mod harness;
mod live;
mod reading;

pub use answers::{
    a_cancelled_answer_is_not_heard_of, a_journal_answers_from_where_it_is_asked,
    a_new_request_takes_the_place_of_the_old, an_answer_that_breaks_off_is_told,
    what_it_cannot_do_is_refused, without_a_journal_every_replay_is_refused,
};
pub use harness::Harness;
pub use live::{
    a_cut_is_told_before_what_comes_after, a_dropped_next_loses_nothing,
    a_dropped_source_leaves_nobody_behind, a_restart_is_told_before_what_comes_after,
    a_slow_reader_is_told_what_was_dropped, batches_come_in_order_and_whole,
    bytes_that_are_no_batch_do_no_harm, no_batch_is_invented_or_left_out,
};

use std::{future::Future, time::Duration};

/// No rule waits longer for one thing; what is in order takes milliseconds.
const LIMIT: Duration = Duration::from_secs(30);

/// Runs one rule to its end, on threads of its own as a bridge has them.
pub fn run(rule: impl Future<Output = ()>) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build();
    runtime.expect("threads for a test").block_on(rule);
}

pub(crate) async fn soon<F: Future>(what: &str, wait: F) -> F::Output {
    match tokio::time::timeout(LIMIT, wait).await {
        Ok(came) => came,
        Err(_) => panic!("{what} did not come within {LIMIT:?}"),
    }
}

/// A test for every rule, for one harness. Inside a module of its own, or once in a file.
#[macro_export]
macro_rules! suite {
    (@every $harness:ty) => {
        $crate::suite!(
            @these $harness: batches_come_in_order_and_whole, no_batch_is_invented_or_left_out,
            a_cut_is_told_before_what_comes_after, a_restart_is_told_before_what_comes_after,
            a_slow_reader_is_told_what_was_dropped, a_dropped_next_loses_nothing,
            a_dropped_source_leaves_nobody_behind, bytes_that_are_no_batch_do_no_harm,
            what_it_cannot_do_is_refused
        );
    };
    (@these $harness:ty: $($rule:ident),+) => {
        $(#[test]
        fn $rule() {
            $crate::run($crate::$rule::<$harness>());
        })+
    };
    ($harness:ty) => {
        $crate::suite!(@every $harness);
        $crate::suite!(
            @these $harness: a_journal_answers_from_where_it_is_asked,
            a_new_request_takes_the_place_of_the_old, a_cancelled_answer_is_not_heard_of,
            an_answer_that_breaks_off_is_told
        );
    };
    ($harness:ty, without a journal) => {
        $crate::suite!(@every $harness);
        $crate::suite!(@these $harness: without_a_journal_every_replay_is_refused);
    };
}
