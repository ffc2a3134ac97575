//! From a bridge's spool to the stream: a window over a connection that breaks.

use std::collections::{BTreeMap, VecDeque};

use kvbridge::{
    schemas::{BusSeq, Cursor},
    shared_log::{Outgoing, Window},
};

use crate::{
    faults::{Fault, Faults},
    invariants::Violation,
    log::Log,
    reading::WINDOW,
    rng::Rng,
};

/// Messages that wait behind the window.
const SPOOL_MAX: usize = 60;

/// How long an acknowledgement is waited for.
const ACK_TIMEOUT_MS: u64 = 60;

/// One bridge's way to the log.
pub(crate) struct Sender {
    spool: VecDeque<Outgoing>,
    window: Window<Outgoing>,
    /// Under way to the stream.
    up: VecDeque<(u64, u64, Outgoing)>,
    /// Under way back.
    down: VecDeque<(u64, u64, String, BusSeq)>,
    /// Acknowledged behind one that is not.
    early: BTreeMap<String, BusSeq>,
    /// Counts connections and failures: acknowledgements of an earlier one count for nothing.
    turn: u64,
    connected: bool,
    back_at: u64,
    lost_at: Option<u64>,
    waits_since: Option<u64>,
    /// So many messages the stream will not take, although later ones it will.
    swallow: u64,
    /// Acknowledged since this was last asked.
    acked: Vec<(Cursor, BusSeq)>,
    rng: Rng,
}

impl Sender {
    pub(crate) fn new(rng: Rng) -> Sender {
        Sender {
            spool: VecDeque::new(),
            window: Window::new(WINDOW),
            up: VecDeque::new(),
            down: VecDeque::new(),
            early: BTreeMap::new(),
            turn: 0,
            connected: true,
            back_at: 0,
            lost_at: None,
            waits_since: None,
            swallow: 0,
            acked: Vec::new(),
            rng,
        }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.spool.len() < SPOOL_MAX
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connected
    }

    pub(crate) fn push(&mut self, message: Outgoing) {
        self.spool.push_back(message);
    }

    /// What the log has everything below, by its own word, since this was last asked.
    pub(crate) fn take_acked(&mut self) -> Vec<(Cursor, BusSeq)> {
        std::mem::take(&mut self.acked)
    }

    /// The process ends; what had left it may still get there.
    pub(crate) fn end(&mut self, now: u64) {
        self.cut(now);
        self.spool.clear();
        self.window = Window::new(WINDOW);
        self.lost_at = None;
        self.acked.clear();
    }

    /// One turn of the connection.
    pub(crate) fn turn(
        &mut self,
        now: u64,
        log: &mut Log,
        faults: &Faults,
    ) -> Result<(), Violation> {
        if self.connected && faults.strike(Fault::BridgeCut, &mut self.rng) {
            self.cut(now);
        }
        if !self.connected && self.back_at <= now {
            self.come_back(now, log);
        }
        self.arrive(now, log, faults)?;
        if !self.connected {
            return Ok(());
        }
        self.hear(now);
        self.send(now);
        Ok(())
    }

    fn cut(&mut self, now: u64) {
        self.connected = false;
        self.back_at = now + 5 + self.rng.below(700);
        self.lost_at.get_or_insert(now);
        // What had left the process may still get there.
        let kept = usize::try_from(self.rng.below(self.up.len() as u64 + 1)).unwrap();
        self.up.truncate(kept);
        self.fail();
    }

    fn fail(&mut self) {
        self.turn += 1;
        self.down.clear();
        self.early.clear();
        self.window.failed();
        self.waits_since = None;
    }

    fn come_back(&mut self, now: u64, log: &Log) {
        self.connected = true;
        let away_ms = self.lost_at.take().map_or(0, |at| now - at);
        if away_ms >= log.known_ms() / 2 {
            self.window
                .take_stored(|message| log.from(BusSeq(0)).any(|stored| stored.id == message.id));
        }
    }

    fn arrive(&mut self, now: u64, log: &mut Log, faults: &Faults) -> Result<(), Violation> {
        while let Some((_, turn, message)) = self.up.pop_front_if(|(at, _, _)| *at <= now) {
            if log.is_full(now) {
                continue;
            }
            if self.swallow > 0 {
                self.swallow -= 1;
                continue;
            }
            if faults.strike(Fault::NotStored, &mut self.rng) {
                // A new leader did not get these; what follows it does.
                self.swallow = self.rng.below(WINDOW as u64);
                continue;
            }
            let ack = log.store(now, &message)?;
            if faults.strike(Fault::AckLost, &mut self.rng) {
                continue;
            }
            if turn == self.turn {
                self.down.push_back((now + 1 + self.rng.below(4), turn, message.id, ack.at));
            }
        }
        Ok(())
    }

    fn hear(&mut self, now: u64) {
        while let Some((_, turn, id, at)) = self.down.pop_front_if(|(at, ..)| *at <= now) {
            if turn == self.turn {
                self.early.insert(id, at);
            }
        }
        // In order: what is acknowledged behind one that is not is sent again with it.
        loop {
            let oldest = self.window.iter().next().map(|oldest| oldest.id.as_str());
            let Some(at) = oldest.and_then(|id| self.early.remove(id)) else { break };
            let Some(message) = self.window.acked() else { break };
            let end = message.envelope.seq.plus(u64::from(message.envelope.span));
            let behind = Cursor { epoch: message.envelope.epoch, next_seq: end };
            self.acked.push((behind, at));
            self.waits_since = (!self.window.is_empty()).then_some(now);
        }
        if self.waits_since.is_some_and(|since| since + ACK_TIMEOUT_MS <= now) {
            self.fail();
        }
    }

    fn send(&mut self, now: u64) {
        while !self.window.is_full()
            && let Some(message) = self.spool.pop_front()
        {
            self.window.push(message);
        }
        let mut at = self.up.back().map_or(now, |(at, _, _)| *at).max(now);
        while let Some(message) = self.window.to_send() {
            at += self.rng.below(3);
            self.up.push_back((at, self.turn, message.clone()));
            self.window.sent();
            self.waits_since.get_or_insert(now);
        }
    }
}
