//! A small language for dialogues. One line holds commands, separated by `;`.
//!
//! `attach` `detach` `overflow` `end_marker` `restarted` `unannounced` `competing` `resync`
//! `over_limit` `release` `finding` `rank_missing` `rank_there`
//! `wait 250` (ms; fires every deadline on the way) `live 5` `live 5b` (other bytes under the same
//! seq) `live 5!` (body unreadable) `live 5?` (a store lost) `live 5~` (unknown tag) `live 5c` (the
//! engine cleared) `live 5r` (a bridge cleared) `live 5@7` (epoch 7 on the wire) `live 5+3` (span
//! 3) `live 5x` (reset told by a bridge, span 3) `live 5y` (the same with a snapshot object) ·
//! `batch …` the same forms inside the open answer · `continues 5@7` (its log's numbers)
//! `from_twin 5` `end` `failed` `truncated` `intro 20 barrier 20` (resume 20, 3 records) `intro 20`
//! `records 3` `snapshot_end` `busy` `replay_busy` `inconsistent` `too_large` `unavailable` ·
//! `save` (a checkpoint) `restart` (the process comes back with the last one) `forgetful` (… with
//! nothing but its epoch) · `vouch 5@7 exact` `vouch 5@7 exact view 9` (the bridge's view is
//! further than the log) `bridge_silent` (what the bridges behind a log say)
//! `look_from 3` (a log lacks batches from 3 on) · `live 5 of a` and `intro 6 barrier 5 of a` (the
//! wire's own name of the life) `disproved` (the engine is not plain).

use std::fmt::Write as _;

use kvbridge_adapters_api::{
    AnswerPart, Attempt, Batch, Capabilities, Continuity, Drain, Loss, Removal, Replay,
    SnapshotIntro, SnapshotRefusal, SnapshotSupport, SourceEvent, Upstream,
};
use kvbridge_schemas::{
    ClearCause, Cleared, Cursor, Digest, Epoch, Event, HashInfo, HashScheme, Reset, Scope, Seq,
    Tier, TierTrust, Trust, digest,
};

use crate::recovery::{Action, Checkpoint, Fact, Finding, Input, Recovery, Settings, Tick};

pub(super) fn vllm_like() -> Capabilities {
    Capabilities {
        epoch_on_wire: false,
        replay: Replay::Journal,
        snapshot: None,
        continuity: Continuity::Proven,
        removal: Removal::PerCopy,
        clear_scope: Scope::Tiers(vec![Tier::Device]),
        drain: Drain::Shared,
        one_hash_per_block: false,
    }
}

pub(super) fn without_replay() -> Capabilities {
    Capabilities { replay: Replay::Absent, ..vllm_like() }
}

pub(super) fn unproven() -> Capabilities {
    Capabilities { continuity: Continuity::Unproven, ..vllm_like() }
}

pub(super) fn with_epoch() -> Capabilities {
    Capabilities { epoch_on_wire: true, ..vllm_like() }
}

/// A log whose snapshots are stored: no barrier proves their cut.
pub(super) fn with_stored_snapshot() -> Capabilities {
    let mut capabilities = Capabilities { epoch_on_wire: true, ..with_snapshot() };
    capabilities.snapshot.as_mut().unwrap().barrier = false;
    capabilities
}

pub(super) fn with_snapshot() -> Capabilities {
    let snapshot = SnapshotSupport {
        barrier: true,
        tiers: true,
        counts: true,
        namespaces: true,
        content: true,
        plain: false,
    };
    Capabilities { snapshot: Some(snapshot), ..vllm_like() }
}

/// A snapshot of hashes alone, of an engine that is said to be plain.
pub(super) fn with_plain_snapshot() -> Capabilities {
    let snapshot = SnapshotSupport {
        barrier: true,
        tiers: false,
        counts: false,
        namespaces: false,
        content: false,
        plain: true,
    };
    Capabilities { snapshot: Some(snapshot), ..vllm_like() }
}

/// A machine, the time, and the attempt that is open.
pub(super) struct Script {
    pub(super) recovery: Recovery,
    pub(super) saved: Option<Checkpoint>,
    settings: Settings,
    now: Tick,
    attempt: Attempt,
}

impl Script {
    pub(super) fn new(capabilities: Capabilities) -> Script {
        let mut settings = Settings::new(capabilities, 0);
        // Round numbers read well; the spread of retries is not what these tests are about.
        settings.limits.replay_interval_ms = 0;
        settings.limits.replay_interval_ms_max = 0;
        settings.limits.held_batches_max = 4;
        Script {
            recovery: Recovery::new(settings.clone()),
            saved: None,
            settings,
            now: Tick(0),
            attempt: Attempt(0),
        }
    }

