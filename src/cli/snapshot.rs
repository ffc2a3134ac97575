//! `kvbridge snapshot`: views on a bus, or saved from one: shown, saved, compared.

use std::{collections::BTreeMap, path::PathBuf};

use kvbridge_schemas::{BlockHash, Replica, SnapshotHeader, Tier};
use serde_json::{Value, json};
use tokio::{
    fs::File,
    io::{AsyncRead, AsyncWriteExt},
};

use super::{
    AccessArgs, CliError, Console, Environment, Exit, NatsArgs, examples,
    nats_args::{file_error, replica},
    signal,
};
use crate::{
    bus::nats::{
        Reading,
        browse::{At, Browser},
        records_of,
    },
    checkpoint::Fault,
    shared_log::Pointer,
};

/// Blocks that are shown by their hash where two views differ.
const SHOWN_MAX: usize = 10;

/// Show, save and compare the views of a replica on a bus
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = examples::SNAPSHOT)]
pub struct SnapshotArgs {
    #[command(flatten)]
    nats: NatsArgs,
    #[command(flatten)]
    access: AccessArgs,
    /// The replica, by its key
    #[arg(long, value_name = "KEY", value_parser = replica)]
    replica: Option<Replica>,
    /// latest: the view that readers are sent to; now: one of the last seconds; or a file
    #[arg(long, value_name = "VIEW", default_value = "latest", value_parser = place)]
    at: Place,
    /// Save it there
    #[arg(long, value_name = "FILE", conflicts_with = "diff")]
    out: Option<PathBuf>,
    /// Compare two, each one latest, now or a file
    #[arg(long, value_names = ["A", "B"], num_args = 2, value_parser = place, conflicts_with = "at")]
    diff: Vec<Place>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Bus(At),
    File(PathBuf),
}

fn place(text: &str) -> Result<Place, std::convert::Infallible> {
    Ok(match text {
        "latest" => Place::Bus(At::Latest),
        "now" => Place::Bus(At::Now),
        path => Place::File(path.into()),
    })
}

/// Why there is no view to show.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// On a bus there are many.
    #[error("--replica is missing: of which replica on the bus?")]
    NoReplica,
    /// It cannot be read.
    #[error("{from}: {}", chain(.source))]
    Unreadable {
        /// Where it was read from.
        from: String,
        /// Why.
        source: Fault,
    },
}

impl SnapshotError {
    pub(super) fn exit(&self) -> Exit {
        match self {
            SnapshotError::NoReplica => Exit::BadInput,
            SnapshotError::Unreadable { source: Fault::Unreadable(_), .. } => Exit::Failed,
            SnapshotError::Unreadable { .. } => Exit::BadInput,
        }
    }
}

fn chain(fault: &Fault) -> String {
    let cause = std::error::Error::source(fault).map(|cause| format!(": {cause}"));
    format!("{fault}{}", cause.unwrap_or_default())
}

type BlocksByTier = BTreeMap<Tier, BTreeMap<(BlockHash, Option<u32>), u32>>;

/// A view as a whole.
struct Seen {
    from: String,
    pointer: Option<Pointer>,
    header: SnapshotHeader,
    blocks: BlocksByTier,
    parked: u64,
}

impl SnapshotArgs {
    pub(super) async fn execute(
        self,
        environment: &Environment,
        console: &mut Console<'_>,
    ) -> Result<Exit, CliError> {
        let mut stop = signal::Stop::new()?;
        let places = if self.diff.is_empty() { std::slice::from_ref(&self.at) } else { &self.diff };
        let on_bus = places.iter().any(|place| matches!(place, Place::Bus(_)));
        if on_bus && self.replica.is_none() {
            return Err(SnapshotError::NoReplica.into());
        }
        let shown = async {
            let browser = match on_bus {
                true => Some(self.nats.open(&self.access, environment).await?),
                false => None,
            };
            let mut views = Vec::new();
            for place in places {
                views.push(self.read(browser.as_ref(), place).await?);
            }
            match views.as_slice() {
                [a, b] => self.compare(a, b, console),
                views => {
                    views.iter().try_for_each(|view| self.show(view, console)).map(|()| Exit::Ok)
                }
            }
        };
        tokio::select! {
            exit = stop.wait() => Ok(exit),
            exit = shown => exit,
        }
    }

