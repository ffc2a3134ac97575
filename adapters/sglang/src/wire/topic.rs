//! The topic frame: a prefix that the operator chose and, in a draft, the name of the publisher's
//! life and of the snapshot that a batch is the barrier of.

/// Longest name of a life or of a barrier: the engine uses 32 hexadecimal digits.
pub const LIFE_BYTES_MAX: usize = 256;

const LIFE: &[u8] = b"\0sgl-kv-epoch=";
const BARRIER: &[u8] = b"\0sgl-kv-snapshot=";

/// What a topic says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Topic<'a> {
    /// The publisher's life.
    pub life: Option<&'a str>,
    /// The snapshot whose cut this batch marks.
    pub barrier: Option<&'a str>,
}

/// A mark of the draft with something behind it that is no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicError;

impl<'a> Topic<'a> {
    /// Reads a topic frame; one without the draft's marks says nothing.
    pub fn read(topic: &'a [u8]) -> Result<Topic<'a>, TopicError> {
        Ok(Topic { life: marked(topic, LIFE)?, barrier: marked(topic, BARRIER)? })
    }
}

/// The name behind a mark, to the next mark or the end.
fn marked<'a>(topic: &'a [u8], mark: &[u8]) -> Result<Option<&'a str>, TopicError> {
    let Some(at) = topic.windows(mark.len()).position(|window| window == mark) else {
        return Ok(None);
    };
    let rest = topic.get(at + mark.len()..).unwrap_or_default();
    let name = rest.split(|byte| *byte == 0).next().unwrap_or_default();
    life(name).map(Some).ok_or(TopicError)
}

/// The name of a life or of a barrier, if it is one.
pub(crate) fn life(name: &[u8]) -> Option<&str> {
    let named =
        !name.is_empty() && name.len() <= LIFE_BYTES_MAX && name.iter().all(u8::is_ascii_graphic);
    std::str::from_utf8(name).ok().filter(|_| named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_and_plain_topics_say_nothing() {
        let life = Some("9f86d081884c7d65");
        let table: [(&[u8], _); 5] = [
            (b"", (None, None)),
            (b"kv@host@model", (None, None)),
            (b"kv\0sgl-kv-epoch=9f86d081884c7d65", (life, None)),
            (b"\0sgl-kv-epoch=9f86d081884c7d65", (life, None)),
            (b"kv\0sgl-kv-epoch=9f86d081884c7d65\0sgl-kv-snapshot=b-1", (life, Some("b-1"))),
        ];
        for (topic, (life, barrier)) in table {
            assert_eq!(Topic::read(topic), Ok(Topic { life, barrier }));
        }
    }

    #[test]
    fn a_mark_without_a_name_is_refused() {
        let long = [b"kv\0sgl-kv-epoch=".as_slice(), &[b'a'; LIFE_BYTES_MAX + 1]].concat();
        let table: [&[u8]; 4] =
            [b"kv\0sgl-kv-epoch=", b"kv\0sgl-kv-epoch=a b", b"kv\0sgl-kv-epoch=\xff", &long];
        for topic in table {
            assert_eq!(Topic::read(topic), Err(TopicError), "{topic:?}");
        }
    }
}
