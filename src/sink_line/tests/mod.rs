//! Whatever a replica does and a reader loses: it ends with exactly what is shown, or with nothing.

mod golden;
mod hearers;
mod reader;
mod scenes;
mod sizes;
#[cfg(feature = "sink-smg")]
mod streams;

use std::collections::BTreeMap;

use kvbridge_schemas::{Tier, TierTrust, Trust};
use proptest::{prelude::*, test_runner::Config};

use super::{Change, Line, LineSettings, Moment, Numbered, Numbers, Origin, Preset, Sizes, Told};
use crate::{
    recovery::Tick,
    view::{
        Delta, LinkParent, View, ViewSettings,
        tests::world::{Op, SETTINGS, UNIT, World, op},
    },
};
use reader::Reader;

const GRACE_MS: u64 = 100;
const BEAT_MS: u64 = 1_000;

fn settings(preset: Preset) -> LineSettings {
    LineSettings {
        profile: preset.profile(),
        rank: 0,
        tiers: vec![Tier::Device, Tier::Host],
        sizes: Sizes::Own(Some(UNIT)),
        grace_ms: GRACE_MS,
        heartbeat_ms: BEAT_MS,
        journal_batches_max: 4,
        journal_bytes_max: 600,
        renumber_after: 40,
    }
}

/// A replica, its line and all that was published.
struct Scene {
    view: View,
    line: Line,
    trust: TierTrust,
    now: Tick,
    out: Vec<Numbered>,
}

impl Scene {
    fn new(settings: LineSettings) -> Scene {
        let first_seq = match settings.profile.numbers {
            Numbers::FromZero => 0,
            Numbers::FromClock => 1_000_000,
        };
        Scene {
            view: View::new(ViewSettings { describes: true, ..SETTINGS }),
            line: Line::new(settings, first_seq, Tick(0)),
            trust: TierTrust::default(),
            now: Tick(0),
            out: Vec::new(),
        }
    }

    fn at(&self) -> Moment {
        Moment { now: self.now, unix_ms: self.now.0 }
    }

    fn tell(&mut self, whole: bool, deltas: &[Delta]) {
        let changes: Vec<Change> =
            deltas.iter().filter_map(|delta| Change::of(delta, &self.view)).collect();
        let told = Told { whole, changes: &changes, trust: self.trust };
        self.line.told(self.at(), told, &mut self.out);
    }

    fn apply(&mut self, op: &Op) {
        let mut deltas = Vec::new();
        let event = World { seed: 1 }.event(op);
        self.view.apply(&[event], &mut deltas, &mut Vec::new());
        self.tell(false, &deltas);
    }

    fn trust(&mut self, device: bool, host: bool) {
        let of = |trusted| if trusted { Trust::Exact } else { Trust::None };
        self.trust = TierTrust { device: of(device), host: of(host && device) };
        self.tell(false, &[]);
    }

    fn lose(&mut self) {
        self.view = View::new(ViewSettings { describes: true, ..SETTINGS });
        self.tell(false, &[Delta::Cleared]);
    }

    fn whole(&mut self) {
        let links: Vec<Delta> = self.view.links().collect();
        self.tell(true, &links);
    }

    fn wait(&mut self, ms: u64) {
        self.now = self.now.plus(ms);
        self.line.due(self.at(), &mut self.out);
    }

    /// What a router may know of the view: described, of the size, believed, and reachable.
    fn wanted(&self) -> BTreeMap<(u64, String), Vec<u32>> {
        let mut wanted = BTreeMap::new();
        let links: Vec<Delta> = self.view.links().collect();
        loop {
            let before = wanted.len();
            for link in &links {
                let Delta::Linked { node, parent, tier, .. } = link else { continue };
                let medium = match tier {
                    Tier::Device => "GPU",
                    Tier::Host if self.trust.host > Trust::None => "CPU",
                    Tier::Host | Tier::Disk | Tier::External | Tier::Other(_) => continue,
                };
                let Some(described) = self.view.described(*node) else { continue };
                let has = |key: u64, medium: &str| wanted.contains_key(&(key, medium.to_owned()));
                let reachable = match parent {
                    LinkParent::Root(_) => true,
                    LinkParent::Block(parent) => {
                        has(parent.key, "GPU") || (medium == "CPU" && has(parent.key, "CPU"))
                    }
                };
                if node.block_size == UNIT && reachable {
                    wanted.insert((node.key, medium.to_owned()), described.tokens.0.clone());
                }
            }
            if wanted.len() == before {
                return wanted;
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Apply(Op),
    Trust(bool, bool),
    Lose,
    Whole,
    Wait(u64),
    Join,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => op().prop_map(Step::Apply),
        3 => (any::<bool>(), any::<bool>()).prop_map(|(device, host)| Step::Trust(device, host)),
        3 => any::<bool>().prop_map(|host| Step::Trust(true, host)),
        1 => Just(Step::Lose),
        1 => Just(Step::Whole),
        2 => (1..3 * GRACE_MS).prop_map(Step::Wait),
        1 => Just(Step::Join),
    ]
}

/// Runs the steps; each reader loses what its bits say.
fn run(preset: Preset, steps: &[Step], mut losses: u64) {
    let profile = settings(preset).profile;
    let form = super::Form::Maps;
    let encoding = super::Encoding::Msgpack;
    let profile = super::Profile { form, encoding, ..profile };
    let settings = LineSettings { profile, ..settings(preset) };
    let mut scene = Scene::new(settings);
    let strict = profile.numbers == Numbers::FromZero;
    let reader = || Reader { strict, ..Reader::default() };
    let mut readers = vec![reader()];
    let steps = std::iter::once(&Step::Trust(true, true)).chain(steps).cloned();
    for step in steps.chain([Step::Wait(GRACE_MS), Step::Wait(BEAT_MS)]) {
        match step {
            Step::Apply(op) => scene.apply(&op),
            Step::Trust(device, host) => scene.trust(device, host),
            Step::Lose => scene.lose(),
            Step::Whole => scene.whole(),
            Step::Wait(ms) => scene.wait(ms),
            Step::Join => readers.push(reader()),
        }
        let is_last = scene.now.0 >= BEAT_MS;
        for batch in std::mem::take(&mut scene.out) {
            for reader in &mut readers {
                losses = losses.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                if losses >> 62 != 0 || is_last {
                    reader.live(&scene.line, scene.at(), &batch);
                }
            }
        }
    }
    let wanted = if scene.line.is_shown() { scene.wanted() } else { BTreeMap::new() };
    for reader in &readers {
        assert_eq!(reader.has, wanted);
        assert_eq!(reader.next, Some(scene.line.next_seq()));
    }
    let shown = u64::try_from(wanted.len()).unwrap();
    assert_eq!(scene.line.shown_count(), shown);
}

proptest! {
    #![proptest_config(Config { cases: 300, failure_persistence: None, ..Config::default() })]

    #[test]
    fn a_reader_ends_with_exactly_what_is_shown_or_with_nothing(
        steps in prop::collection::vec(step(), 1..120),
        losses in any::<u64>(),
        preset in prop::sample::select(Preset::ALL.to_vec()),
    ) {
        run(preset, &steps, losses);
    }
}
