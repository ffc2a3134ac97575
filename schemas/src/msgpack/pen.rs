//! Msgpack in its shortest forms, as `rmp` writes it.

/// Appends to a message.
pub struct Pen(Vec<u8>);

/// Token ids written together.
const WINDOW: usize = 32;

/// A marker in the highest byte, how far a number is shifted to stand behind it, and the bytes of
/// both.
type Form = (u64, u32, usize);

const FIX: Form = (0, 56, 1);
const BYTE: Form = (0xcc << 56, 48, 2);
const TWO: Form = (0xcd << 56, 40, 3);
const FOUR: Form = (0xce << 56, 24, 5);

/// The form of a number, by how many bits it has.
#[rustfmt::skip]
const FORMS: [Form; 33] = [
    FIX, FIX, FIX, FIX, FIX, FIX, FIX, FIX,
    BYTE, TWO, TWO, TWO, TWO, TWO, TWO, TWO, TWO,
    FOUR, FOUR, FOUR, FOUR, FOUR, FOUR, FOUR, FOUR,
    FOUR, FOUR, FOUR, FOUR, FOUR, FOUR, FOUR, FOUR,
];

impl Pen {
    /// An empty message with room for so many bytes.
    pub fn new(capacity: usize) -> Pen {
        Pen(Vec::with_capacity(capacity))
    }

    /// The message.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// For what is written by other means.
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }

    /// Nothing.
    pub fn nil(&mut self) {
        self.0.push(0xc0);
    }

    /// The head of a map of so many pairs.
    pub fn map(&mut self, pairs: usize) {
        self.header(pairs, (0x80, 0x10), [None, Some(0xde), Some(0xdf)]);
    }

    /// The head of an array of so many items.
    pub fn array(&mut self, items: usize) {
        self.header(items, (0x90, 0x10), [None, Some(0xdc), Some(0xdd)]);
    }

    /// A text.
    #[inline]
    pub fn text(&mut self, text: &str) {
        self.header(text.len(), (0xa0, 0x20), [Some(0xd9), Some(0xda), Some(0xdb)]);
        self.0.extend_from_slice(text.as_bytes());
    }

    /// Bytes.
    #[inline]
    pub fn bin(&mut self, bytes: &[u8]) {
        self.header(bytes.len(), (0, 0), [Some(0xc4), Some(0xc5), Some(0xc6)]);
        self.0.extend_from_slice(bytes);
    }

    /// A number in its shortest form.
    pub fn uint(&mut self, value: u64) {
        match u32::try_from(value) {
            Ok(short) => self.ids(&[short]),
            Err(_) => self.wide(0xcf, value),
        }
    }

    /// A number that may be negative, in its shortest form.
    pub fn int(&mut self, value: i64) {
        if let Ok(value) = u64::try_from(value) {
            return self.uint(value);
        }
        let [.., byte] = value.to_be_bytes();
        match value {
            -32.. => self.0.push(byte),
            -0x80.. => self.0.extend_from_slice(&[0xd0, byte]),
            -0x8000.. => self.narrow::<2>(0xd1, value),
            -0x8000_0000.. => self.narrow::<4>(0xd2, value),
            _ => self.wide(0xd3, value.cast_unsigned()),
        }
    }

    /// Numbers one after the other.
    ///
    /// As in the reader there is no branch on a number's width: ids below and above 65536 alternate
    /// at random in a prompt. Each is one store of 8 bytes, of which the next one overwrites what
    /// it did not need.
    pub fn ids(&mut self, ids: &[u32]) {
        let mut window = [0_u8; WINDOW * 5 + 8];
        for some in ids.chunks(WINDOW) {
            let mut at = 0;
            for id in some {
                let bits = u32::BITS - id.leading_zeros();
                let (marker, shift, width) = FORMS.get(bits as usize).copied().unwrap_or_default();
                if let Some(slot) = window.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<8>) {
                    *slot = (marker | u64::from(*id) << shift).to_be_bytes();
                }
                at += width;
            }
            self.0.extend_from_slice(window.get(..at).unwrap_or_default());
        }
    }

    /// A number in 8 bytes whatever it is, for readers that know no shorter form.
    pub fn wide_uint(&mut self, value: u64) {
        self.wide(0xcf, value);
    }

    /// A fraction.
    pub fn float(&mut self, value: f64) {
        self.wide(0xcb, value.to_bits());
    }

    // === fields of a map

    pub(crate) fn key(&mut self, name: &str) {
        self.text(name);
    }

    pub(crate) fn text_field(&mut self, name: &str, text: &str) {
        self.key(name);
        self.text(text);
    }

    pub(crate) fn uint_field(&mut self, name: &str, value: u64) {
        self.key(name);
        self.uint(value);
    }

    pub(crate) fn some_text(&mut self, name: &str, text: Option<&String>) {
        if let Some(text) = text {
            self.text_field(name, text);
        }
    }

    pub(crate) fn some_uint(&mut self, name: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.uint_field(name, value);
        }
    }

    /// A flag is there when it is set.
    pub(crate) fn flag(&mut self, name: &str, set: bool) {
        if set {
            self.key(name);
            self.0.push(0xc3);
        }
    }

    /// A length: in the marker below `fix.1`, else after the marker of 1, 2 or 4 bytes.
    #[inline]
    fn header(&mut self, length: usize, fix: (u8, usize), markers: [Option<u8>; 3]) {
        let [of_byte, of_two, of_four] = markers;
        let [.., third, second, high, low] = length.to_be_bytes();
        if length < fix.1 {
            self.0.push(fix.0 | low);
        } else if let (Some(marker), 0..=0xff) = (of_byte, length) {
            self.0.extend_from_slice(&[marker, low]);
        } else if let (Some(marker), 0..=0xffff) = (of_two, length) {
            self.0.extend_from_slice(&[marker, high, low]);
        } else if let Some(marker) = of_four {
            // Nothing in a message is longer than 4 GiB: it would not fit a message.
            self.0.extend_from_slice(&[marker, third, second, high, low]);
        }
    }

    fn wide(&mut self, marker: u8, value: u64) {
        self.0.push(marker);
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    fn narrow<const N: usize>(&mut self, marker: u8, value: i64) {
        self.0.push(marker);
        self.0.extend_from_slice(value.to_be_bytes().last_chunk::<N>().map_or(&[], |low| low));
    }
}
