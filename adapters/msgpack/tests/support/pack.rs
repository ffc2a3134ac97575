//! A small msgpack writer: what a test wants to send, right or wrong.

/// A value. `Raw` is for headers no encoder would write.
#[derive(Clone, Debug)]
pub(crate) enum V {
    Nil,
    Int(i128),
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
    Array(Vec<V>),
    Map(Vec<(V, V)>),
    Raw(Vec<u8>),
}

impl V {
    pub(crate) fn pack(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.put(&mut out);
        out
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            V::Nil => out.push(0xc0),
            V::Int(value) => put_int(*value, out),
            V::Float(value) => {
                out.push(0xcb);
                out.extend(value.to_be_bytes());
            }
            V::Text(text) => {
                put_len([0xa0, 31, 0xd9, 0xda, 0xdb], text.len(), out);
                out.extend(text.as_bytes());
            }
            V::Bytes(bytes) => {
                put_len([0, 0, 0xc4, 0xc5, 0xc6], bytes.len(), out);
                out.extend(bytes);
            }
            V::Array(items) => {
                put_len([0x90, 15, 0, 0xdc, 0xdd], items.len(), out);
                items.iter().for_each(|item| item.put(out));
            }
            V::Map(pairs) => {
                put_len([0x80, 15, 0, 0xde, 0xdf], pairs.len(), out);
                for (key, value) in pairs {
                    key.put(out);
                    value.put(out);
                }
            }
            V::Raw(bytes) => out.extend(bytes),
        }
    }
}

/// `[fix marker, longest fix length, 8-bit, 16-bit, 32-bit marker]`; 0 where there is none.
fn put_len([fix, fix_max, eight, sixteen, thirty_two]: [u8; 5], len: usize, out: &mut Vec<u8>) {
    let bytes = u32::try_from(len).expect("a test's length").to_be_bytes();
    if fix != 0 && len <= usize::from(fix_max) {
        out.push(fix | bytes[3]);
    } else if eight != 0 && len < 0x100 {
        out.extend([eight, bytes[3]]);
    } else if len < 0x1_0000 {
        out.extend([sixteen, bytes[2], bytes[3]]);
    } else {
        out.push(thirty_two);
        out.extend(bytes);
    }
}

fn put_int(value: i128, out: &mut Vec<u8>) {
    let bytes = value.to_be_bytes();
    let (marker, width) = match value {
        -0x20..=0x7f => return out.push(bytes[15]),
        0x80..=0xff => (0xcc, 1),
        0x100..=0xffff => (0xcd, 2),
        0x1_0000..=0xffff_ffff => (0xce, 4),
        0x1_0000_0000.. => (0xcf, 8),
        -0x80.. => (0xd0, 1),
        -0x8000.. => (0xd1, 2),
        -0x8000_0000.. => (0xd2, 4),
        _ => (0xd3, 8),
    };
    out.push(marker);
    out.extend(&bytes[16 - width..]);
}

pub(crate) fn int(value: i128) -> V {
    V::Int(value)
}

pub(crate) fn text(value: &str) -> V {
    V::Text(value.to_owned())
}

pub(crate) fn array<const N: usize>(items: [V; N]) -> V {
    V::Array(items.to_vec())
}

pub(crate) fn ints(values: impl IntoIterator<Item = i128>) -> V {
    V::Array(values.into_iter().map(V::Int).collect())
}

pub(crate) fn map<const N: usize>(pairs: [(&str, V); N]) -> V {
    V::Map(pairs.into_iter().map(|(key, value)| (text(key), value)).collect())
}
