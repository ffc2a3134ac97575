//! From what was seen of an engine to findings, in the order in which one would look by hand.

use std::collections::BTreeSet;

use super::{
    DrainLook, EngineSight, Finding, ProbeSight, RankSight, ServerSight, drain_cause, replay,
    table::{
        ALGORITHM_DIFFERS, BLOCK_SIZE_MISMATCH, DRAIN_NOT_TAKEN, ENDPOINT_UNREACHABLE, ENGINE_TOLD,
        EVENTS_FLOW, EVENTS_OFF, EVENTS_UNREADABLE, HASHES_PROVEN, HASHES_UNKNOWN, HASHES_WHOLE,
        HASHES_WRONG, PROBE_FAILED, RANK_DIFFERS, RANK_SILENT, SEQ_FELL, SEQ_MISSING,
        SERVER_UNREACHABLE, SOURCES_UNKNOWN, STREAM_IDLE, STREAM_SILENT, WIRE_FORM,
    },
};

/// Bytes of a hash that is a number.
const NUMBER_BYTES: usize = 8;

/// Stores of short blocks without a whole one beside them that are no accident: every prompt ends
/// in a short one.
const PARTIALS_MIN: u64 = 8;

/// Findings as they are made: of the whole, then of one rank after the other.
#[derive(Debug, Default)]
pub(super) struct Found {
    subject: String,
    found: Vec<Finding>,
}

impl Found {
    pub(super) fn add(&mut self, finding: Finding) {
        self.found.push(finding.of(self.subject.clone()));
    }
}

/// Everything that follows from what was seen of an engine.
pub fn engine(sight: &EngineSight) -> Vec<Finding> {
    let mut found = Found::default();
    server(sight, &mut found);
    if let ProbeSight::Failed(why) = &sight.probe {
        found.add(Finding::new(&PROBE_FAILED, sight.knobs).seen(why));
    }
    drain(sight, &mut found);
    for rank in &sight.ranks {
        found.subject = format!("rank {}", rank.rank);
        stream(sight, rank, &mut found);
        form(sight, rank, &mut found);
        blocks(sight, rank, &mut found);
        hashes(sight, rank, &mut found);
        replay::judge(sight, rank, &mut found);
    }
    found.found
}

fn server(sight: &EngineSight, found: &mut Found) {
    let (about, detail) = match &sight.server {
        ServerSight::NotAsked => return,
        ServerSight::Unreachable(why) => (&SERVER_UNREACHABLE, why.as_str()),
        ServerSight::Untold(why) => (&SOURCES_UNKNOWN, why.as_str()),
        ServerSight::NotPublishing => (&EVENTS_OFF, ""),
        ServerSight::Told(what) => (&ENGINE_TOLD, what.as_str()),
    };
    found.add(Finding::new(about, sight.knobs).seen(detail));
}

/// Why nothing comes of an engine that is drained.
fn drain(sight: &EngineSight, found: &mut Found) {
    let taken = match &sight.drain {
        DrainLook::Published => return,
        DrainLook::NotTaken => return found.add(Finding::new(&DRAIN_NOT_TAKEN, sight.knobs)),
        DrainLook::Taken(taken) => taken,
    };
    if let Some(cause) = drain_cause(taken) {
        let detail = format!(
            "{} requests, {} events, {} empty answers, {} of them at once",
            taken.requests, taken.events, taken.empty, taken.at_once
        );
        found.add(Finding::new(cause.about(), sight.knobs).seen(detail));
    } else if taken.events == 0 {
        let about = if taken.requests > 0 { &STREAM_SILENT } else { &STREAM_IDLE };
        found.add(Finding::new(about, sight.knobs));
    }
}

