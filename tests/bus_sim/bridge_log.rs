//! A bridge's end of the log, its snapshots, and how its process ends.

use super::*;

impl Bridge {
    pub(super) fn unix_ms(&self, now: u64) -> u64 {
        self.unix_at_zero + now
    }

    /// A replayed batch that the view has and the log lacks.
    pub(super) fn offer(&mut self, now: u64, event: &SourceEvent) {
        let SourceEvent::Answer { part: AnswerPart::Batch(batch), .. } = event else { return };
        if self.author.wants(batch) {
            let envelope = Arc::new(self.envelope(batch.clone()));
            let unix_ms = self.unix_ms(now);
            self.author.answered(unix_ms, envelope, &mut self.naming);
            self.hand_over();
        }
    }

    /// What the bus may have brought meanwhile: a name, room, or the end of a wait.
    pub(super) fn catch_up(&mut self, now: u64) {
        for (cursor, at) in self.sender.take_acked() {
            self.naming.acked(cursor, at);
        }
        let unix_ms = self.unix_ms(now);
        if self.author.asked_until_ms().is_some_and(|until| until <= unix_ms) {
            self.author.give_up(unix_ms, &mut self.naming);
        }
        self.author.take_name(unix_ms, &mut self.naming);
        self.author.write_unnamed(unix_ms, &mut self.naming);
        if self.trust.device > Trust::None && self.sender.has_room() {
            self.author.catch_up(self.cursor, self.trust.device, true);
        }
        self.hand_over();
        let standing = (self.trust.device, self.reason.as_str());
        self.author.settled(unix_ms, self.cursor, standing, Some(&mut self.naming));
        self.hand_over();
    }

    pub(super) fn hand_over(&mut self) {
        let mut out = VecDeque::from(self.author.made());
        let is_reset =
            |message: &Outgoing| matches!(message.envelope.events.first(), Some(Event::Reset(_)));
        if self.mistake == Some(Mistake::NothingOnResync) {
            out.retain(|message| !is_reset(message));
        }
        if self.mistake == Some(Mistake::BatchesShareMessage) {
            out = self.share(out);
        }
        while let Some(message) = out.pop_front() {
            if !self.sender.has_room() {
                out.push_front(message);
                return self.author.left_out(out);
            }
            if is_reset(&message) {
                let Envelope { epoch, seq, span, .. } = *message.envelope;
                let end = Cursor { epoch, next_seq: seq.plus(u64::from(span)) };
                self.reset = self.reset.max(Some(end));
            }
            self.sender.push(message);
        }
    }

    /// Of a mistake: some batches wait for the one behind them.
    fn share(&mut self, out: VecDeque<Outgoing>) -> VecDeque<Outgoing> {
        let mut shared = VecDeque::new();
        for message in out {
            let is_data = message.envelope.span == 1 && message.envelope.digest != Digest([0; 16]);
            match self.sharing.take() {
                Some(first) if is_data => {
                    let mut envelope = (*first.envelope).clone();
                    envelope.span = 2;
                    envelope.events.extend(message.envelope.events.iter().cloned());
                    shared.push_back(Outgoing { envelope: Arc::new(envelope), id: first.id });
                }
                first => {
                    shared.extend(first);
                    if is_data && self.rng.hit(2_000) {
                        self.sharing = Some(message);
                    } else {
                        shared.push_back(message);
                    }
                }
            }
        }
        shared
    }

    /// The log, the registry and what is said there, for one turn.
    pub(crate) fn bus_turn(
        &mut self,
        now: u64,
        (log, registry, objects): (&mut Log, &mut Registry, &mut Objects),
        faults: &Faults,
    ) -> Result<(), Violation> {
        self.sender.turn(now, log, faults)?;
        if !self.sender.is_connected() {
            self.desk.lost(now, registry);
            return Ok(());
        }
        let pointed = objects.pointer.as_ref().map_or(Epoch(0), |pointer| pointer.epoch);
        let clock = (now, self.unix_ms(now), pointed);
        if let Some(name) = self.desk.turn(clock, &mut self.naming, log, registry) {
            self.trace.say(|| format!("{now:>6} {} is called {name:?}", self.name));
        }
        // What it says from now on is said under that name.
        self.note_exact(now);
        self.keep(now, log, objects);
        Ok(())
    }

    /// What it says of itself now and then.
    pub(crate) fn status(&mut self, now: u64) -> Option<Status> {
        if now < self.beat_at || !self.sender.is_connected() {
            return None;
        }
        self.beat_at = now + 40 + self.rng.below(20);
        self.naming.status(&replica(), self.name, self.unix_at_zero + now)
    }

    /// The batches of an event as this version of the decoder reads them.
    pub(super) fn decoded(&self, event: SourceEvent) -> SourceEvent {
        match event {
            SourceEvent::Live(batch) => SourceEvent::Live(self.read(batch)),
            SourceEvent::Answer { attempt, part: AnswerPart::Batch(batch) } => {
                SourceEvent::Answer { attempt, part: AnswerPart::Batch(self.read(batch)) }
            }
            other => other,
        }
    }

    fn read(&self, mut batch: Batch) -> Batch {
        if self.decoder > 1 {
            batch.format = "model.2";
            let before = batch.events.len();
            let reads = |event: &Event| !matches!(event, Event::Stored(it) if it.blocks.len() > 3);
            batch.events.retain(reads);
            if batch.events.len() < before && batch.loss == Loss::Nothing {
                batch.loss = Loss::Stores;
            }
        }
        batch
    }

