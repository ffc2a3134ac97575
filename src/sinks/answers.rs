//! Requests for a line's past, and the frames of messages.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use bytes::Bytes;
use kvbridge_adapters_zmq::{Addressed, Multipart};
use kvbridge_schemas::ReplicaKey;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::{
    config::limits::{SINK_ANSWER_STALL, SINK_ANSWER_WINDOW, SINK_ANSWERS_MAX},
    sink_line::{Numbered, Past, Payload, ReplayForm},
};

/// What a message costs beside its payload: frames, their places, an entry of a queue.
const MESSAGE_BYTES: usize = 256;

/// The number of an end marker.
const END: [u8; 8] = [0xff; 8];

/// A live message.
pub(super) fn live(topic: &Bytes, batch: &Numbered) -> Multipart {
    vec![topic.clone(), seq(batch), payload(batch)]
}

/// Where a request begins, and of which topics if it says so (what they begin with); `None` = it is
/// none. As engines read it: a number of any length. A topic behind it is our own: engines have one
/// line at a socket.
pub(super) fn request_of(frames: &[Bytes]) -> Option<(u64, Option<Bytes>)> {
    let (start, topic) = match frames {
        [delimiter, start] if delimiter.is_empty() => (start, None),
        [delimiter, start, topic] if delimiter.is_empty() => (start, Some(topic.clone())),
        _ => return None,
    };
    let number = |start: u64, byte: &u8| start.saturating_mul(256).saturating_add(u64::from(*byte));
    Some((start.iter().fold(0, number), topic))
}

/// What is answered of one line.
pub(super) struct Part {
    pub(super) topic: Bytes,
    pub(super) batches: Past,
}

fn reply(form: ReplayForm, topic: &Bytes, seq: Bytes, payload: Bytes) -> Multipart {
    match form {
        ReplayForm::Plain => vec![Bytes::new(), seq, payload],
        ReplayForm::WithTopic => vec![Bytes::new(), topic.clone(), seq, payload],
    }
}

fn seq(batch: &Numbered) -> Bytes {
    Bytes::copy_from_slice(&batch.seq.to_be_bytes())
}

fn payload(batch: &Numbered) -> Bytes {
    Bytes::from_owner(Arc::clone(&batch.payload))
}

/// What is being answered. One answer to a peer at a time, because its own readers could not tell
/// two apart, and a few to all of them.
#[derive(Clone, Default)]
pub(super) struct Answering(Arc<Mutex<Peers>>);

#[derive(Default)]
struct Peers {
    under_way: BTreeSet<Bytes>,
    /// Room for what a peer has not taken. It lives as long as something waits for the peer, so
    /// that one which asks again and again, and never reads, has no more of it.
    windows: BTreeMap<Bytes, Weak<Semaphore>>,
}

impl Answering {
    /// A place for an answer to that peer, if there is one.
    pub(super) fn begin(&self, asked: Asked) -> Result<Answer, Asked> {
        let mut peers = self.peers();
        let free = peers.under_way.len() < SINK_ANSWERS_MAX;
        if !free || !peers.under_way.insert(asked.peer.clone()) {
            return Err(asked);
        }
        peers.windows.retain(|_, window| window.strong_count() > 0);
        let left = peers.windows.get(&asked.peer).and_then(Weak::upgrade);
        let window = left.unwrap_or_else(|| Arc::new(Semaphore::new(SINK_ANSWER_WINDOW)));
        peers.windows.insert(asked.peer.clone(), Arc::downgrade(&window));
        Ok(Answer { answering: self.clone(), asked, window })
    }

    /// The peer is being answered, or has not taken what it was answered.
    pub(super) fn is_busy(&self, peer: &Bytes) -> bool {
        let peers = self.peers();
        let window = peers.windows.get(peer).and_then(Weak::upgrade);
        let unread = window.is_some_and(|it| it.available_permits() < SINK_ANSWER_WINDOW / 2);
        unread || peers.under_way.contains(peer)
    }

