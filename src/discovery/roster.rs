//! All entries and their engines.

use std::collections::BTreeMap;

use super::{Address, Answer, Place, Refusal, Settings, engine::Engine};
use crate::recovery::Tick;

/// Something for the shell to do. Its number goes back with what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Look a name up.
    Resolve {
        /// Number of this look.
        number: u64,
        /// Which entry.
        entry: String,
        /// The name.
        name: String,
        /// Port of what is found, where the name does not tell it.
        port: Option<u16>,
    },
    /// Ask an engine where its events are.
    Ask {
        /// Number of this request.
        number: u64,
        /// Which entry.
        entry: String,
        /// Where.
        address: Address,
    },
}

/// What is known of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It was not heard of yet, or has no events.
    Asking,
    /// It told where its events are.
    Found,
    /// Its name leaves it out; what it told stands for the grace time.
    Missing,
}

impl State {
    /// Every state.
    pub const ALL: [State; 3] = [State::Asking, State::Found, State::Missing];

    /// The word shown.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Asking => "asking",
            State::Found => "found",
            State::Missing => "missing",
        }
    }
}

/// How one engine stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing<T> {
    /// Of which entry.
    pub entry: String,
    /// Where it is.
    pub address: Address,
    /// What is known of it.
    pub state: State,
    /// What it told last.
    pub told: Option<T>,
    /// Why the last request told nothing.
    pub refusal: Option<Refusal>,
}

/// A name that is looked up again and again.
#[derive(Clone, Debug)]
struct Look {
    name: String,
    port: Option<u16>,
    at: Tick,
    open: Option<u64>,
    refusal: Option<Refusal>,
}

#[derive(Clone, Debug)]
struct Entry<T> {
    place: Place,
    look: Option<Look>,
    /// By authority.
    engines: BTreeMap<String, Engine<T>>,
}

/// Every engine that is looked for.
#[derive(Clone, Debug)]
pub struct Roster<T> {
    settings: Settings,
    entries: BTreeMap<String, Entry<T>>,
    /// Numbers of what is under way.
    open: Vec<u64>,
    number: u64,
}

impl<T: Clone + PartialEq> Roster<T> {
    /// Nothing is looked for.
    pub fn new(settings: Settings) -> Roster<T> {
        Roster { settings, entries: BTreeMap::new(), open: Vec::new(), number: 0 }
    }

    /// Looks for these from now on, and for no others. An entry that stays keeps what it knows.
    pub fn keep(&mut self, now: Tick, wanted: impl IntoIterator<Item = (String, Place)>) {
        let mut before = std::mem::take(&mut self.entries);
        for (entry, place) in wanted {
            let kept = before.remove(&entry).filter(|known| known.place == place);
            let kept = kept.unwrap_or_else(|| Entry::new(place, now));
            self.entries.insert(entry, kept);
        }
    }

    /// What is to be done now. Each thing is under way until its result is brought.
    pub fn due(&mut self, now: Tick) -> Vec<Task> {
        let mut tasks = Vec::new();
        let room = self.settings.open_max.saturating_sub(self.open.len());
        for (name, entry) in &mut self.entries {
            if let Some(look) = entry.look.as_mut().filter(|look| is_due(look.open, look.at, now))
                && tasks.len() < room
            {
                self.number += 1;
                look.open = Some(self.number);
                tasks.push(Task::Resolve {
                    number: self.number,
                    entry: name.clone(),
                    name: look.name.clone(),
                    port: look.port,
                });
            }
            for engine in entry.engines.values_mut() {
                if is_due(engine.open, engine.ask_at, now) && tasks.len() < room {
                    self.number += 1;
                    engine.open = Some(self.number);
                    tasks.push(Task::Ask {
                        number: self.number,
                        entry: name.clone(),
                        address: engine.address.clone(),
                    });
                }
            }
        }
        let number = |task: &Task| match task {
            Task::Resolve { number, .. } | Task::Ask { number, .. } => *number,
        };
        self.open.extend(tasks.iter().map(number));
        tasks
    }

