//! Every shape of a message, by example and at random.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;

fn frames(parts: &[&[u8]]) -> Vec<Bytes> {
    parts.iter().map(|part| Bytes::copy_from_slice(part)).collect()
}

fn plain(parts: &[&[u8]], frame_bytes_max: usize) -> Result<LiveFrame, FrameError> {
    parse_live(frames(parts), LiveForm::Plain, frame_bytes_max)
}

const SEVEN: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 7];
const ONES: &[u8] = &[0xff; 8];

#[test]
fn live_message_is_three_frames() {
    let live = plain(&[b"kv@a", SEVEN, b"body"], FRAME_BYTES_MAX).unwrap();
    assert_eq!(
        (&live.topic[..], live.seq_frame.seq(), &live.payload[..]),
        (&b"kv@a"[..], 7, &b"body"[..])
    );
    assert_eq!(live.seq_frame.as_bytes(), SEVEN);
    assert_eq!(live.bytes(), 4 + 8 + 4);
    assert_eq!(SeqFrame::of(7), live.seq_frame);
}

#[test]
fn seq_with_publisher_id_keeps_all_bytes() {
    let seq = [SEVEN, &[9; 16]].concat();
    let live = plain(&[b"", &seq, b"body"], FRAME_BYTES_MAX).unwrap();
    assert_eq!((live.seq_frame.seq(), live.seq_frame.as_bytes()), (7, &seq[..]));
}

#[test]
fn live_message_with_other_shape_is_named() {
    let parse = |parts: &[&[u8]]| plain(parts, 16).unwrap_err();
    assert_eq!(parse(&[]), FrameError::LiveFrameCount { came: 0 });
    assert_eq!(parse(&[SEVEN, b"body"]), FrameError::LiveFrameCount { came: 2 });
    assert_eq!(parse(&[b"", b"", SEVEN, b"body"]), FrameError::LiveFrameCount { came: 4 });
    assert_eq!(parse(&[b"", b"7", b"body"]), FrameError::SeqLength { came: 1 });
    assert_eq!(parse(&[b"", SEVEN, &[0; 17]]), FrameError::TooLarge { came: 17, max: 16 });
}

#[test]
fn a_message_of_a_bus_names_its_life() {
    let parse = |parts: &[&[u8]]| parse_live(frames(parts), LiveForm::WithEpoch, 16);
    let live = parse(&[b"kv", SEVEN, SEVEN, b"body"]).unwrap();
    assert_eq!((live.seq_frame.seq(), live.epoch, &live.payload[..]), (7, Some(7), &b"body"[..]));
    assert_eq!(parse(&[b"", SEVEN, b"body"]), Err(FrameError::BusFrameCount { came: 3 }));
    let short = parse(&[b"", SEVEN, b"7", b"body"]);
    assert_eq!(short, Err(FrameError::NumberLength { came: 1 }));
}

#[test]
fn reply_is_read_in_both_framings() {
    let batch = |topic| ReplayFrame::Batch {
        topic: Bytes::from_static(topic),
        seq_frame: SeqFrame::of(7),
        payload: Bytes::from_static(b"b"),
    };
    let parse = |parts: &[&[u8]]| parse_replay(frames(parts), 16).unwrap();
    assert_eq!(parse(&[b"", SEVEN, b"b"]), batch(b""));
    assert_eq!(parse(&[b"", b"kv@a", SEVEN, b"b"]), batch(b"kv@a"));
    assert_eq!(parse(&[b"", b"", SEVEN, b"b"]), batch(b""));
    assert_eq!(parse(&[b"", ONES, b""]), ReplayFrame::End);
    assert_eq!(parse(&[b"", b"", ONES, b""]), ReplayFrame::End);
}

#[test]
fn empty_payload_alone_is_no_end() {
    let reply = parse_replay(frames(&[b"", SEVEN, b""]), 16).unwrap();
    assert_eq!(
        reply,
        ReplayFrame::Batch {
            topic: Bytes::new(),
            seq_frame: SeqFrame::of(7),
            payload: Bytes::new()
        }
    );
}

#[test]
fn reply_with_other_shape_is_named() {
    let parse = |parts: &[&[u8]]| parse_replay(frames(parts), 16).unwrap_err();
    assert_eq!(parse(&[]), FrameError::ReplyFrameCount { came: 0 });
    assert_eq!(parse(&[b""]), FrameError::ReplyFrameCount { came: 1 });
    assert_eq!(parse(&[b"", SEVEN]), FrameError::ReplyFrameCount { came: 2 });
    assert_eq!(parse(&[b"", b"", b"", SEVEN, b"b"]), FrameError::ReplyFrameCount { came: 5 });
    assert_eq!(parse(&[b"x", SEVEN, b"b"]), FrameError::Delimiter { came: 1 });
    assert_eq!(parse(&[b"", b"", b"b"]), FrameError::SeqLength { came: 0 });
    assert_eq!(parse(&[b"", ONES, b"b"]), FrameError::EndWithPayload { came: 1 });
    assert_eq!(parse(&[b"", SEVEN, &[0; 17]]), FrameError::TooLarge { came: 17, max: 16 });
}

#[test]
fn debug_forms_show_no_payload() {
    let live = plain(&[b"", SEVEN, b"secret"], 16).unwrap();
    let reply = parse_replay(frames(&[b"", SEVEN, b"secret"]), 16).unwrap();
    assert_eq!(format!("{live:?}"), "LiveFrame(SeqFrame(7), 6 bytes)");
    assert_eq!(format!("{reply:?}"), "Batch(SeqFrame(7), 6 bytes)");
}

fn any_frames() -> impl Strategy<Value = Vec<Bytes>> {
    let frame = prop_oneof![
        Just(Bytes::new()),
        Just(Bytes::from_static(ONES)),
        proptest::collection::vec(any::<u8>(), 8..=8).prop_map(Bytes::from),
        proptest::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from),
    ];
    proptest::collection::vec(frame, 0..6)
}

proptest! {
    #[test]
    fn any_frames_are_read_or_refused(frames in any_frames(), max in 0_usize..64) {
        if let Ok(live) = parse_live(frames.clone(), LiveForm::Plain, max) {
            let seq = Bytes::copy_from_slice(live.seq_frame.as_bytes());
            prop_assert_eq!(vec![live.topic, seq, live.payload], frames.clone());
        }
        match parse_replay(frames.clone(), max) {
            Ok(ReplayFrame::End) => prop_assert!(frames.last().is_some_and(Bytes::is_empty)),
            Ok(ReplayFrame::Batch { seq_frame, payload, .. }) => {
                prop_assert!(!seq_frame.is_all_ones());
                prop_assert_eq!(Some(&payload), frames.last());
            }
            Err(_) => (),
        }
    }
}
