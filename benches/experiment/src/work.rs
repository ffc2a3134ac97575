//! What is asked: conversations that grow, made from a seed or with the shapes of a recorded trace.

use std::collections::{BTreeMap, VecDeque};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{dice::Dice, world::Setting};

/// One request.
#[derive(Clone, Debug)]
pub struct Turn {
    /// Which conversation it belongs to.
    pub conversation: u64,
    /// Its full blocks. A name stands for its content and everything before it.
    pub blocks: Vec<u64>,
    pub input_tokens: u64,
    pub output_tokens: u64,
}

/// Where turns come from.
pub enum Work {
    Chats(Chats),
    Recorded(Recorded),
}

/// A loop of conversations: a turn follows the answer to the one before, a new conversation the
/// last turn. Nothing is shared between conversations.
pub struct Chats {
    dice: Dice,
    setting: Setting,
    open: Vec<Chat>,
    begun: u64,
}

struct Chat {
    number: u64,
    input_tokens: u64,
    turns_left: u64,
}

impl Chats {
    pub fn new(setting: Setting, seed: u64) -> Chats {
        let mut chats = Chats { dice: Dice::new(seed), setting, open: Vec::new(), begun: 0 };
        for _ in 0..setting.concurrency {
            // In the middle of a conversation: a loop that has gone on for long has all ages.
            let mut chat = chats.begin();
            let gone = chats.dice.roll() % chat.turns_left.max(1);
            chat.turns_left -= gone;
            chat.input_tokens += gone * (setting.output_tokens + setting.asked_tokens);
            chats.open.push(chat);
        }
        chats
    }

    fn begin(&mut self) -> Chat {
        let Setting { first_tokens, turns, .. } = self.setting;
        self.begun += 1;
        Chat {
            number: self.begun,
            input_tokens: self.dice.around(first_tokens),
            turns_left: self.dice.around(turns),
        }
    }

    /// The next turn of a place in the loop.
    pub fn next(&mut self, place: usize) -> Turn {
        if self.open[place].turns_left == 0 {
            self.open[place] = self.begin();
        }
        let output_tokens = self.dice.around(self.setting.output_tokens);
        let asked = self.dice.around(self.setting.asked_tokens);
        let chat = &mut self.open[place];
        chat.turns_left -= 1;
        let turn = Turn {
            conversation: chat.number,
            blocks: blocks(chat.number, chat.input_tokens / self.setting.block_tokens),
            input_tokens: chat.input_tokens,
            output_tokens,
        };
        chat.input_tokens += output_tokens + asked;
        turn
    }
}

fn blocks(conversation: u64, count: u64) -> Vec<u64> {
    (0..count).map(|at| xxh3_64_with_seed(&at.to_le_bytes(), conversation)).collect()
}

/// Tokens that one name of a Mooncake trace stands for.
pub const MOONCAKE_BLOCK_TOKENS: u64 = 512;

/// A recorded trace: when each request came, how long it was, and which blocks it shares.
#[derive(Clone)]
pub struct Recorded {
    /// When, in microseconds, and what.
    pub turns: VecDeque<(u64, Turn)>,
}

impl Recorded {
    /// Reads a Mooncake trace. Conversations have no name in it: what shares its second block is
    /// one, since all begin with the same.
    pub fn mooncake(text: &str, faster: u64) -> Result<Recorded, String> {
        let mut turns = VecDeque::new();
        let mut named: BTreeMap<u64, u64> = BTreeMap::new();
        for (number, line) in text.lines().enumerate() {
            let wrong = || format!("line {}: not a line of a Mooncake trace", number + 1);
            let field = |name| number_after(line, name).ok_or_else(wrong);
            let (at_ms, input_tokens) = (field("\"timestamp\":")?, field("\"input_length\":")?);
            let output_tokens = field("\"output_length\":")?;
            let list = line.split_once("\"hash_ids\": [").ok_or_else(wrong)?.1;
            let list = list.split_once(']').ok_or_else(wrong)?.0;
            let names: Result<Vec<u64>, _> =
                list.split(',').map(|name| name.trim().parse::<u64>()).collect();
            let mut blocks = names.map_err(|_| wrong())?;
            let new = u64::try_from(named.len()).unwrap_or(u64::MAX);
            let second = blocks.get(1).or(blocks.first()).copied().unwrap_or(u64::MAX - new);
            let conversation = *named.entry(second).or_insert(new);
            let full = usize::try_from(input_tokens / MOONCAKE_BLOCK_TOKENS).unwrap_or(usize::MAX);
            blocks.truncate(full);
            let turn = Turn { conversation, blocks, input_tokens, output_tokens };
            turns.push_back((at_ms * 1000 / faster, turn));
        }
        Ok(Recorded { turns })
    }
}

fn number_after(line: &str, name: &str) -> Option<u64> {
    let rest = line.split_once(name)?.1.trim_start();
    let end = rest.find(|it: char| !it.is_ascii_digit()).unwrap_or(rest.len());
    rest.get(..end)?.parse().ok()
}
