//! `kvbridge bus status`: streams, replicas, views, lives and bridges at a glance.

use kvbridge_schemas::{Status, Trust};
use serde_json::{Value, json};

use super::{CliError, Console, Exit};
use crate::{
    bus::nats::{
        StreamReport,
        browse::{ReplicaStanding, Standing},
    },
    clock::Clock,
};

/// Shows it. Exit 3 where a stream is missing or differs.
pub(super) fn show(
    console: &mut Console<'_>,
    standing: &Standing,
    as_json: bool,
) -> Result<Exit, CliError> {
    if as_json {
        console.line(&json_of(standing).to_string())?;
    } else {
        standing.streams.iter().try_for_each(|report| stream(console, report))?;
        if standing.streams.is_empty() {
            console.line("no stream")?;
        }
        standing.replicas.iter().try_for_each(|it| replica(console, it))?;
        if standing.more_replicas {
            console.line("and more replicas")?;
        }
        for bridge in &standing.bridges {
            console.line(&format!(
                "bridge {} {}: {} replicas, said {} by its clock",
                bridge.bridge,
                bridge.version,
                bridge.replicas,
                ago(bridge.at)
            ))?;
        }
    }
    console.out.flush()?;
    let good = !standing.streams.is_empty() && standing.streams.iter().all(StreamReport::is_good);
    Ok(if good { Exit::Ok } else { Exit::NotReached })
}

/// One stream beside what it must be.
pub(super) fn stream(console: &mut Console<'_>, report: &StreamReport) -> std::io::Result<()> {
    let Some(info) = &report.info else {
        return console.line(&format!("{}: missing", report.name));
    };
    let word = if report.is_good() { "as wanted" } else { "differs" };
    console.line(&format!("{}: {word}", report.name))?;
    let state = &info.state;
    console.line(&format!(
        "  {} messages, {} bytes, {} replicas, places {} to {}, created {}",
        state.messages,
        state.bytes,
        state.subjects_count,
        state.first_sequence,
        state.last_sequence,
        info.created,
    ))?;
    for difference in &report.differences {
        console.line(&format!("  {difference}"))?;
    }
    Ok(())
}

fn replica(console: &mut Console<'_>, it: &ReplicaStanding) -> std::io::Result<()> {
    let newest = match it.newest {
        Some((at, Some((epoch, seq)))) => {
            format!("the newest is seq {seq} of epoch {epoch} at place {}", at.0)
        }
        Some((at, None)) => format!("the newest at place {} is not ours", at.0),
        None => "none is left".to_owned(),
    };
    console.line(&format!(
        "replica {} in {}: {} messages, {newest}",
        it.key, it.stream, it.message_count
    ))?;
    match &it.life {
        Some(life) => console.line(&format!(
            "  life {}, published to seq {}, on record by {}",
            life.epoch, life.published, life.by
        ))?,
        None => console.line("  no life on record")?,
    }
    match &it.view {
        Some(view) => console.line(&format!(
            "  view of epoch {}, next seq {}, trust {}, at place {}",
            view.epoch, view.resume_seq, view.trust, view.bus_seq.0
        ))?,
        None => console.line("  no view stored")?,
    }
    if it.said.is_empty() {
        console.line("  no bridge speaks for it")?;
    }
    for Status { bridge, trust, reason, next_seq, view_seq, epoch, at, .. } in &it.said {
        let why = if *trust == Trust::Exact { String::new() } else { format!(" ({reason})") };
        let view = view_seq.map(|view| format!(", its view at {view}")).unwrap_or_default();
        let ago = ago(*at);
        console.line(&format!(
            "  bridge {bridge}: trust {trust}{why}, next seq {next_seq} of epoch {epoch}{view}, {ago}"
        ))?;
    }
    Ok(())
}

/// By two wall clocks: for people.
fn ago(at_ms: u64) -> String {
    format!("{} ms ago", Clock::unix_ms().saturating_sub(at_ms))
}

fn json_of(standing: &Standing) -> Value {
    let streams = standing.streams.iter().map(|report| {
        let state = report.info.as_ref().map(|info| {
            json!({
                "messages": info.state.messages,
                "bytes": info.state.bytes,
                "replicas": info.state.subjects_count,
                "first_place": info.state.first_sequence,
                "last_place": info.state.last_sequence,
                "created": info.created.to_string(),
            })
        });
        let differences = report.differences.iter().map(|difference| {
            json!({
                "setting": difference.setting,
                "wanted": difference.wanted,
                "found": difference.found,
            })
        });
        json!({
            "name": report.name,
            "good": report.is_good(),
            "state": state,
            "differences": differences.collect::<Vec<_>>(),
        })
    });
    json!({
        "streams": streams.collect::<Vec<_>>(),
        "replicas": standing.replicas.iter().map(replica_json).collect::<Vec<_>>(),
        "more_replicas": standing.more_replicas,
        "bridges": standing.bridges,
    })
}

fn replica_json(it: &ReplicaStanding) -> Value {
    let newest = it.newest.map(|(at, place)| {
        let (epoch, seq) = place.unzip();
        json!({"place": at.0, "epoch": epoch.map(|it| it.0), "seq": seq.map(|it| it.0)})
    });
    let life = it
        .life
        .as_ref()
        .map(|life| json!({"epoch": life.epoch.0, "published": life.published.0, "by": life.by}));
    let view = it.view.as_ref().map(|view| {
        json!({
            "epoch": view.epoch.0,
            "next_seq": view.resume_seq.0,
            "trust": view.trust.as_str(),
            "place": view.bus_seq.0,
            "object": view.object,
        })
    });
    let said = it.said.iter().map(|status| {
        json!({
            "bridge": status.bridge,
            "trust": status.trust.as_str(),
            "reason": status.reason,
            "epoch": status.epoch.0,
            "next_seq": status.next_seq.0,
            "view_seq": status.view_seq.map(|seq| seq.0),
            "at": status.at,
        })
    });
    json!({
        "key": it.key.as_str(),
        "stream": it.stream,
        "messages": it.message_count,
        "newest": newest,
        "life": life,
        "view": view,
        "bridges": said.collect::<Vec<_>>(),
    })
}
