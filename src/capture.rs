//! The format of recorded frames: one JSON object a line, frames in hex.
//!
//! Read by `decode` and `play`, written by `tail --raw`. A line tells which socket spoke (`sub`,
//! `replay`, or `mark` for a note), the direction, the endpoint and the frames.

use std::io::{BufRead, Write};

use serde::{Deserialize, Serialize};

/// Longest line read: four frames at the cap of the transport, two hex digits a byte, would be
/// 512 MiB; no recording has come near a hundredth of this.
const LINE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// One line.
#[derive(Clone, PartialEq)]
pub struct Recorded {
    /// Seconds since the unix epoch.
    pub at: f64,
    /// Who spoke.
    pub socket: Socket,
    /// Endpoint of the socket.
    pub endpoint: String,
    /// The multipart message.
    pub frames: Vec<Vec<u8>>,
}

/// Which socket a line is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Socket {
    /// A live message that came in.
    LiveIn,
    /// Anything else: a replay, what was sent, a note.
    Other,
}

/// Why a line, or the file, could not be read.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// Reading failed.
    #[error("cannot read")]
    Read(#[from] std::io::Error),
    /// Not an object of the format; the text of the line is not shown, it may hold token ids.
    #[error("not a recorded line: {reason} at column {column}")]
    Line {
        /// What kind of fault.
        reason: &'static str,
        /// Where.
        column: usize,
    },
    /// A frame is not hex.
    #[error("frame {index} is not hex")]
    Hex {
        /// Which frame.
        index: usize,
    },
    /// A line is longer than any recording.
    #[error("longer than {LINE_BYTES_MAX} bytes")]
    TooLong,
}

#[derive(Deserialize, Serialize)]
struct Line {
    t: f64,
    socket: String,
    #[serde(default)]
    dir: Option<String>,
    #[serde(default)]
    endpoint: Option<String>,
    #[serde(default)]
    frames_hex: Vec<String>,
}

/// Reads lines with their number, from 1. Empty lines are passed over.
pub struct CaptureReader<R> {
    input: R,
    line: u64,
}

impl<R: BufRead> CaptureReader<R> {
    /// Reads from `input`.
    pub fn new(input: R) -> CaptureReader<R> {
        CaptureReader { input, line: 0 }
    }
}

impl<R: BufRead> Iterator for CaptureReader<R> {
    type Item = (u64, Result<Recorded, CaptureError>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let mut text = Vec::new();
            self.line += 1;
            let mut limited = std::io::Read::take(&mut self.input, LINE_BYTES_MAX);
            match limited.read_until(b'\n', &mut text) {
                Ok(0) => return None,
                Ok(_) if text.trim_ascii().is_empty() => (),
                Ok(_) if limited.limit() == 0 => {
                    return Some((self.line, Err(CaptureError::TooLong)));
                }
                Ok(_) => return Some((self.line, parse(&text))),
                Err(error) => return Some((self.line, Err(error.into()))),
            }
        }
    }
}

fn parse(text: &[u8]) -> Result<Recorded, CaptureError> {
    let line: Line = serde_json::from_slice(text).map_err(|error| CaptureError::Line {
        reason: match error.classify() {
            serde_json::error::Category::Data => "wrong fields",
            serde_json::error::Category::Eof => "cut short",
            serde_json::error::Category::Syntax | serde_json::error::Category::Io => "not JSON",
        },
        column: error.column(),
    })?;
    let live = line.socket == "sub" && line.dir.as_deref() == Some("in");
    let mut frames = Vec::with_capacity(line.frames_hex.len());
    for (index, frame) in line.frames_hex.iter().enumerate() {
        frames.push(hex::decode(frame).map_err(|_| CaptureError::Hex { index })?);
    }
    Ok(Recorded {
        at: line.t,
        socket: if live { Socket::LiveIn } else { Socket::Other },
        endpoint: line.endpoint.unwrap_or_default(),
        frames,
    })
}

/// Writes one live message as a line.
pub fn write_live(
    out: &mut dyn Write,
    unix_ms: u64,
    endpoint: &str,
    frames: &[&[u8]],
) -> std::io::Result<()> {
    let line = Line {
        t: std::time::Duration::from_millis(unix_ms).as_secs_f64(),
        socket: "sub".to_owned(),
        dir: Some("in".to_owned()),
        endpoint: Some(endpoint.to_owned()),
        frames_hex: frames.iter().map(hex::encode).collect(),
    };
    serde_json::to_writer(&mut *out, &line)?;
    out.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let mut file = Vec::new();
        write_live(&mut file, 1500, "tcp://h:1", &[b"topic", &[0; 8], &[0xff]]).unwrap();
        let (line, read) = CaptureReader::new(&file[..]).next().unwrap();
        let read = read.unwrap();
        assert_eq!((line, read.at, read.socket), (1, 1.5, Socket::LiveIn));
        assert_eq!(read.frames, vec![b"topic".to_vec(), vec![0; 8], vec![0xff]]);
    }

    #[test]
    fn a_bad_line_costs_itself_and_shows_nothing_of_its_text() {
        let text = b"{\"t\":1,\"socket\":\"sub\",\"frames_hex\":[\"zz\"]}\n\n[4711\n{\"t\":2,\"socket\":\"mark\"}\n";
        let read: Vec<String> = CaptureReader::new(&text[..])
            .map(|(line, result)| match result {
                Ok(recorded) => format!("{line}: {:?}", recorded.socket),
                Err(error) => format!("{line}: {error}"),
            })
            .collect();
        assert_eq!(read[0], "1: frame 0 is not hex");
        assert!(read[1].starts_with("3: not a recorded line") && !read[1].contains("4711"));
        assert_eq!(read[2], "4: Other");
    }
}
