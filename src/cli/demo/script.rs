//! PURE. The script of the demonstration: what is done to which engine, and what must come of it.

use kvbridge_schemas::Trust;

use crate::fake_engine::Model;

/// What an engine is like, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A pool of pages; publishes, and answers replays.
    Paged,
    /// A tree of pages; likewise.
    Radix,
    /// Its events are taken, by one reader, once.
    Drained,
}

impl Role {
    pub(super) fn of(model: Model) -> Role {
        match model {
            Model::Paged(_) => Paged,
            Model::Radix(_) | Model::Native(_) => Radix,
            Model::Drained(_) => Drained,
        }
    }
}

/// One thing that is done, or waited for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Said, nothing done.
    Say(&'static str),
    /// So many requests.
    Traffic(u64),
    /// A body for `/control` of the engine.
    Fault(&'static str),
    /// The engine is asked to empty its cache.
    Flush,
    /// Waits, under traffic, for another life: an idle engine proves none.
    NewEpoch,
    /// Waits for this trust at the engine's own seq, then compares the blocks.
    Until(Trust),
}

/// A fault and its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene {
    pub(super) title: &'static str,
    /// Played with each of them.
    pub(super) on: &'static [Role],
    pub(super) steps: &'static [Step],
}

use Role::{Drained, Paged, Radix};
use Step::{Fault, Flush, NewEpoch, Say, Traffic, Until};

pub(super) const SCENES: &[Scene] = &[
    Scene {
        title: "traffic",
        on: &[Paged, Radix, Drained],
        steps: &[Traffic(40), Until(Trust::Exact)],
    },
    Scene {
        title: "a gap, healed by replay",
        on: &[Paged, Radix],
        steps: &[
            Say("five batches are not published; the engine's journal has them"),
            Fault(r#"{"fault":"drop","count":5}"#),
            Traffic(12),
            Until(Trust::Exact),
        ],
    },
    Scene {
        title: "a lost tail",
        on: &[Paged],
        steps: &[
            Say("the last batches are lost and silence follows: no later one shows the gap"),
            Fault(r#"{"fault":"drop","count":2}"#),
            Traffic(2),
            Say("a probe does, after a second of silence here, after ten by default"),
            Until(Trust::Exact),
        ],
    },
    Scene {
        title: "a restart",
        on: &[Paged, Drained],
        steps: &[
            Say("a new process at the same address, its cache empty, its seqs from 0"),
            Fault(r#"{"fault":"restart"}"#),
            Traffic(5),
            NewEpoch,
            Until(Trust::Exact),
        ],
    },
    Scene {
        title: "a restart that no connection shows",
        on: &[Radix],
        steps: &[Fault(r#"{"fault":"silent_restart"}"#), Traffic(5), NewEpoch, Until(Trust::Exact)],
    },
    Scene {
        title: "a hole in the journal",
        on: &[Paged],
        steps: &[
            Say("two batches are neither published nor in the journal: gone for everybody"),
            Fault(r#"{"fault":"drop","count":2}"#),
            Fault(r#"{"fault":"hole","count":2}"#),
            Traffic(8),
            Until(Trust::LowerBound),
            Say("all that is left is real; a flush makes it all there is"),
            Flush,
            Traffic(6),
            Until(Trust::Exact),
        ],
    },
    Scene {
        title: "a batch that is none",
        on: &[Paged],
        steps: &[
            Fault(r#"{"fault":"poison","count":1}"#),
            Traffic(8),
            Until(Trust::LowerBound),
            Flush,
            Traffic(6),
            Until(Trust::Exact),
        ],
    },
    Scene {
        title: "an event that nobody knows",
        on: &[Paged],
        steps: &[
            Say("it may have removed anything: nothing may be believed"),
            Fault(r#"{"fault":"unknown_tag"}"#),
            Traffic(8),
            Until(Trust::None),
            Flush,
            Traffic(6),
            Until(Trust::Exact),
        ],
    },
    Scene {
        title: "events that nobody can have again",
        on: &[Drained],
        steps: &[
            Say("an engine that is drained has no journal: only another life proves all"),
            Fault(r#"{"fault":"drop","count":2}"#),
            Traffic(14),
            Until(Trust::LowerBound),
            Fault(r#"{"fault":"restart"}"#),
            Traffic(5),
            NewEpoch,
            Until(Trust::Exact),
        ],
    },
    Scene { title: "the end", on: &[Paged, Radix, Drained], steps: &[Until(Trust::Exact)] },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scene_ends_in_a_view_that_is_exact() {
        for scene in SCENES {
            let end = scene.steps.last();
            assert!(matches!(end, Some(Until(Trust::Exact))), "{}", scene.title);
            assert!(!scene.on.is_empty(), "{}", scene.title);
            for step in scene.steps {
                if let Fault(body) = step {
                    serde_json::from_str::<crate::fake_engine::control::Fault>(body).unwrap();
                }
            }
        }
    }
}