    /// When something is due next; `None` while as much is under way as may be.
    pub fn next_deadline(&self) -> Option<Tick> {
        if self.open.len() >= self.settings.open_max {
            return None;
        }
        let looks = self.entries.values().filter_map(|entry| entry.look.as_ref());
        let looks = looks.filter(|look| look.open.is_none()).map(|look| look.at);
        let engines = self.entries.values().flat_map(|entry| entry.engines.values());
        let engines = engines.filter(|engine| engine.open.is_none()).map(|engine| engine.ask_at);
        looks.chain(engines).min()
    }

    /// What a look at a name brought: the engines it leads to, none where there is no such name,
    /// or why nothing is known. The last changes nothing, not even the grace time: an engine is
    /// gone when a look that succeeded says so.
    pub fn resolved(
        &mut self,
        now: Tick,
        (number, entry): (u64, &str),
        found: Result<Vec<Address>, Refusal>,
    ) {
        self.open.retain(|open| *open != number);
        let Some(Entry { look: Some(look), engines, .. }) = self.entries.get_mut(entry) else {
            return;
        };
        if look.open != Some(number) {
            return;
        }
        look.open = None;
        look.at = now.plus(self.settings.resolve_ms);
        let mut found: BTreeMap<String, Address> = match found {
            Ok(found) => found.into_iter().map(|it| (it.authority(), it)).collect(),
            Err(refusal) => {
                look.refusal = Some(refusal);
                return;
            }
        };
        look.refusal = found.is_empty().then(|| Refusal {
            reason: "no_address",
            detail: "the name leads to no address".to_owned(),
        });
        engines.retain(|authority, engine| match found.remove(authority) {
            Some(address) => {
                engine.present(address, now);
                true
            }
            None => !engine.absent(now, self.settings.grace_ms),
        });
        for (authority, address) in found {
            // Whoever writes the zone must not choose how many sockets are opened here.
            if engines.len() >= self.settings.engines_max {
                let max = self.settings.engines_max;
                let detail = format!("the name leads to more than {max} addresses");
                look.refusal = Some(Refusal { reason: "too_many", detail });
                break;
            }
            engines.insert(authority, Engine::new(address, now));
        }
    }

    /// What came of a request to an engine.
    pub fn answered(&mut self, now: Tick, (number, entry): (u64, &str), answer: Answer<T>) {
        self.open.retain(|open| *open != number);
        let Some(entry) = self.entries.get_mut(entry) else { return };
        let mut engines = entry.engines.values_mut();
        if let Some(engine) = engines.find(|engine| engine.open == Some(number)) {
            engine.answered(now, answer, &self.settings);
        }
    }

    /// How all engines stand, by entry and address.
    pub fn standings(&self) -> Vec<Standing<T>> {
        let of_entry = |(name, entry): (&String, &Entry<T>)| -> Vec<Standing<T>> {
            let of_engine = |engine: &Engine<T>| Standing {
                entry: name.clone(),
                address: engine.address.clone(),
                state: match (&engine.told, engine.missing_since) {
                    (_, Some(_)) => State::Missing,
                    (Some(_), None) => State::Found,
                    (None, None) => State::Asking,
                },
                told: engine.told.clone(),
                refusal: engine.refusal.clone(),
            };
            entry.engines.values().map(of_engine).collect()
        };
        self.entries.iter().flat_map(of_entry).collect()
    }

    /// Why the last look at a name brought no engine, by entry.
    pub fn refusals(&self) -> BTreeMap<String, Refusal> {
        let of_entry = |(name, entry): (&String, &Entry<T>)| {
            let refusal = entry.look.as_ref()?.refusal.clone()?;
            Some((name.clone(), refusal))
        };
        self.entries.iter().filter_map(of_entry).collect()
    }
}

impl<T: PartialEq> Entry<T> {
    fn new(place: Place, now: Tick) -> Entry<T> {
        let (look, here) = match &place {
            Place::Here(address) => (None, Some(address.clone())),
            Place::Name { name, port } => {
                let (name, port) = (name.clone(), *port);
                (Some(Look { name, port, at: now, open: None, refusal: None }), None)
            }
        };
        let engines = here.map(|it| (it.authority(), Engine::new(it, now)));
        Entry { place, look, engines: engines.into_iter().collect() }
    }
}

fn is_due(open: Option<u64>, at: Tick, now: Tick) -> bool {
    open.is_none() && at <= now
}
