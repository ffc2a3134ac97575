//! Reads server-sent events out of a byte stream: only what our own API sends (`event`, `data`).

/// Longest line kept. An envelope of the largest batch, token ids as a count, is far below; a
/// longer line is not ours.
const LINE_BYTES_MAX: usize = 256 * 1024 * 1024;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ServerEvent {
    /// Its name.
    pub(super) name: String,
    /// Its data.
    pub(super) data: String,
}

/// Splits a stream into events, whatever the chunks are.
#[derive(Default)]
pub(super) struct SseReader {
    line: Vec<u8>,
    event: ServerEvent,
}

/// The stream is not server-sent events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotSse;

impl SseReader {
    /// Takes a chunk in and appends the events that it completes.
    pub(super) fn read(
        &mut self,
        chunk: &[u8],
        events: &mut Vec<ServerEvent>,
    ) -> Result<(), NotSse> {
        for part in chunk.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if self.line.len() > LINE_BYTES_MAX {
                return Err(NotSse);
            }
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                let line = std::str::from_utf8(&line).map_err(|_| NotSse)?;
                self.line(line.trim_end_matches(['\r', '\n']), events);
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &str, events: &mut Vec<ServerEvent>) {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            if !event.data.is_empty() {
                events.push(event);
            }
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event.name),
            "data" => self.event.data.push_str(value),
            _ => (), // comments keep the connection open
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_whole_out_of_any_chunks() {
        let text = b": hello\n\nevent: envelope\ndata: {\"a\":1}\n\ndata: x\r\n\r\n";
        for size in 1..text.len() {
            let (mut reader, mut events) = (SseReader::default(), Vec::new());
            for chunk in text.chunks(size) {
                reader.read(chunk, &mut events).unwrap();
            }
            let seen: Vec<_> = events.iter().map(|e| (e.name.as_str(), e.data.as_str())).collect();
            assert_eq!(seen, [("envelope", "{\"a\":1}"), ("", "x")], "chunks of {size}");
        }
    }
}
