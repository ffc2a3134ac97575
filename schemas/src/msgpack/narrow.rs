//! Runs of token ids.

/// Bytes looked at together by [`narrow`].
pub(super) const WINDOW: usize = 64;

/// Reads up to `max` integers of the usual widths (fixint, u8, u16, u32) out of the next bytes: how
/// many it read into `values`, and how many bytes they took. It stops at any other marker.
///
/// Prompts are most of the payload. Ids below and above 65536 alternate at random in them, so that
/// a branch on the width is mispredicted for every second token. There is none here: how far it is
/// from each byte to the next value, if one starts there, is computed for all bytes at once (in
/// vectors), and the walk from value to value is one load and one addition each.
#[inline]
pub(super) fn narrow(rest: &[u8], max: usize, values: &mut [u32; WINDOW]) -> (usize, usize) {
    let Some(window) = rest.first_chunk::<{ WINDOW + 8 }>() else { return (0, 0) };
    let mut steps = [0_u8; WINDOW];
    for (step, byte) in steps.iter_mut().zip(window) {
        *step = match *byte {
            0x00..=0x7f => 1,
            0xcc => 2,
            0xcd => 3,
            0xce => 5,
            _ => 0,
        };
    }
    let (mut read, mut at) = (0, 0);
    for value in values.iter_mut().take(max) {
        let (Some(step), Some(word)) =
            (steps.get(at), window.get(at..).and_then(<[u8]>::first_chunk::<8>))
        else {
            break;
        };
        if *step == 0 {
            break;
        }
        let word = u64::from_be_bytes(*word);
        // A fixint is its own marker; else the value is the 1, 2 or 4 bytes after it.
        let (body, bits) = match *step {
            1 => (word, 8),
            step => (word << 8, 8 * (u32::from(step) - 1)),
        };
        #[expect(clippy::cast_possible_truncation, reason = "at most 32 bits are left")]
        let narrowed = (body >> (64 - bits)) as u32;
        *value = narrowed;
        at += usize::from(*step);
        read += 1;
    }
    (read, at)
}
