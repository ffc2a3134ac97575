//! What a view must be: plain maps, folded from what an independent reader says the frames mean.
//!
//! The events come from tests/fixtures/expect, which a Python script derives without our decoder.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::peer::{recording, root};

/// (hash, tier, group)
type Spot = (String, String, Option<u64>);

/// Where a block stands and what it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) parent: String,
    pub(crate) content: Option<String>,
    pub(crate) salt: Option<String>,
    pub(crate) lora: Option<String>,
}

/// Everything that is resident.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    counts: BTreeMap<Spot, u64>,
    places: BTreeMap<String, Place>,
}

/// The batches of one life of an engine; the index is the seq.
pub(crate) struct Life(pub(crate) Vec<Value>);

/// Short ways into JSON.
pub(crate) trait Text {
    fn text(&self, field: &str) -> String;
    fn list(&self, field: &str) -> &[Value];
}

impl Text for Value {
    fn text(&self, field: &str) -> String {
        self[field].as_str().unwrap_or_else(|| panic!("no text {field} in {self}")).to_owned()
    }

    fn list(&self, field: &str) -> &[Value] {
        self[field].as_array().map_or(&[], Vec::as_slice)
    }
}

fn optional(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// The lives in a capture: a seq of 0 begins one.
pub(crate) fn lives(capture: &str) -> Vec<Life> {
    let path = root().join(format!("tests/fixtures/expect/{}.ndjson", recording(capture)));
    let mut lives: Vec<Life> = Vec::new();
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let batch: Value = serde_json::from_str(line).unwrap();
        if batch["socket"] != "sub" {
            continue;
        }
        if batch["seq"] == 0 {
            lives.push(Life(Vec::new()));
        }
        let life = lives.last_mut().unwrap();
        assert_eq!(batch["seq"], life.0.len(), "captures have no gaps");
        life.0.push(batch);
    }
    lives
}

impl Life {
    /// How many batches it published.
    pub(crate) fn len(&self) -> u64 {
        u64::try_from(self.0.len()).unwrap()
    }

    /// The state of who saw these seqs and nothing before.
    pub(crate) fn fold(&self, seqs: std::ops::Range<u64>) -> State {
        let mut state = State::default();
        for seq in seqs {
            state.apply(&self.0[usize::try_from(seq).unwrap()]);
        }
        state
    }
}

impl State {
    pub(crate) fn apply(&mut self, batch: &Value) {
        batch.list("events").iter().for_each(|event| self.event(event));
        let resident: BTreeSet<&String> = self.counts.keys().map(|(hash, ..)| hash).collect();
        self.places.retain(|hash, _| resident.contains(hash));
    }

    fn event(&mut self, event: &Value) {
        let group = event["group"]["index"].as_u64();
        match event.text("type").as_str() {
            "stored" => {
                let mut parent = event.text("parent");
                for block in event.list("blocks") {
                    let hash = block[0].as_str().unwrap().to_owned();
                    let place = Place {
                        parent: parent.clone(),
                        content: optional(&block[1]),
                        salt: optional(&event["salt"]),
                        lora: optional(&event["lora"]),
                    };
                    self.places.insert(hash.clone(), place);
                    *self.counts.entry((hash.clone(), event.text("tier"), group)).or_default() += 1;
                    parent = hash;
                }
            }
            "removed" => {
                for hash in event.list("hashes") {
                    let spot = (hash.as_str().unwrap().to_owned(), event.text("tier"), group);
                    // Who came late is told of removals of what it never saw.
                    if let Some(count) = self.counts.get_mut(&spot) {
                        *count -= 1;
                    }
                }
                self.counts.retain(|_, count| *count > 0);
            }
            "cleared" => {
                let scope = event.list("scope");
                self.counts.retain(|(_, tier, _), _| !scope.iter().any(|cleared| cleared == tier));
            }
            other => panic!("no rule for {other}"),
        }
    }

    /// The state that a snapshot's records tell.
    pub(crate) fn of_snapshot(records: &[Value]) -> State {
        let mut state = State::default();
        for record in records {
            let hash = record.text("hash");
            let parent = match record.get("parent") {
                None => "unknown".to_owned(),
                Some(Value::Null) => "root".to_owned(),
                Some(_) => record.text("parent"),
            };
            let place = Place {
                parent,
                content: optional(&record["content"]),
                salt: optional(&record["salt"]),
                lora: optional(&record["lora"]),
            };
            state.places.insert(hash.clone(), place);
            let spot = (hash, record.text("tier"), record["group"]["index"].as_u64());
            let twice = state.counts.insert(spot, record["count"].as_u64().unwrap());
            assert_eq!(twice, None, "{record} came twice");
        }
        state
    }

    /// As a reader sees it who may not see prompts: that a block is salted, not with what.
    pub(crate) fn redacted(&self) -> State {
        let mut state = self.clone();
        for place in state.places.values_mut() {
            place.salt = place.salt.as_ref().map(|_| "***".to_owned());
        }
        state
    }

    /// What only one of the two holds.
    pub(crate) fn difference(&self, other: &State) -> Vec<String> {
        let lines = |state: &State| {
            let counts = state.counts.iter().map(|count| format!("{count:?}"));
            let places = state.places.iter().map(|place| format!("{place:?}"));
            counts.chain(places).collect::<BTreeSet<String>>()
        };
        lines(self).symmetric_difference(&lines(other)).cloned().collect()
    }

    /// Nothing is resident.
    pub(crate) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// The blocks, each with its place.
    pub(crate) fn places(&self) -> impl Iterator<Item = (&String, &Place)> {
        self.places.iter()
    }

    /// How many blocks of a prompt are on the device, from the first on.
    pub(crate) fn matched(&self, prompt: &[String], salt: Option<&str>) -> usize {
        let mut at = BTreeSet::from(["root"]);
        for (depth, content) in prompt.iter().enumerate() {
            let next: BTreeSet<&str> = self
                .places
                .iter()
                .filter(|(_, place)| at.contains(place.parent.as_str()))
                .filter(|(_, place)| place.content.as_ref() == Some(content))
                .filter(|(_, place)| depth > 0 || place.salt.as_deref() == salt)
                .map(|(hash, _)| hash.as_str())
                .collect();
            if next.is_empty() {
                return depth;
            }
            at = next;
        }
        prompt.len()
    }
}