    async fn read(&self, browser: Option<&Browser>, place: &Place) -> Result<Seen, CliError> {
        let (at, browser, replica) = match (place, browser, &self.replica) {
            (Place::Bus(at), Some(browser), Some(replica)) => (*at, browser, replica),
            (Place::Bus(_), ..) => return Err(SnapshotError::NoReplica.into()),
            (Place::File(path), ..) => return self.read_file(path, None).await,
        };
        let view = browser.view(replica, at).await?;
        if let Some(path) = &self.out {
            let mut bytes = view.bytes;
            save(path, &mut bytes).await.map_err(|error| file_error(path, error))?;
            return self.read_file(path, Some(view.pointer)).await;
        }
        seen(view.pointer.object.clone(), Some(view.pointer), records_of(view.bytes)).await
    }

    async fn read_file(&self, path: &PathBuf, pointer: Option<Pointer>) -> Result<Seen, CliError> {
        let file = File::open(path).await.map_err(|error| file_error(path, error))?;
        seen(path.display().to_string(), pointer, records_of(file)).await
    }

    fn show(&self, view: &Seen, console: &mut Console<'_>) -> Result<(), CliError> {
        if self.json {
            console.line(&view.json().to_string())?;
        } else {
            view.lines().iter().try_for_each(|line| console.line(line))?;
        }
        Ok(console.out.flush()?)
    }

    fn compare(&self, a: &Seen, b: &Seen, console: &mut Console<'_>) -> Result<Exit, CliError> {
        let tiers =
            a.blocks.keys().chain(b.blocks.keys()).collect::<std::collections::BTreeSet<_>>();
        let differences: Vec<TierDifference> =
            tiers.into_iter().map(|tier| TierDifference::of(tier, a, b)).collect();
        let same = differences.iter().all(TierDifference::is_none);
        if self.json {
            let tiers: BTreeMap<&str, Value> =
                differences.iter().map(|it| (it.tier.as_str(), it.json())).collect();
            let value = json!({"a": a.json(), "b": b.json(), "same": same, "tiers": tiers});
            console.line(&value.to_string())?;
        } else {
            for (name, view) in [("a", a), ("b", b)] {
                console.line(&format!("{name}: {}", view.head()))?;
            }
            for line in differences.iter().flat_map(TierDifference::lines) {
                console.line(&line)?;
            }
            console.line(if same { "the same blocks" } else { "different blocks" })?;
        }
        console.out.flush()?;
        Ok(if same { Exit::Ok } else { Exit::NotReached })
    }
}

async fn save(path: &PathBuf, bytes: &mut (impl AsyncRead + Unpin)) -> std::io::Result<()> {
    let mut file = File::create(path).await?;
    tokio::io::copy(bytes, &mut file).await?;
    file.flush().await
}

async fn seen(
    from: String,
    pointer: Option<Pointer>,
    mut reading: Reading,
) -> Result<Seen, CliError> {
    let failed = |source| SnapshotError::Unreadable { from: from.clone(), source };
    let header = reading.header().await.map_err(failed)?;
    let (mut blocks, mut parked) = (BlocksByTier::new(), 0);
    while let Some(chunk) = reading.chunk().await {
        for record in chunk.map_err(failed)? {
            parked += u64::from(record.parked);
            let group = record.group.map(|group| group.index);
            blocks.entry(record.tier).or_default().insert((record.hash, group), record.count);
        }
    }
    Ok(Seen { from, pointer, header, blocks, parked })
}

impl Seen {
    fn head(&self) -> String {
        let SnapshotHeader { replica, epoch, resume_seq, trust, state, .. } = &self.header;
        let host = state.as_ref().map_or(*trust, |state| state.host);
        let reason = state.as_ref().map_or("?", |state| &state.reason);
        format!(
            "{}  epoch {epoch}, next seq {resume_seq}, trust {trust} ({reason}), host {host}",
            replica.key()
        )
    }

