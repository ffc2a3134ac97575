//! A cursor over msgpack bytes. It never allocates for what a header claims, only for what is
//! there, and it needs no stack: values are skipped by counting, so any depth of nesting costs
//! nothing.

use std::fmt;

use super::{
    Int, Kind, Unreadable,
    narrow::{WINDOW, narrow},
};

/// Where the reader stands. A copy is a bookmark.
#[derive(Clone, Copy)]
pub struct Cursor<'a> {
    rest: &'a [u8],
}

impl fmt::Debug for Cursor<'_> {
    // Token ids are among the bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cursor({} bytes left)", self.rest.len())
    }
}

impl<'a> Cursor<'a> {
    /// At the first of the bytes.
    pub fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { rest: bytes }
    }

    /// How many bytes are left.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The type of the next value.
    pub fn kind(&self) -> Result<Kind, Unreadable> {
        self.rest.first().map(|marker| Kind::of(*marker)).ok_or(Unreadable::Truncated)
    }

    /// Takes a nil, if one is next.
    #[inline]
    pub fn nil(&mut self) -> bool {
        match self.rest.split_first() {
            Some((0xc0, rest)) => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    /// An array's length; never more than the bytes that are left could hold.
    #[inline]
    pub fn array(&mut self) -> Result<usize, Unreadable> {
        let count = match self.marker()? {
            marker @ 0x90..=0x9f => usize::from(marker & 0x0f),
            0xdc => self.length::<2>()?,
            0xdd => self.length::<4>()?,
            _ => return Err(Unreadable::WrongType),
        };
        if count > self.rest.len() { Err(Unreadable::Truncated) } else { Ok(count) }
    }

    /// A map's length in pairs; never more than the bytes that are left could hold.
    #[inline]
    pub fn map(&mut self) -> Result<usize, Unreadable> {
        // vLLM 0.33 writes map16 headers for 8 pairs: its encoder sizes by the declared fields.
        let pairs = match self.marker()? {
            marker @ 0x80..=0x8f => usize::from(marker & 0x0f),
            0xde => self.length::<2>()?,
            0xdf => self.length::<4>()?,
            _ => return Err(Unreadable::WrongType),
        };
        if pairs > self.rest.len() / 2 { Err(Unreadable::Truncated) } else { Ok(pairs) }
    }

    /// A text's bytes, not yet checked to be UTF-8.
    #[inline]
    pub fn text_bytes(&mut self) -> Result<&'a [u8], Unreadable> {
        let count = match self.marker()? {
            marker @ 0xa0..=0xbf => usize::from(marker & 0x1f),
            0xd9 => self.length::<1>()?,
            0xda => self.length::<2>()?,
            0xdb => self.length::<4>()?,
            _ => return Err(Unreadable::WrongType),
        };
        self.take(count)
    }

    /// A text of at most `max` bytes.
    pub fn text(&mut self, max: usize) -> Result<&'a str, Unreadable> {
        let bytes = self.text_bytes()?;
        if bytes.len() > max {
            return Err(Unreadable::TooLong);
        }
        std::str::from_utf8(bytes).map_err(|_| Unreadable::NotUtf8)
    }

    /// A byte string.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], Unreadable> {
        let count = match self.marker()? {
            0xc4 => self.length::<1>()?,
            0xc5 => self.length::<2>()?,
            0xc6 => self.length::<4>()?,
            _ => return Err(Unreadable::WrongType),
        };
        self.take(count)
    }

    /// An integer.
    #[inline]
    pub fn int(&mut self) -> Result<Int, Unreadable> {
        Ok(match self.marker()? {
            marker @ 0x00..=0x7f => Int::Unsigned(u64::from(marker)),
            0xcf => Int::Unsigned(u64::from_be_bytes(self.chunk()?)),
            0xce => Int::Unsigned(u64::from(u32::from_be_bytes(self.chunk()?))),
            0xcd => Int::Unsigned(u64::from(u16::from_be_bytes(self.chunk()?))),
            0xcc => Int::Unsigned(u64::from(u8::from_be_bytes(self.chunk()?))),
            0xd3 => signed(i64::from_be_bytes(self.chunk()?)),
            0xd2 => signed(i64::from(i32::from_be_bytes(self.chunk()?))),
            0xd1 => signed(i64::from(i16::from_be_bytes(self.chunk()?))),
            0xd0 => signed(i64::from(i8::from_be_bytes(self.chunk()?))),
            marker @ 0xe0..=0xff => signed(i64::from(i8::from_be_bytes([marker]))),
            _ => return Err(Unreadable::WrongType),
        })
    }

    /// An integer that fits `u32`.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Unreadable> {
        match self.int()? {
            Int::Unsigned(value) => u32::try_from(value).map_err(|_| Unreadable::OutOfRange),
            Int::Negative(_) => Err(Unreadable::OutOfRange),
        }
    }

    /// An integer that fits `i64`.
    pub fn i64(&mut self) -> Result<i64, Unreadable> {
        match self.int()? {
            Int::Unsigned(value) => i64::try_from(value).map_err(|_| Unreadable::OutOfRange),
            Int::Negative(value) => Ok(value),
        }
    }

    /// An integer that fits `u64`.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Unreadable> {
        match self.int()? {
            Int::Unsigned(value) => Ok(value),
            Int::Negative(_) => Err(Unreadable::OutOfRange),
        }
    }

    /// A boolean.
    #[inline]
    pub fn bool(&mut self) -> Result<bool, Unreadable> {
        match self.marker()? {
            0xc2 => Ok(false),
            0xc3 => Ok(true),
            _ => Err(Unreadable::WrongType),
        }
    }

    /// A float of either width.
    pub fn float(&mut self) -> Result<f64, Unreadable> {
        match self.marker()? {
            0xcb => Ok(f64::from_be_bytes(self.chunk()?)),
            0xca => Ok(f64::from(f32::from_be_bytes(self.chunk()?))),
            _ => Err(Unreadable::WrongType),
        }
    }

    /// Appends `count` integers that fit `u32`.
    pub fn u32s(&mut self, count: usize, out: &mut Vec<u32>) -> Result<(), Unreadable> {
        let mut left = count;
        let mut values = [0; WINDOW];
        while left > 0 {
            let (read, width) = narrow(self.rest, left, &mut values);
            if read == 0 {
                // Near the end of the payload, an unusual width, or no number at all.
                out.push(self.u32()?);
                left -= 1;
                continue;
            }
            out.extend_from_slice(values.get(..read).unwrap_or_default());
            self.take(width)?;
            left -= read;
        }
        Ok(())
    }

    /// Passes over one value with everything in it. Each value takes a byte or more, so that a
    /// false claim ends with the bytes.
    pub fn skip(&mut self) -> Result<(), Unreadable> {
        let mut pending = 1_usize;
        while pending > 0 {
            pending -= 1;
            let (bytes, values) = self.extent()?;
            self.take(bytes)?;
            pending = pending.saturating_add(values);
        }
        Ok(())
    }

    /// Takes a header: how many bytes and how many values follow it.
    fn extent(&mut self) -> Result<(usize, usize), Unreadable> {
        Ok(match self.marker()? {
            0x00..=0x7f | 0xc0 | 0xc2 | 0xc3 | 0xe0..=0xff => (0, 0),
            marker @ 0x80..=0x8f => (0, 2 * usize::from(marker & 0x0f)),
            marker @ 0x90..=0x9f => (0, usize::from(marker & 0x0f)),
            marker @ 0xa0..=0xbf => (usize::from(marker & 0x1f), 0),
            0xc1 => return Err(Unreadable::Reserved),
            0xcc | 0xd0 => (1, 0),
            0xcd | 0xd1 | 0xd4 => (2, 0),
            0xd5 => (3, 0),
            0xca | 0xce | 0xd2 => (4, 0),
            0xd6 => (5, 0),
            0xcb | 0xcf | 0xd3 => (8, 0),
            0xd7 => (9, 0),
            0xd8 => (17, 0),
            0xc4 | 0xd9 => (self.length::<1>()?, 0),
            0xc5 | 0xda => (self.length::<2>()?, 0),
            0xc6 | 0xdb => (self.length::<4>()?, 0),
            0xc7 => (self.length::<1>()?.saturating_add(1), 0),
            0xc8 => (self.length::<2>()?.saturating_add(1), 0),
            0xc9 => (self.length::<4>()?.saturating_add(1), 0),
            0xdc => (0, self.length::<2>()?),
            0xdd => (0, self.length::<4>()?),
            0xde => (0, self.length::<2>()?.saturating_mul(2)),
            0xdf => (0, self.length::<4>()?.saturating_mul(2)),
        })
    }

    #[inline]
    fn marker(&mut self) -> Result<u8, Unreadable> {
        let (marker, rest) = self.rest.split_first().ok_or(Unreadable::Truncated)?;
        self.rest = rest;
        Ok(*marker)
    }

    #[inline]
    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], Unreadable> {
        let (chunk, rest) = self.rest.split_first_chunk::<N>().ok_or(Unreadable::Truncated)?;
        self.rest = rest;
        Ok(*chunk)
    }

    #[inline]
    fn length<const N: usize>(&mut self) -> Result<usize, Unreadable> {
        let bytes = self.chunk::<N>()?;
        Ok(bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)))
    }

    #[inline]
    fn take(&mut self, count: usize) -> Result<&'a [u8], Unreadable> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Unreadable::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }
}

