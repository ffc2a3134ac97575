//! As much of ZMTP 3.0 as a publisher needs that connects: the greeting, READY, subscriptions that
//! come and messages that go. Pure bytes; foreign lengths are checked before anything is allocated.

use bytes::Bytes;

use crate::outlet::Multipart;

/// Bytes of a greeting.
pub(super) const GREETING_BYTES: usize = 64;

/// Longest frame of a reader: READY or a subscription. A topic is some hundred bytes.
pub(super) const FRAME_BYTES_MAX: u64 = 64 * 1024;

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// Why a peer is not a reader.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Its first bytes are another protocol's.
    #[error("it does not speak ZMTP 3")]
    NotZmtp,
    /// It wants CURVE or PLAIN.
    #[error("it wants another mechanism than NULL")]
    Mechanism,
    /// It is a socket that does not subscribe.
    #[error("it is no SUB: {socket:?}")]
    NotSub {
        /// What it says it is.
        socket: String,
    },
    /// A frame that no reader sends.
    #[error("a frame of {bytes} bytes")]
    TooLong {
        /// What it announces.
        bytes: u64,
    },
}

/// Version 3.0, so that subscriptions come as messages and no heartbeats are agreed on.
pub(super) fn greeting() -> [u8; GREETING_BYTES] {
    let mut bytes = [0; GREETING_BYTES];
    let parts: [(usize, &[u8]); 4] = [(0, &[0xff]), (9, &[0x7f]), (10, &[3, 0]), (12, b"NULL")];
    for (at, part) in parts {
        if let Some(place) = bytes.get_mut(at..at + part.len()) {
            place.copy_from_slice(part);
        }
    }
    bytes
}

pub(super) fn check_greeting(bytes: &[u8; GREETING_BYTES]) -> Result<(), WireError> {
    let [0xff, _, _, _, _, _, _, _, _, last, major, _, mechanism @ ..] = bytes else {
        return Err(WireError::NotZmtp);
    };
    if last & 1 == 0 || *major < 3 {
        return Err(WireError::NotZmtp);
    }
    let name = mechanism.get(..20).unwrap_or_default();
    let (null, rest) = name.split_at_checked(4).unwrap_or_default();
    if null == b"NULL" && rest.iter().all(|byte| *byte == 0) {
        Ok(())
    } else {
        Err(WireError::Mechanism)
    }
}

pub(super) fn ready() -> Vec<u8> {
    let mut body = b"\x05READY\x0bSocket-Type".to_vec();
    body.extend(4_u32.to_be_bytes());
    body.extend(b"XPUB");
    let mut frame = Vec::new();
    put(&mut frame, COMMAND, &body);
    frame
}

/// What a reader says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// It is ready, as a socket of that type.
    Ready(String),
    /// It listens to topics with that prefix.
    Listens(Bytes),
    /// It does so no more.
    Leaves(Bytes),
    /// Something else.
    Other,
}

/// How long the rest of a frame's header is, of its flags.
pub(super) fn length_bytes(flags: u8) -> usize {
    if flags & LONG == 0 { 1 } else { 8 }
}

/// How long its body is.
pub(super) fn body_length(header: &[u8]) -> Result<usize, WireError> {
    let bytes = header.iter().fold(0_u64, |length, byte| length << 8 | u64::from(*byte));
    match usize::try_from(bytes) {
        Ok(length) if bytes <= FRAME_BYTES_MAX => Ok(length),
        Ok(_) | Err(_) => Err(WireError::TooLong { bytes }),
    }
}

pub(super) fn hear(flags: u8, body: &[u8]) -> Heard {
    if flags & COMMAND == 0 {
        return match body.split_first() {
            Some((1, topic)) => Heard::Listens(Bytes::copy_from_slice(topic)),
            Some((0, topic)) => Heard::Leaves(Bytes::copy_from_slice(topic)),
            Some(_) | None => Heard::Other,
        };
    }
    let named = |name: &[u8]| body.strip_prefix(name);
    if let Some(properties) = named(b"\x05READY") {
        return Heard::Ready(socket_type(properties));
    }
    // As newer readers say it to newer publishers.
    if let Some(topic) = named(b"\x09SUBSCRIBE") {
        return Heard::Listens(Bytes::copy_from_slice(topic));
    }
    match named(b"\x06CANCEL") {
        Some(topic) => Heard::Leaves(Bytes::copy_from_slice(topic)),
        None => Heard::Other,
    }
}