    fn lines(&self) -> Vec<String> {
        let counts: Vec<String> = self
            .blocks
            .iter()
            .map(|(tier, blocks)| format!("{} on {}", blocks.len(), tier.as_str()))
            .collect();
        let counts = if counts.is_empty() { "none".to_owned() } else { counts.join(", ") };
        let place = self.header.bus_seq.map_or("?".to_owned(), |at| at.0.to_string());
        vec![
            self.head(),
            format!("  blocks: {counts}; {} of them wait for their parent", self.parked),
            format!("  from {}, followed by what lies behind place {place}", self.from),
        ]
    }

    fn json(&self) -> Value {
        let SnapshotHeader { replica, epoch, resume_seq, trust, state, bus_seq, .. } = &self.header;
        let blocks: BTreeMap<&str, usize> =
            self.blocks.iter().map(|(tier, blocks)| (tier.as_str(), blocks.len())).collect();
        json!({
            "key": replica.key().as_str(),
            "from": self.from,
            "epoch": epoch.0,
            "next_seq": resume_seq.0,
            "trust": trust.as_str(),
            "host_trust": state.as_ref().map(|state| state.host.as_str()),
            "reason": state.as_ref().map(|state| &state.reason),
            "place": bus_seq.map(|at| at.0),
            "engine": self.pointer.as_ref().map(|pointer| pointer.engine.as_str()),
            "blocks": blocks,
            "parked": self.parked,
        })
    }
}

/// How two views differ in one tier.
struct TierDifference<'a> {
    tier: &'a Tier,
    only_a: Vec<&'a BlockHash>,
    only_b: Vec<&'a BlockHash>,
    both: usize,
    /// Blocks that both hold in another number of copies.
    copies: usize,
}

impl<'a> TierDifference<'a> {
    fn of(tier: &'a Tier, a: &'a Seen, b: &'a Seen) -> TierDifference<'a> {
        let (of_a, of_b) = (a.blocks.get(tier), b.blocks.get(tier));
        let mut it =
            TierDifference { tier, only_a: Vec::new(), only_b: Vec::new(), both: 0, copies: 0 };
        for (key, count) in of_a.into_iter().flatten() {
            match of_b.and_then(|blocks| blocks.get(key)) {
                Some(other) => {
                    it.both += 1;
                    it.copies += usize::from(other != count);
                }
                None => it.only_a.push(&key.0),
            }
        }
        let only_b = of_b.into_iter().flatten().map(|(key, _)| key);
        let only_b = only_b.filter(|key| of_a.is_none_or(|blocks| !blocks.contains_key(key)));
        it.only_b.extend(only_b.map(|key| &key.0));
        it
    }

    fn is_none(&self) -> bool {
        self.only_a.is_empty() && self.only_b.is_empty() && self.copies == 0
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "{}: {} only in a, {} only in b, {} in both, {} of them in another number",
            self.tier.as_str(),
            self.only_a.len(),
            self.only_b.len(),
            self.both,
            self.copies
        )];
        for (name, hashes) in [("a", &self.only_a), ("b", &self.only_b)] {
            lines.extend(
                hashes
                    .iter()
                    .take(SHOWN_MAX)
                    .map(|hash| format!("  only in {name}: {}", text(hash))),
            );
            if hashes.len() > SHOWN_MAX {
                lines.push(format!("  only in {name}: and {} more", hashes.len() - SHOWN_MAX));
            }
        }
        lines
    }

    fn json(&self) -> Value {
        let texts = |hashes: &[&BlockHash]| hashes.iter().map(|h| text(h)).collect::<Vec<_>>();
        json!({
            "only_a": texts(&self.only_a),
            "only_b": texts(&self.only_b),
            "both": self.both,
            "other_copies": self.copies,
        })
    }
}

fn text(hash: &BlockHash) -> String {
    hex::encode(hash.as_bytes())
}