    /// The same, with requests so far apart at least, and so far at most.
    pub(super) fn paced(mut self, interval_ms: u64, interval_ms_max: u64) -> Script {
        self.settings.limits.replay_interval_ms = interval_ms;
        self.settings.limits.replay_interval_ms_max = interval_ms_max;
        self.recovery = Recovery::new(self.settings.clone());
        self
    }

    /// The process ends and comes back; its clock may stand anywhere.
    fn restart(&mut self, with_view: bool) {
        let mut settings = self.settings.clone();
        let saved = self.saved.clone().expect("`save` comes before `restart`");
        self.recovery = if with_view {
            Recovery::restored(settings, saved).expect("our own checkpoint")
        } else {
            settings.epoch_floor = saved.cursor.epoch;
            Recovery::new(settings)
        };
        self.now = Tick(0);
        self.attempt = Attempt(0);
    }

    /// Runs commands and says what the machine did, one line per action.
    pub(super) fn run(&mut self, commands: &str) -> String {
        let mut said = String::new();
        for command in commands.split([';', '\n']).map(str::trim).filter(|c| !c.is_empty()) {
            if let Some(ms) = command.strip_prefix("wait ") {
                self.wait(ms.parse().unwrap(), &mut said);
            } else if command == "save" {
                self.saved = self.recovery.checkpoint("script");
            } else if command == "restart" || command == "forgetful" {
                self.restart(command == "restart");
            } else {
                let input = self.input(command);
                self.step(input, &mut said);
            }
        }
        said
    }

    fn wait(&mut self, ms: u64, said: &mut String) {
        let until = self.now.plus(ms);
        while let Some(at) = self.recovery.next_deadline().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.step(Input::DeadlineReached, said);
        }
        self.now = until;
    }

    fn step(&mut self, input: Input, said: &mut String) {
        let mut actions = Vec::new();
        self.recovery.step(self.now, input, &mut actions);
        for action in actions {
            if let Action::RequestReplay { attempt, .. } | Action::RequestSnapshot { attempt, .. } =
                &action
            {
                self.attempt = *attempt;
            }
            writeln!(said, "{}", line(&action)).unwrap();
        }
    }

    fn input(&self, command: &str) -> Input {
        let (word, rest) = command.split_once(' ').unwrap_or((command, ""));
        let answer = |part| Input::Source(SourceEvent::Answer { attempt: self.attempt, part });
        match word {
            "attach" => Input::Source(SourceEvent::Attached),
            "detach" => Input::Source(SourceEvent::Detached),
            "overflow" => Input::Source(SourceEvent::Overflowed),
            "end_marker" => Input::Source(SourceEvent::EndMarker),
            "restarted" => Input::Source(SourceEvent::Restarted),
            "unannounced" => Input::Source(SourceEvent::Unannounced),
            "competing" => Input::Source(SourceEvent::Competing),
            "disproved" => Input::Source(SourceEvent::Disproved),
            "resync" => Input::Resync,
            "over_limit" => Input::OverLimit,
            "release" => Input::Release,
            "rank_missing" => Input::RankMissing(true),
            "rank_there" => Input::RankMissing(false),
            "finding" => Input::Finding(match rest {
                "host" => Finding::HostCountBelowZero,
                "second_copy" => Finding::SecondCopy,
                "store_missing" => Finding::StoreMissing,
                _ => Finding::CountBelowZero,
            }),
            "live" => Input::Source(SourceEvent::Live(batch(rest))),
            "batch" => answer(AnswerPart::Batch(batch(rest))),
            "vouch" => Input::Source(SourceEvent::Upstream(vouch(rest))),
            "bridge_silent" => Input::Source(SourceEvent::Upstream(Upstream::Silent)),
            "look_from" => Input::LookFrom(Seq(rest.parse().unwrap())),
            "continues" => {
                let (next_seq, epoch) = rest.split_once('@').unwrap_or((rest, "0"));
                let next_seq = Seq(next_seq.parse().unwrap());
                answer(AnswerPart::Continues(Cursor {
                    epoch: Epoch(epoch.parse().unwrap()),
                    next_seq,
                }))
            }
            "end" => answer(AnswerPart::End),
            "from_twin" => answer(AnswerPart::FromTwin(Seq(rest.parse().unwrap()))),
            "failed" => answer(AnswerPart::Failed),
            "truncated" => answer(AnswerPart::Truncated),
            "intro" => answer(AnswerPart::SnapshotIntro(intro(rest))),
            "records" => answer(AnswerPart::SnapshotRecords(rest.parse().unwrap())),
            "snapshot_end" => answer(AnswerPart::SnapshotEnd),
            "replay_busy" => answer(AnswerPart::Busy),
            "busy" => answer(AnswerPart::SnapshotRefused(SnapshotRefusal::Busy)),
            "inconsistent" => answer(AnswerPart::SnapshotRefused(SnapshotRefusal::Inconsistent)),
            "too_large" => answer(AnswerPart::SnapshotRefused(SnapshotRefusal::TooLarge)),
            "unavailable" => answer(AnswerPart::SnapshotRefused(SnapshotRefusal::Unavailable)),
            other => panic!("unknown command {other:?}"),
        }
    }
}

