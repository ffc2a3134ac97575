//! Just enough of HTTP/1.1 to ask one server again and again over one connection.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::{Context as _, bail};

pub struct Web {
    address: SocketAddr,
    stream: BufReader<TcpStream>,
}

impl Web {
    pub fn connect(address: SocketAddr) -> anyhow::Result<Web> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Web { address, stream: BufReader::new(stream) })
    }

    pub fn get(&mut self, path: &str) -> anyhow::Result<(u16, String)> {
        self.ask("GET", path, "")
    }

    pub fn post(&mut self, path: &str, body: &str) -> anyhow::Result<(u16, String)> {
        self.ask("POST", path, body)
    }

    fn ask(&mut self, method: &str, path: &str, body: &str) -> anyhow::Result<(u16, String)> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        let status = self.line()?;
        let status = status.split(' ').nth(1).context("a status")?.parse()?;
        let (mut length, mut chunked) = (0, false);
        loop {
            let line = self.line()?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
            chunked |= line.starts_with("transfer-encoding:") && line.contains("chunked");
        }
        let mut text = Vec::new();
        if chunked {
            loop {
                let size = usize::from_str_radix(self.line()?.trim(), 16)?;
                self.take(size, &mut text)?;
                self.line()?;
                if size == 0 {
                    break;
                }
            }
        } else {
            self.take(length, &mut text)?;
        }
        Ok((status, String::from_utf8(text)?))
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            bail!("{} closed", self.address);
        }
        Ok(line.trim_end().to_owned())
    }

    fn take(&mut self, length: usize, into: &mut Vec<u8>) -> anyhow::Result<()> {
        let start = into.len();
        into.resize(start + length, 0);
        Ok(self.stream.read_exact(&mut into[start..])?)
    }
}
