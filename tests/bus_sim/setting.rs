//! What all parts of a run share: times scaled down, names, and the trace.

use std::{cell::RefCell, rc::Rc};

use kvbridge::{
    api::{AnswerPart, Removal, SourceEvent},
    recovery::{Action, Input, Limits},
    schemas::{Projection, Replica},
    view::ViewSettings,
};

/// How long a bridge's word counts.
pub(crate) const STATUS_TTL_MS: u64 = 250;

/// Times of the hop from the engine, so short that every one of them runs out in a run.
pub(crate) fn hop_limits() -> Limits {
    Limits {
        digest_ring: 600,
        verify_run: 3,
        held_batches_max: 24,
        held_bytes_max: 1 << 20,
        replay_deadline_ms: 120,
        attempts_max: 4,
        replay_interval_ms: 5,
        replay_interval_ms_max: 100,
        join_grace_ms: 40,
        probe_after_ms: 150,
        audit_ms: 150,
        lease_ms: 900,
        tail_wait_ms: 60,
        refetch_ms: 300,
        epoch_flap_max: 6,
        epoch_flap_window_ms: 400,
        quarantine_ms: 200,
    }
}

/// Those of the hop from the log.
pub(crate) fn bus_limits() -> Limits {
    Limits { held_batches_max: 60, ..hop_limits() }
}

pub(crate) fn view_settings() -> ViewSettings {
    ViewSettings {
        projection: Projection::Last8,
        removal: Removal::PerCopy,
        orphans_max: 10_000,
        describes: false,
        told_singly: false,
        leaves_out: false,
    }
}

pub(crate) fn replica() -> Replica {
    Replica { model: "m".into(), instance: "h:1".into(), rank: 0 }
}

/// What happened, in order, if anybody wants to know.
#[derive(Clone, Default)]
pub(crate) struct Trace(Option<Rc<RefCell<Vec<String>>>>);

impl Trace {
    pub(crate) fn on() -> Trace {
        Trace(Some(Rc::default()))
    }

    pub(crate) fn say(&self, line: impl FnOnce() -> String) {
        if let Some(lines) = &self.0 {
            lines.borrow_mut().push(line());
        }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.as_ref().map(|lines| lines.borrow().clone()).unwrap_or_default()
    }
}

/// An input in one short word; a batch by its seq alone.
pub(crate) fn brief(input: &Input) -> String {
    match input {
        Input::Source(SourceEvent::Live(batch)) => {
            let epoch = batch.epoch.map(|epoch| format!(" of {epoch}")).unwrap_or_default();
            format!("live {}+{}{epoch}", batch.seq, batch.span)
        }
        Input::Source(SourceEvent::Answer { attempt, part: AnswerPart::Batch(batch) }) => {
            format!("answer {attempt} batch {}+{}", batch.seq, batch.span)
        }
        Input::Source(SourceEvent::Answer { attempt, part }) => {
            format!("answer {attempt} {part:?}")
        }
        other => format!("{other:?}"),
    }
}

pub(crate) fn brief_action(action: &Action) -> String {
    match action {
        Action::Apply(batch) => format!("apply {}", batch.seq),
        other => format!("{other:?}"),
    }
}
