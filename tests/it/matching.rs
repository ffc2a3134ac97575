//! /v1/match against the oracle, while events flow and once a gap is open.
//!
//! An answer says of which version it is; it is compared with the oracle's state at that seq.

use std::{collections::BTreeMap, process::Command};

use serde_json::{Value, json};

use crate::{
    bridge::Bridge,
    oracle::{Life, Place, State, lives},
    peer::{Peer, capture, root},
};

const RECORDING: &str = "0.32.0-basic";
const BLOCK_SIZE: usize = 32;
const PROMPTS: usize = 10_000;
/// Asked at a time, over connections of their own.
const TOGETHER: usize = 16;
/// Batches in the first life.
const BATCHES: usize = 62;

/// A small generator: the same prompts every time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(bound).unwrap()).unwrap()
    }

    fn one_in(&mut self, chance: usize) -> bool {
        self.below(chance) == 0
    }
}

#[derive(Clone)]
struct Prompt {
    contents: Vec<String>,
    salt: Option<String>,
}

/// Every prefix that was ever stored, and what else prompts are made of.
struct Prompts {
    known: Vec<Prompt>,
    tokens: BTreeMap<String, Vec<u32>>,
    random: Random,
}

impl Prompts {
    fn new(states: &[State]) -> Prompts {
        let mut places: BTreeMap<String, Place> = BTreeMap::new();
        for state in states {
            places.extend(state.places().map(|(hash, place)| (hash.clone(), place.clone())));
        }
        let known = places.keys().map(|hash| prefix(&places, hash)).collect();
        let script = root().join("tests/peers/block_tokens.py");
        let read = Command::new("python3").arg(script).arg(capture(RECORDING)).output().unwrap();
        assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
        let tokens = serde_json::from_slice(&read.stdout).unwrap();
        Prompts { known, tokens, random: Random(0x9E37_79B9_7F4A_7C15) }
    }

    /// A known prefix, often cut, continued with another's end, or with a block that is in none.
    fn next(&mut self) -> Prompt {
        let mut prompt = self.pick();
        let other = self.pick();
        if self.random.one_in(3) {
            let length = 1 + self.random.below(prompt.contents.len());
            prompt.contents.truncate(length);
        }
        if self.random.one_in(3) {
            let from = self.random.below(other.contents.len());
            prompt.contents.extend_from_slice(&other.contents[from..]);
        }
        if self.random.one_in(8) {
            let at = self.random.below(prompt.contents.len());
            prompt.contents[at] = other.contents[0].clone();
        }
        if self.random.one_in(10) {
            prompt.salt = if prompt.salt.is_some() { None } else { Some("other".to_owned()) };
        }
        prompt
    }

    fn pick(&mut self) -> Prompt {
        let at = self.random.below(self.known.len());
        self.known[at].clone()
    }

    /// As content hashes, or as tokens with the beginning of one more block.
    fn question(&mut self, prompt: &Prompt) -> String {
        let mut question = json!({"model": "m"});
        if let Some(salt) = &prompt.salt {
            question["salt"] = json!(salt);
        }
        if self.random.one_in(2) {
            let mut tokens: Vec<u32> =
                prompt.contents.iter().flat_map(|c| &self.tokens[c]).copied().collect();
            let tail = self.random.below(BLOCK_SIZE);
            tokens.extend(std::iter::repeat_n(7, tail));
            question["token_ids"] = json!(tokens);
        } else {
            question["content_hashes"] = json!(prompt.contents);
            question["block_size"] = json!(BLOCK_SIZE);
        }
        question.to_string()
    }
}

fn prefix(places: &BTreeMap<String, Place>, hash: &str) -> Prompt {
    let mut contents = Vec::new();
    let mut at = hash.to_owned();
    loop {
        let place = &places[&at];
        contents.push(place.content.clone().unwrap());
        if place.parent == "root" {
            contents.reverse();
            return Prompt { contents, salt: place.salt.clone() };
        }
        at.clone_from(&place.parent);
    }
}

fn states(life: &Life) -> Vec<State> {
    let mut states = vec![State::default()];
    for batch in &life.0 {
        let mut next = states.last().unwrap().clone();
        next.apply(batch);
        states.push(next);
    }
    states
}

/// Compares one answer; says whether it was usable, and how much it found.
fn check(answer: &Value, prompt: &Prompt, states: &[State], published: usize) -> Option<usize> {
    let found = &answer["replicas"][0];
    let number = |value: &Value| usize::try_from(value.as_u64().unwrap()).unwrap();
    let blocks = number(&found["matched_blocks"]);
    assert_eq!(number(&found["matched_tokens"]), blocks * BLOCK_SIZE);
    if found["usable"] == false {
        assert_eq!((found["trust"].as_str(), blocks), (Some("none"), 0), "{found}");
        assert_eq!(answer["fallback"], "load");
        return None;
    }
    let next_seq = number(&found["as_of"]["next_seq"]);
    assert!(next_seq <= published, "{next_seq} of {published}");
    assert_eq!((found["trust"].as_str(), &answer["fallback"]), (Some("exact"), &Value::Null));
    let expected = states[next_seq].matched(&prompt.contents, prompt.salt.as_deref());
    assert_eq!(blocks, expected, "at {next_seq}: {:?}", prompt.contents);
    let device = found["by_tier"].get("device").map_or(0, number);
    assert_eq!(device, blocks);
    Some(blocks)
}

#[test]
fn ten_thousand_prompts_while_events_flow() {
    let states = states(&lives(RECORDING)[0]);
    let mut prompts = Prompts::new(&states);
    let mut peer = Peer::play(&capture(RECORDING), &["--withhold", "20"]);
    let config = "[recovery]\nreplay_deadline = \"200ms\"\nattempts = 50\n";
    let bridge = Bridge::run("matching", &[peer.source()], config);
    peer.wait_subscriber();
    let (mut published, mut asked, mut usable, mut blocks) = (0, 0, 0, 0);
    while asked < PROMPTS {
        // Batches go out between questions, and nobody waits for them to be applied.
        if published < BATCHES && asked >= published * (PROMPTS / BATCHES) {
            match published {
                20 => peer.set(&json!({"stall_after": 0})),
                24 => peer.set(&json!({"stall_after": null})),
                _ => (),
            }
            peer.publish(1);
            published += 1;
        }
        let batch: Vec<(Prompt, String)> = (0..TOGETHER)
            .map(|_| {
                let prompt = prompts.next();
                let question = prompts.question(&prompt);
                (prompt, question)
            })
            .collect();
        let url = format!("{}/v1/match", bridge.url);
        let answers = bridge.block_on(futures::future::join_all(batch.iter().map(|(_, body)| {
            let request = bridge.client.post(&url).body(body.clone());
            async { request.send().await.unwrap().text().await.unwrap() }
        })));
        for (answer, (prompt, _)) in answers.iter().zip(&batch) {
            let answer = serde_json::from_str(answer).unwrap();
            if let Some(found) = check(&answer, prompt, &states, published) {
                usable += 1;
                blocks += usize::from(found > 0);
            }
        }
        asked += TOGETHER;
    }
    bridge.reaches("exact", u64::try_from(BATCHES).unwrap());
    bridge.view_is(&states[BATCHES]);
    assert!(usable > PROMPTS / 4, "{usable} answers were usable");
    assert!(usable < asked, "the open gap was never seen");
    assert!(blocks > PROMPTS / 20, "{blocks} answers found something");
    assert_eq!(bridge.fact("gap"), 1);
}