/// `5@7 exact`: everything of epoch 7 below 5 is on the log; `… view 9`: its bridge is at 9.
fn vouch(rest: &str) -> Upstream {
    let (place, trust) = rest.split_once(' ').unwrap();
    let (seq, epoch) = place.split_once('@').unwrap();
    let cursor =
        Cursor { epoch: Epoch(epoch.parse().unwrap()), next_seq: Seq(seq.parse().unwrap()) };
    let (trust, view) = match trust.split_once(" view ") {
        Some((trust, view)) => (trust, Seq(view.parse().unwrap())),
        None => (trust, cursor.next_seq),
    };
    Upstream::Vouched { cursor, trust: Trust::from_name(trust), view }
}

fn intro(rest: &str) -> SnapshotIntro {
    let mut words = rest.split_whitespace();
    let resume_seq = Seq(words.next().unwrap().parse().unwrap());
    let barrier =
        (words.next() == Some("barrier")).then(|| Seq(words.next().unwrap().parse().unwrap()));
    SnapshotIntro {
        epoch: None,
        incarnation: life(rest),
        resume_seq,
        last_digest: Some(plain_digest(resume_seq.minus(1).0)),
        record_count: 3,
        barrier,
        trust: TierTrust::all(Trust::Exact),
    }
}

/// `… of a`: the wire's own name of the life.
fn life(text: &str) -> Option<String> {
    text.split_once(" of ").map(|(_, life)| life.to_owned())
}

fn plain_digest(seq: u64) -> Digest {
    digest(format!("{seq}").as_bytes())
}

/// `5`, `5b`, `5!`, `5?`, `5~`, `5c`, `5r`, `5@7`, `5+3`, `5x`, `5y`.
pub(super) fn batch(text: &str) -> Batch {
    let incarnation = life(text);
    let text = text.split(" of ").next().unwrap();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (seq, form) = text.split_at(digits);
    let seq: u64 = seq.parse().unwrap();
    let epoch = form.split_once('@').map(|(_, epoch)| Epoch(epoch.parse().unwrap()));
    let span = form
        .split_once('+')
        .map_or(1, |(_, span)| span.split('@').next().unwrap().parse().unwrap());
    let reset = |snapshot: Option<&str>| {
        vec![Event::Reset(Reset {
            cause: "permanent_hole".to_owned(),
            trust: Trust::LowerBound,
            snapshot: snapshot.map(str::to_owned),
        })]
    };
    let cleared =
        |cause| vec![Event::Cleared(Cleared { scope: Scope::Tiers(vec![Tier::Device]), cause })];
    let (events, loss, span) = match form.chars().next() {
        Some('!') => (Vec::new(), Loss::Body, 1),
        Some('?') => (Vec::new(), Loss::Stores, 1),
        Some('~') => (Vec::new(), Loss::MayRemove, 1),
        Some('c') => (cleared(ClearCause::Engine), Loss::Nothing, 1),
        Some('r') => (cleared(ClearCause::Repair), Loss::Nothing, 1),
        Some('x') => (reset(None), Loss::Nothing, 3),
        Some('y') => (reset(Some("object")), Loss::Nothing, 3),
        _ => (Vec::new(), Loss::Nothing, span),
    };
    Batch {
        epoch,
        incarnation,
        seq: Seq(seq),
        span,
        // The form is part of the bytes, the epoch is not.
        digest: digest(format!("{seq}{}", form.split('@').next().unwrap()).as_bytes()),
        ts: 0,
        format: "script",
        hash: HashInfo { scheme: HashScheme::Unknown, block_size: 0 },
        rank: None,
        events,
        loss,
        bytes: 1,
    }
}

/// An action in the language of transcripts.
fn line(action: &Action) -> String {
    match action {
        Action::Apply(batch) => format!("apply {}", batch.seq),
        Action::Clear { epoch, cause } => format!("clear {epoch} {cause:?}"),
        Action::Install { epoch, resume_seq, .. } => format!("install {epoch} resume {resume_seq}"),
        Action::RequestReplay { start_seq, .. } => format!("request_replay {start_seq}"),
        Action::RequestSnapshot { object, .. } => {
            format!("request_snapshot {}", object.as_deref().unwrap_or("fresh"))
        }
        Action::CancelRequest => "cancel".to_owned(),
        Action::Announce { trust, reason } if trust.device == trust.host => {
            format!("announce {} ({})", trust.device, reason.as_str())
        }
        Action::Announce { trust, reason } => {
            format!("announce {} host {} ({})", trust.device, trust.host, reason.as_str())
        }
        Action::Record(Fact::Gap { first, count }) => {
            format!("record gap first {first} count {count}")
        }
        Action::Record(fact) => format!("record {}", fact.as_str()),
    }
}