    /// There is a place.
    pub(super) fn is_free(&self) -> bool {
        self.peers().under_way.len() < SINK_ANSWERS_MAX
    }

    fn peers(&self) -> MutexGuard<'_, Peers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who asked for what.
pub(super) struct Asked {
    pub(super) peer: Bytes,
    pub(super) start: u64,
    /// Whose lines are left to be answered.
    pub(super) lines: VecDeque<ReplicaKey>,
}

/// One answer; its place is free again when it is dropped.
pub(super) struct Answer {
    answering: Answering,
    pub(super) asked: Asked,
    window: Arc<Semaphore>,
}

/// How far an answer came.
pub(super) enum Sent {
    /// A line of it was sent.
    Line(Answer),
    /// All of it, or the socket is gone and the peer with it.
    Over,
    /// The peer takes nothing.
    Stalled,
}

impl Answer {
    /// Sends what is answered of one line.
    pub(super) async fn line(
        self,
        part: Part,
        form: ReplayForm,
        to: mpsc::Sender<Addressed>,
    ) -> Sent {
        let Part { topic, batches } = part;
        for batch in batches {
            let seq = seq(&batch);
            let Some(payload) = self.taken_with_room(batch.payload).await else {
                return Sent::Stalled;
            };
            let frames = reply(form, &topic, seq, payload);
            if to.send(Addressed { peer: self.asked.peer.clone(), frames }).await.is_err() {
                return Sent::Over;
            }
        }
        Sent::Line(self)
    }

    /// Sends the end marker, which comes always: readers wait for it for ever.
    pub(super) async fn end(self, form: ReplayForm, to: mpsc::Sender<Addressed>) -> Sent {
        let frames = reply(form, &Bytes::new(), Bytes::from_static(&END), Bytes::new());
        if to.send(Addressed { peer: self.asked.peer.clone(), frames }).await.is_err() {
            tracing::debug!("the socket is gone, and the peer with it");
        }
        Sent::Over
    }

    /// The payload as it travels: room of the peer's is taken until its connection has written it.
    /// The library's own bound is 100 000 messages a peer, whatever their bytes, and whoever sends
    /// beyond it waits: with all that share the socket.
    async fn taken_with_room(&self, payload: Payload) -> Option<Bytes> {
        let size = (payload.len() + MESSAGE_BYTES).min(SINK_ANSWER_WINDOW);
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.window).acquire_many_owned(size);
        let room = tokio::time::timeout(SINK_ANSWER_STALL, room).await.ok()?.ok()?;
        Some(Bytes::from_owner(Held { payload, _room: room }))
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.answering.peers().under_way.remove(&self.asked.peer);
    }
}

/// A payload on its way, and its room.
struct Held {
    payload: Payload,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(of: Addressed) -> Vec<Vec<u8>> {
        of.frames.iter().map(|frame| frame.to_vec()).collect()
    }

    fn asked(peer: &'static [u8]) -> Asked {
        Asked { peer: Bytes::from_static(peer), start: 0, lines: VecDeque::new() }
    }

    /// A line of as many batches, of so many bytes each.
    fn part(count: u64, bytes: usize) -> Part {
        let payload: Payload = vec![7; bytes].into();
        let batches = (0..count).map(move |seq| Numbered { seq, payload: Arc::clone(&payload) });
        Part { topic: Bytes::from_static(b"t"), batches: Box::new(batches) }
    }

    #[tokio::test]
    async fn an_answer_has_the_frames_of_its_form_and_an_end_without_a_topic() {
        for (form, wanted) in [
            (ReplayForm::WithTopic, [&b""[..], b"t", &[0, 0, 0, 0, 0, 0, 0, 0], &[7]].to_vec()),
            (ReplayForm::Plain, [&b""[..], &[0, 0, 0, 0, 0, 0, 0, 0], &[7]].to_vec()),
        ] {
            let (to, mut sent) = mpsc::channel(8);
            let answer = Answering::default().begin(asked(b"peer")).ok().unwrap();
            let Sent::Line(answer) = answer.line(part(1, 1), form, to.clone()).await else {
                panic!("the peer reads")
            };
            assert_eq!(frames(sent.recv().await.unwrap()), wanted);
            assert!(matches!(answer.end(form, to).await, Sent::Over));
            let end = frames(sent.recv().await.unwrap());
            assert!(end.iter().all(|frame| frame.is_empty() || *frame == END), "{end:?}");
            assert_eq!(end.len(), wanted.len());
            assert!(sent.recv().await.is_none());
        }
    }