    /// The process ends and comes back, with what it kept or without.
    pub(crate) fn restart(&mut self, now: u64, faults: &Faults) {
        if faults.strike(Fault::OtherDecoder, &mut self.rng) {
            self.decoder = 3 - self.decoder;
        }
        if faults.strike(Fault::ClockJump, &mut self.rng) {
            self.unix_at_zero = 200_000_000 + self.rng.below(2 * 86_400_000) - 86_400_000;
            self.settings.unix_ms_at_zero = self.unix_at_zero;
        }
        let kept = self.kept.clone().filter(|_| self.rng.hit(6_000));
        let kept = kept.filter(|(_, _, decoder)| *decoder == self.decoder);
        let (name, whole) = (self.name, kept.is_some());
        self.trace.say(|| format!("{now:>6} {name} ---- back, with a checkpoint: {whole} ----"));
        match kept {
            Some((checkpoint, view, _)) => {
                self.view = view;
                self.recovery = Recovery::restored(self.settings.clone(), checkpoint).unwrap();
            }
            None => {
                self.view = View::new(view_settings());
                self.recovery = Recovery::new(self.settings.clone());
            }
        }
        self.cursor = self.recovery.cursor();
        (self.trust, self.told) = (TierTrust::default(), TierTrust::default());
        self.reason = TrustReason::Detached;
        self.starts += 1;
        self.author = author(self.name, self.starts);
        self.naming = Naming::new(self.cursor, HEARD_LONG_MS);
        let digests: Vec<_> = self.recovery.digests().collect();
        self.naming.restore(digests);
        self.desk = Desk::new(self.name, self.cursor.epoch, self.mistake, self.rng.fork());
        self.desk.content = format!("content {}", self.decoder);
        self.sender.end(now);
        self.answers.forget();
        let back_after = 5 + self.rng.below(300);
        self.live.end(now, back_after);
        (self.cut, self.reset) = (None, None);
    }

    /// Stores a view now and then.
    fn keep(&mut self, now: u64, log: &Log, objects: &mut Objects) {
        if self.rng.hit(100)
            && let Some(checkpoint) = self.recovery.checkpoint("sim")
        {
            self.kept = Some((checkpoint, self.view.clone(), self.decoder));
        }
        if let Some(cut) = self.cut.take_if(|cut| cut.store_at <= now) {
            objects.advance(cut.pointer, cut.object, cut.reset.max(self.reset));
        }
        if now >= self.snapshot_at && self.cut.is_none() {
            self.snapshot_at = now + 150 + self.rng.below(600);
            self.cut = self.make_cut(now, log);
        }
    }

    /// One for whoever asks, as soon as the log has all of it; none if a twin is ahead.
    pub(crate) fn cut_for(&mut self, now: u64, log: &Log) -> Option<Cut> {
        let newest = &log.newest()?.envelope;
        let theirs = newest.seq.plus(u64::from(newest.span));
        let cut = self.take_cut(now, log)?;
        let behind = newest.epoch > cut.pointer.epoch
            || (newest.epoch == cut.pointer.epoch && theirs > cut.pointer.resume_seq);
        (!behind).then_some(cut)
    }

    fn make_cut(&mut self, now: u64, log: &Log) -> Option<Cut> {
        self.take_cut(now, log).filter(|cut| cut.is_published(log))
    }

    fn take_cut(&mut self, now: u64, log: &Log) -> Option<Cut> {
        let ends = log.ends();
        let checkpoint =
            self.recovery.checkpoint("sim").filter(|_| self.trust.device > Trust::None)?;
        let epoch = self.naming.epoch_of(self.cursor.epoch)?;
        let resume_seq = self.cursor.next_seq;
        if checkpoint.trust == Trust::None || resume_seq == Seq(0) {
            return None;
        }
        let mut records = self.view.snapshot();
        if self.mistake == Some(Mistake::SnapshotWithoutCounts) {
            records.iter_mut().for_each(|record| record.count = 1);
        }
        if self.mistake == Some(Mistake::SnapshotWithoutSalt) {
            records.iter_mut().for_each(|record| record.salt = None);
        }
        let header = SnapshotHeader {
            replica: replica(),
            epoch,
            resume_seq,
            bus_seq: Some(ends.last),
            last_digest: self.recovery.digests().last().map(|(_, digest)| digest),
            trust: checkpoint.trust,
            block_count: records.len() as u64,
            state: Some(checkpoint.state),
        };
        let pointer = Pointer {
            epoch,
            trust: header.trust,
            resume_seq,
            bus_seq: ends.last,
            created: ends.created,
            engine: EngineKind::Vllm,
            object: Pointer::object_name(&replica().key(), epoch, resume_seq, self.name),
        };
        let store_at = now + self.rng.below(100);
        Some(Cut { store_at, object: Object { header, records }, pointer, reset: self.reset })
    }
}

impl Cut {
    /// Whether the log has everything that the view was folded from.
    pub(crate) fn is_published(&self, log: &Log) -> bool {
        let Some(newest) = log.newest() else { return false };
        let end = newest.envelope.seq.plus(u64::from(newest.envelope.span));
        newest.envelope.epoch == self.pointer.epoch && end >= self.pointer.resume_seq
    }
}