fn socket_type(mut properties: &[u8]) -> String {
    let property = |bytes: &mut &[u8]| {
        let (length, rest) = bytes.split_first()?;
        let (name, rest) = rest.split_at_checked(usize::from(*length))?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (value, rest) = rest.split_at_checked(length)?;
        *bytes = rest;
        Some((name.to_ascii_lowercase(), String::from_utf8_lossy(value).into_owned()))
    };
    while let Some((name, value)) = property(&mut properties) {
        if name == b"socket-type" {
            return value;
        }
    }
    String::new()
}

/// Whether a socket of that type subscribes.
pub(super) fn subscribes(socket: &str) -> Result<(), WireError> {
    match socket {
        "SUB" | "XSUB" => Ok(()),
        other => Err(WireError::NotSub { socket: other.to_owned() }),
    }
}

/// The bytes of a message.
pub(super) fn message(frames: &Multipart) -> Vec<u8> {
    let length: usize = frames.iter().map(|frame| frame.len() + 9).sum();
    let mut bytes = Vec::with_capacity(length);
    for (at, frame) in frames.iter().enumerate() {
        let more = if at + 1 < frames.len() { MORE } else { 0 };
        put(&mut bytes, more, frame);
    }
    bytes
}

fn put(bytes: &mut Vec<u8>, flags: u8, body: &[u8]) {
    match u8::try_from(body.len()) {
        Ok(length) => bytes.extend([flags, length]),
        Err(_) => {
            bytes.push(flags | LONG);
            bytes.extend(u64::try_from(body.len()).unwrap_or(u64::MAX).to_be_bytes());
        }
    }
    bytes.extend_from_slice(body);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_is_one_and_others_are_told_apart() {
        assert_eq!(check_greeting(&greeting()), Ok(()));
        let changed = |at: usize, byte: u8| {
            let mut bytes = greeting();
            bytes[at] = byte;
            check_greeting(&bytes)
        };
        assert_eq!(changed(0, b'H'), Err(WireError::NotZmtp));
        assert_eq!(changed(10, 2), Err(WireError::NotZmtp));
        assert_eq!(changed(12, b'P'), Err(WireError::Mechanism));
        assert_eq!(changed(16, b'X'), Err(WireError::Mechanism));
    }

    #[test]
    fn what_readers_say_is_understood_and_what_they_claim_is_bounded() {
        let ready = ready();
        let (flags, rest) = ready.split_first().unwrap();
        assert_eq!((*flags, length_bytes(*flags)), (4, 1));
        assert_eq!(body_length(&rest[..1]), Ok(rest.len() - 1));
        assert_eq!(hear(4, &rest[1..]), Heard::Ready("XPUB".to_owned()));
        assert!(subscribes("SUB").is_ok() && subscribes("ROUTER").is_err());
        let topic = || Bytes::from_static(b"kv@");
        assert_eq!(hear(0, b"\x01kv@"), Heard::Listens(topic()));
        assert_eq!(hear(0, b"\x00kv@"), Heard::Leaves(topic()));
        assert_eq!(hear(4, b"\x09SUBSCRIBEkv@"), Heard::Listens(topic()));
        assert_eq!(hear(4, b"\x06CANCELkv@"), Heard::Leaves(topic()));
        assert_eq!(hear(4, b"\x04PING\x00\x00"), Heard::Other);
        assert_eq!(hear(4, b"\x05READY\xff"), Heard::Ready(String::new()));
        let claim = [0xff; 8];
        assert_eq!(body_length(&claim), Err(WireError::TooLong { bytes: u64::MAX }));
    }

    #[test]
    fn a_message_has_a_header_for_each_frame() {
        let long = vec![7; 300];
        let frames = vec![Bytes::from_static(b"t"), Bytes::from(long)];
        let bytes = message(&frames);
        assert_eq!(bytes[..12], [1, 1, b't', 2, 0, 0, 0, 0, 0, 0, 1, 44]);
        assert_eq!(bytes.len(), 312);
    }
}
