//! Requests for a line's past, and the frames of messages.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use kvbridge_adapters_zmq::{Addressed, Multipart};
use tokio::sync::mpsc;

use crate::{
    config::limits::SINK_ANSWERS_MAX,
    sink_line::{Numbered, Past, ReplayForm},
};

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

/// What is being answered. One answer to a peer at a time, because nothing tells when it has read
/// the one before, and a few to all of them.
#[derive(Clone, Default)]
pub(super) struct Answering(Arc<Mutex<BTreeSet<Bytes>>>);

impl Answering {
    /// A place for an answer to that peer, if there is one.
    pub(super) fn begin(&self, peer: &Bytes) -> Option<Answer> {
        let mut peers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let free = peers.len() < SINK_ANSWERS_MAX && peers.insert(peer.clone());
        free.then(|| Answer { answering: self.clone(), peer: peer.clone() })
    }
}

/// One answer; its place is free again when it is dropped.
pub(super) struct Answer {
    answering: Answering,
    peer: Bytes,
}

impl Answer {
    /// Sends all batches and the end marker, which comes always: readers wait for it for ever.
    pub(super) async fn send(
        self,
        parts: Vec<Part>,
        form: ReplayForm,
        to: mpsc::Sender<Addressed>,
    ) {
        for Part { topic, batches } in parts {
            for batch in batches {
                let frames = reply(form, &topic, seq(&batch), payload(&batch));
                // Closed = the socket is gone, and the peer with it.
                if to.send(Addressed { peer: self.peer.clone(), frames }).await.is_err() {
                    return;
                }
            }
        }
        let frames = reply(form, &Bytes::new(), Bytes::from_static(&END), Bytes::new());
        if to.send(Addressed { peer: self.peer.clone(), frames }).await.is_err() {
            tracing::debug!("the socket is gone, and the peer with it");
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let mut peers = self.answering.0.lock().unwrap_or_else(PoisonError::into_inner);
        peers.remove(&self.peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(of: Addressed) -> Vec<Vec<u8>> {
        of.frames.iter().map(|frame| frame.to_vec()).collect()
    }

    #[tokio::test]
    async fn an_answer_has_the_frames_of_its_form_and_an_end_without_a_topic() {
        for (form, wanted) in [
            (ReplayForm::WithTopic, [&b""[..], b"t", &[0, 0, 0, 0, 0, 0, 0, 7], b"x"].to_vec()),
            (ReplayForm::Plain, [&b""[..], &[0, 0, 0, 0, 0, 0, 0, 7], b"x"].to_vec()),
        ] {
            let (to, mut sent) = mpsc::channel(8);
            let batches = vec![Numbered { seq: 7, payload: Arc::from(*b"x") }];
            let answer = Answering::default().begin(&Bytes::from_static(b"peer")).unwrap();
            let batches = Box::new(batches.into_iter());
            let part = Part { topic: Bytes::from_static(b"t"), batches };
            answer.send(vec![part], form, to).await;
            assert_eq!(frames(sent.recv().await.unwrap()), wanted);
            let end = frames(sent.recv().await.unwrap());
            assert!(end.iter().all(|frame| frame.is_empty() || *frame == END), "{end:?}");
            assert_eq!(end.len(), wanted.len());
            assert!(sent.recv().await.is_none());
        }
    }

    #[test]
    fn a_peer_is_answered_once_at_a_time_and_not_too_many_are() {
        let answering = Answering::default();
        let peer = |number: u8| Bytes::copy_from_slice(&[number]);
        let first = answering.begin(&peer(0)).unwrap();
        assert!(answering.begin(&peer(0)).is_none());
        drop(first);
        let all: Vec<Answer> = (0..=u8::MAX).map_while(|at| answering.begin(&peer(at))).collect();
        assert_eq!(all.len(), SINK_ANSWERS_MAX);
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
