//! A rank that is missing, beyond its row of the table.

use expect_test::expect;

use super::{script::without_replay, table::check};

/// An empty journal that answers is no proof that the rank speaks; its first batch is.
#[test]
fn rank_missing_takes_back_what_an_empty_journal_gave() {
    check(
        without_replay(),
        "attach; wait 60000",
        "rank_missing; rank_there; rank_missing; over_limit; release; live 0",
        expect![[r#"
            record rank_missing
            announce none (rank_missing)
            announce lower_bound (joined_late)
            record rank_missing
            announce none (rank_missing)
            record over_limit
            clear 1 OverLimit
            announce none (over_limit)
            record released
            announce none (rank_missing)
            record first_is_zero
            apply 0
            announce exact (contiguous)
        "#]],
    );
}