fn stream(sight: &EngineSight, rank: &RankSight, found: &mut Found) {
    let (heard, listened_ms) = (&rank.stream, sight.listened_ms);
    let about = |about| Finding::new(about, sight.knobs);
    let is_published = sight.drain == DrainLook::Published;
    if is_published && !heard.is_attached {
        return found.add(about(&ENDPOINT_UNREACHABLE).seen(&rank.endpoint));
    }
    if heard.faults > 0 {
        let why = heard.fault.as_deref().unwrap_or_default();
        found.add(about(&EVENTS_UNREADABLE).seen(format!("{}, the first: {why}", heard.faults)));
    }
    if heard.batches > 0 {
        let detail = format!("{} in {listened_ms} ms", heard.batches);
        found.add(about(&EVENTS_FLOW).seen(detail));
    } else if heard.faults == 0 {
        let others_spoke = sight.ranks.iter().any(|other| other.stream.batches > 0);
        let served = sight.served();
        let detail = format!("listened for {listened_ms} ms, {served} requests served");
        if others_spoke {
            found.add(about(&RANK_SILENT).seen(detail));
        } else if is_published {
            let about_it = if served > 0 { &STREAM_SILENT } else { &STREAM_IDLE };
            found.add(about(about_it).seen(detail));
        }
    }
    if heard.missing > 0 {
        found.add(about(&SEQ_MISSING).seen(format!("{} of them", heard.missing)));
    }
    if heard.fell > 0 {
        found.add(about(&SEQ_FELL).seen(format!("{} times", heard.fell)));
    }
}

fn form(sight: &EngineSight, rank: &RankSight, found: &mut Found) {
    let heard = &rank.stream;
    if !heard.formats.is_empty() {
        let releases = |format: &&'static str| {
            let releases = sight.knobs.and_then(|knobs| knobs.releases_of(format));
            releases.map_or_else(|| (*format).to_owned(), |known| format!("{format}: {known}"))
        };
        let forms: Vec<String> = heard.formats.iter().map(releases).collect();
        found.add(Finding::new(&WIRE_FORM, sight.knobs).seen(forms.join(", ")));
    }
    let named: Vec<String> =
        heard.ranks.iter().filter(|it| **it != rank.rank).map(u32::to_string).collect();
    if !named.is_empty() {
        let detail = format!("they name {}", named.join(", "));
        found.add(Finding::new(&RANK_DIFFERS, sight.knobs).seen(detail));
    }
}

fn blocks(sight: &EngineSight, rank: &RankSight, found: &mut Found) {
    let heard = &rank.stream;
    let about = Finding::new(&BLOCK_SIZE_MISMATCH, sight.knobs);
    let others = sight.ranks.iter().flat_map(|it| &it.stream.block_sizes);
    let sizes: BTreeSet<u32> = sight.block_size.iter().chain(others).copied().collect();
    if !heard.block_sizes.is_empty() && sizes.len() > 1 {
        let of =
            |sizes: &BTreeSet<u32>| sizes.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let told = sight.block_size.map_or("nothing".to_owned(), |size| size.to_string());
        let detail = format!(
            "the engine says {told}, blocks of this rank have {}, of all ranks {}",
            of(&heard.block_sizes),
            of(&sizes)
        );
        found.add(about.seen(detail));
    } else if let Some(told) = sight.block_size
        && heard.stores == 0
        && heard.partials >= PARTIALS_MIN
    {
        let detail = format!("the engine says {told}, and all {} have fewer", heard.partials);
        found.add(about.seen(detail));
    }
}

fn hashes(sight: &EngineSight, rank: &RankSight, found: &mut Found) {
    let heard = &rank.stream;
    let about = |about| Finding::new(about, sight.knobs);
    let whole = heard.hash_lengths.iter().rfind(|length| **length > NUMBER_BYTES);
    if let Some(length) = whole {
        found.add(about(&HASHES_WHOLE).seen(format!("{length} bytes")));
    }
    // An algorithm's full name begins with its engine's.
    let short = |name: &str| name.rsplit('.').next().unwrap_or(name).to_owned();
    if let Some(told) = &sight.algorithm
        && let Some(other) = heard.algorithms.iter().find(|it| short(it) != short(told))
    {
        let detail = format!("the server says {told}, events say {}", short(other));
        found.add(about(&ALGORITHM_DIFFERS).seen(detail));
    }
    match heard.hashes {
        Some(proven) if proven.wrong > 0 => {
            let detail = format!("{}: {} blocks of a sample", proven.scheme, proven.wrong);
            found.add(about(&HASHES_WRONG).seen(detail));
        }
        Some(proven) => {
            let detail = format!("{}: {} blocks of a sample", proven.scheme, proven.equal);
            found.add(about(&HASHES_PROVEN).seen(detail));
        }
        None if heard.stores > 0 => found.add(about(&HASHES_UNKNOWN)),
        None => (),
    }
}