#[inline]
fn signed(value: i64) -> Int {
    u64::try_from(value).map_or(Int::Negative(value), Int::Unsigned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_beyond_the_bytes_is_refused_by_the_header() {
        let header = |marker: u8, claim: u8, rest: usize| {
            let mut bytes = vec![marker, 0, 0, 0, claim];
            bytes.resize(5 + rest, 0xc0);
            bytes
        };
        assert_eq!(Cursor::new(&header(0xdd, 4, 4)).array(), Ok(4));
        assert_eq!(Cursor::new(&header(0xdd, 5, 4)).array(), Err(Unreadable::Truncated));
        assert_eq!(Cursor::new(&header(0xdf, 2, 4)).map(), Ok(2));
        assert_eq!(Cursor::new(&header(0xdf, 2, 3)).map(), Err(Unreadable::Truncated));
    }

    #[test]
    fn skip_passes_every_marker_whole() {
        let following = |marker: u8| match marker {
            0x81..=0x8f => 2 * usize::from(marker & 0x0f),
            0x91..=0x9f => usize::from(marker & 0x0f),
            0xa1..=0xbf => usize::from(marker & 0x1f),
            0xc4 | 0xc7 | 0xd9 => 1,
            0xc5 | 0xc8 | 0xda | 0xdc | 0xde => 2,
            0xc6 | 0xc9 | 0xdb | 0xdd | 0xdf => 4,
            0xcc | 0xd0 => 1,
            0xcd | 0xd1 => 2,
            0xca | 0xce | 0xd2 => 4,
            0xcb | 0xcf | 0xd3 => 8,
            0xd4..=0xd8 => 1 + (1 << (marker - 0xd4)),
            _ => 0,
        };
        for marker in 0..=0xff_u8 {
            // Lengths are zero, so an extension is its type alone.
            let zeros = following(marker) + usize::from(matches!(marker, 0xc7..=0xc9));
            let bytes: Vec<u8> = [vec![marker], vec![0; zeros]].concat();
            let mut cursor = Cursor::new(&bytes);
            if marker == 0xc1 {
                assert_eq!(cursor.skip(), Err(Unreadable::Reserved));
                continue;
            }
            assert_eq!((cursor.skip(), cursor.remaining()), (Ok(()), 0), "{marker:#x}");
            if let Some(short) = bytes.get(..zeros).filter(|_| zeros > 0) {
                assert_eq!(Cursor::new(short).skip(), Err(Unreadable::Truncated), "{marker:#x}");
            }
        }
    }
}
