//! An engine that leaves stores out without a word.

use expect_test::expect;

use super::{
    script::{vllm_like, without_replay},
    table::check,
};

/// A store that was left out shows once something hangs below it: counted, and kept in mind until
/// the engine flushes. A view that began late knows of no block what was above it.
// spec: recovery 5.15
#[test]
fn store_missing() {
    check(
        vllm_like(),
        "attach; unannounced; live 0",
        "finding store_missing; live 1; live 2c; finding store_missing",
        expect![[r#"
            record store_missing
            apply 1
            record flushed
            apply 2
            record store_missing
        "#]],
    );
    check(
        without_replay(),
        "attach; unannounced; live 5",
        "finding store_missing; live 6",
        expect![[r#"
            apply 6
        "#]],
    );
}
