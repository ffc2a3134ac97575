//! The law of snapshots, on what real engines sent: fold(prefix) → snapshot → install →
//! fold(suffix) == fold(all), cut behind every batch.

use std::{fs::File, io::BufReader, path::Path};

use kvbridge_adapters_api::{Delivery, SourceEvent};
use kvbridge_adapters_trtllm::Instance;
use kvbridge_schemas::{EngineKind, Event, Projection};

use super::{Linked, apply_all};
use crate::{
    capture::{CaptureReader, Socket},
    pipeline::registry,
    view::{View, ViewSettings},
};

/// The events of every live batch of a recording.
fn batches(engine: &EngineKind, path: &Path) -> Vec<Vec<Event>> {
    let reader = CaptureReader::new(BufReader::new(File::open(path).unwrap()));
    let frames = reader.map(|(_, read)| read.unwrap());
    let live = frames.filter(|frame| frame.socket == Socket::LiveIn && frame.frames.len() == 3);
    live.map(|frame| {
        let decoding = registry::decode(engine, &frame.frames);
        assert_eq!(decoding.faults, Vec::<String>::new(), "{}", path.display());
        decoding.batch.unwrap().events
    })
    .collect()
}

/// The same of a recording of what an engine answered, an event a line.
fn answered(path: &Path) -> Vec<Vec<Event>> {
    let mut instance = Instance::new(1, 1);
    let lines = std::fs::read_to_string(path).unwrap();
    let told = lines.lines().flat_map(|line| instance.step(line).told).collect::<Vec<_>>();
    told.into_iter()
        .filter_map(|(_, delivery)| match delivery {
            Delivery::Event(SourceEvent::Live(batch)) => Some(batch.events),
            Delivery::Event(_) | Delivery::Records { .. } | Delivery::Figures(_) => None,
        })
        .collect()
}

fn fold(view: &mut View, linked: &mut Linked, batches: &[Vec<Event>]) {
    for events in batches {
        linked.apply(&apply_all(view, events).0);
    }
    linked.assert_is(view);
}

#[test]
fn law_holds_at_every_cut_of_every_recording() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut cuts = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let Some(stem) = name.strip_suffix(".jsonl") else { continue };
        let engine = EngineKind::from_name(stem.split('-').next().unwrap());
        let first = engine == EngineKind::Trtllm || engine == EngineKind::Sglang;
        let projection = if first { Projection::First8 } else { Projection::Last8 };
        let removal = registry::removal(&engine);
        let settings = ViewSettings::of(projection, removal, 1000);
        // The same engine has recordings of both its ways.
        let is_asked = engine == EngineKind::Trtllm && !stem.contains("-native-");
        let batches = if is_asked { answered(&path) } else { batches(&engine, &path) };
        assert!(!batches.is_empty(), "{name}");
        let (mut all, mut linked) = (View::new(settings), Linked::default());
        fold(&mut all, &mut linked, &batches);
        let (mut prefix, mut linked) = (View::new(settings), Linked::default());
        for at in 0..batches.len() {
            let mut installed = View::install(settings, prefix.snapshot()).unwrap();
            assert_eq!(installed, prefix, "{name} at {at}");
            let mut again = Linked::default();
            again.apply(&installed.links().collect::<Vec<_>>());
            fold(&mut installed, &mut again, &batches[at..]);
            assert_eq!(installed, all, "{name} at {at}");
            fold(&mut prefix, &mut linked, &batches[at..=at]);
            cuts += 1;
        }
    }
    assert!(cuts > 400, "{cuts}");
}