    #[test]
    fn a_peer_is_answered_once_at_a_time_and_not_too_many_are() {
        let answering = Answering::default();
        let peer = |number: u8| Asked { peer: Bytes::copy_from_slice(&[number]), ..asked(b"") };
        let first = answering.begin(peer(0)).ok().unwrap();
        assert!(answering.begin(peer(0)).is_err());
        drop(first);
        let all: Vec<Answer> =
            (0..=u8::MAX).map_while(|at| answering.begin(peer(at)).ok()).collect();
        assert_eq!(all.len(), SINK_ANSWERS_MAX);
        assert!(!answering.is_free());
        drop(all);
        assert!(answering.is_free());
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_has_one_window_of_bytes_however_often_it_asks() {
        let answering = Answering::default();
        let (to, mut queue) = mpsc::channel(100_000);
        let size = 1000;
        for _ in 0..3 {
            let answer = answering.begin(asked(b"peer")).ok().unwrap();
            let sent = answer.line(part(5000, size), ReplayForm::Plain, to.clone()).await;
            assert!(matches!(sent, Sent::Stalled));
            let waiting = queue.len() * (size + MESSAGE_BYTES);
            assert!(waiting <= SINK_ANSWER_WINDOW, "{waiting}");
            assert!(waiting + size + MESSAGE_BYTES > SINK_ANSWER_WINDOW, "{waiting}");
            assert!(answering.is_busy(&Bytes::from_static(b"peer")));
            assert!(!answering.is_busy(&Bytes::from_static(b"other")));
        }
        // Its connection ended, or has written all: the window is whole again.
        while queue.try_recv().is_ok() {}
        assert!(!answering.is_busy(&Bytes::from_static(b"peer")));
        let answer = answering.begin(asked(b"peer")).ok().unwrap();
        let reads = async { while queue.recv().await.is_some() {} };
        let sends = answer.line(part(5000, size), ReplayForm::Plain, to);
        let (sent, ()) = tokio::join!(sends, reads);
        assert!(matches!(sent, Sent::Line(_)));
    }

    #[tokio::test]
    async fn a_batch_larger_than_the_window_is_sent_all_the_same() {
        let (to, mut queue) = mpsc::channel(8);
        let answer = Answering::default().begin(asked(b"peer")).ok().unwrap();
        let large = part(1, 3 * SINK_ANSWER_WINDOW);
        assert!(matches!(answer.line(large, ReplayForm::Plain, to).await, Sent::Line(_)));
        assert_eq!(queue.recv().await.unwrap().frames[2].len(), 3 * SINK_ANSWER_WINDOW);
    }

    #[test]
    fn requests_are_read_as_engines_read_them() {
        let of = |frames: &[&'static [u8]]| {
            request_of(&frames.iter().map(|frame| Bytes::from_static(frame)).collect::<Vec<_>>())
        };
        assert_eq!(of(&[b"", &[0, 0, 0, 0, 0, 0, 1, 2]]), Some((258, None)));
        assert_eq!(of(&[b"", b""]), Some((0, None)));
        assert_eq!(of(&[b"", &[0xff; 12]]), Some((u64::MAX, None)));
        assert_eq!(of(&[b"", &[2], b"t"]), Some((2, Some(Bytes::from_static(b"t")))));
        assert_eq!(of(&[b"x", b""]), None);
        assert_eq!(of(&[b""]), None);
        assert_eq!(of(&[b"", b"", b"", b""]), None);
    }
}
