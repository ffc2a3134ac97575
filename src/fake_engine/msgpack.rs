//! A msgpack writer that picks the shortest forms, as the engine's encoder does.

/// Bytes being written.
#[derive(Debug, Default)]
pub(super) struct Pack(pub(super) Vec<u8>);

impl Pack {
    pub(super) fn nil(&mut self) {
        self.0.push(0xc0);
    }

    pub(super) fn float(&mut self, value: f64) {
        self.0.push(0xcb);
        self.0.extend(value.to_be_bytes());
    }

    pub(super) fn uint(&mut self, value: u64) {
        let bytes = value.to_be_bytes();
        match value {
            0..=0x7f => self.0.push(bytes[7]),
            0x80..=0xff => self.put(0xcc, &bytes[7..]),
            0x100..=0xffff => self.put(0xcd, &bytes[6..]),
            0x1_0000..=0xffff_ffff => self.put(0xce, &bytes[4..]),
            _ => self.put(0xcf, &bytes),
        }
    }

    pub(super) fn int(&mut self, value: i64) {
        let bytes = value.to_be_bytes();
        match value {
            0.. => self.uint(value.unsigned_abs()),
            -0x20.. => self.0.push(bytes[7]),
            -0x80.. => self.put(0xd0, &bytes[7..]),
            -0x8000.. => self.put(0xd1, &bytes[6..]),
            -0x8000_0000.. => self.put(0xd2, &bytes[4..]),
            _ => self.put(0xd3, &bytes),
        }
    }

    pub(super) fn text(&mut self, value: &str) {
        self.len([0xa0, 31, 0xd9, 0xda, 0xdb], value.len());
        self.0.extend(value.as_bytes());
    }

    pub(super) fn bytes(&mut self, value: &[u8]) {
        self.len([0, 0, 0xc4, 0xc5, 0xc6], value.len());
        self.0.extend(value);
    }

    pub(super) fn array(&mut self, count: usize) {
        self.len([0x90, 15, 0, 0xdc, 0xdd], count);
    }

    pub(super) fn map(&mut self, count: usize) {
        self.len([0x80, 15, 0, 0xde, 0xdf], count);
    }

    /// A map header of 16 bits whatever the count.
    pub(super) fn wide_map(&mut self, count: u16) {
        self.put(0xde, &count.to_be_bytes());
    }

    fn put(&mut self, marker: u8, bytes: &[u8]) {
        self.0.push(marker);
        self.0.extend_from_slice(bytes);
    }

    /// `[fix marker, longest fix length, 8-bit, 16-bit, 32-bit marker]`; 0 where there is none.
    fn len(&mut self, [fix, fix_max, eight, sixteen, thirty_two]: [u8; 5], len: usize) {
        // A body beyond 4 GiB is beyond this model.
        let bytes = u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes();
        if fix != 0 && len <= usize::from(fix_max) {
            self.0.push(fix | bytes[3]);
        } else if eight != 0 && len < 0x100 {
            self.put(eight, &bytes[3..]);
        } else if len < 0x1_0000 {
            self.put(sixteen, &bytes[2..]);
        } else {
            self.put(thirty_two, &bytes);
        }
    }
}
