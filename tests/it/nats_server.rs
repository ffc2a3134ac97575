//! A real nats-server on a free loopback port with a store of its own, and a reader of what it
//! holds.

use std::{
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    time::Duration,
};

use async_nats::jetstream::{self, consumer::pull};
use futures::StreamExt;
use kvbridge::schemas::{Envelope, codec};

/// The binary; installed once.
fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/ensure_nats.sh");
        let output = Command::new(script).stderr(Stdio::inherit()).output().unwrap();
        assert!(output.status.success(), "nats-server could not be installed");
        PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
    })
}

pub(crate) struct Server {
    child: Option<Child>,
    dir: PathBuf,
    port: u16,
    more: String,
}

impl Server {
    /// A port and a store without a server.
    pub(crate) fn prepared(name: &str, more: &str) -> Server {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nats-{name}"));
        if dir.exists() {
            std::fs::remove_dir_all(&dir).unwrap();
        }
        std::fs::create_dir_all(&dir).unwrap();
        let port =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        Server { child: None, dir, port, more: more.to_owned() }
    }

    /// A running server with JetStream and no authentication.
    pub(crate) fn started(name: &str) -> Server {
        let mut server = Server::prepared(name, "");
        server.start();
        server
    }

    pub(crate) fn start(&mut self) {
        let store = self.dir.join("store");
        let jetstream = if self.more.contains("no_jetstream") {
            String::new()
        } else {
            format!("jetstream {{ store_dir: \"{}\" }}\n", store.display())
        };
        let more = self.more.replace("no_jetstream", "");
        let text = format!("listen: \"127.0.0.1:{}\"\n{jetstream}{more}\n", self.port);
        let config = self.dir.join("server.conf");
        std::fs::write(&config, text).unwrap();
        let log = std::fs::File::create(self.dir.join("log")).unwrap();
        let mut command = Command::new(binary());
        for role in ["bridge", "index", "viewer"] {
            let variable = format!("KVBRIDGE_{}_PASSWORD", role.to_uppercase());
            command.env(variable, format!("secret-of-{role}"));
        }
        let child = command.arg("-c").arg(&config).stderr(log).spawn().unwrap();
        self.child = Some(child);
        for _ in 0..500 {
            if TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("nats-server does not listen: {}", self.log());
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Other lines of its configuration from the next start on.
    pub(crate) fn set_more(&mut self, more: &str) {
        more.clone_into(&mut self.more);
    }

    /// Its folder, for files that its configuration names.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn signal(&self, signal: &str) {
        let id = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub(crate) async fn jetstream(&self) -> jetstream::Context {
        jetstream::new(async_nats::connect(self.url()).await.unwrap())
    }

    /// Everything a stream holds, in its order.
    pub(crate) async fn read(&self, stream: &str) -> Vec<Message> {
        let jetstream = self.jetstream().await;
        // While a cluster chooses a leader it answers nobody, of the stream or of consumers.
        let ask = async || {
            let stream = jetstream.get_stream(stream).await.map_err(|error| error.to_string())?;
            let consumer = stream.create_consumer(pull::OrderedConfig::default()).await;
            let consumer = consumer.map_err(|error| error.to_string())?;
            let messages = consumer.messages().await.map_err(|error| error.to_string())?;
            Ok::<_, String>((stream.cached_info().state.messages, messages))
        };
        let mut looks = 0;
        let (mut left, mut messages) = loop {
            match ask().await {
                Ok(found) => break found,
                Err(error) => assert!(looks < 400, "{error}"),
            }
            looks += 1;
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let mut read = Vec::new();
        while left > 0 {
            let message = messages.next().await.unwrap().unwrap();
            let headers = message.headers.clone().unwrap();
            let header = |name: &str| headers.get(name).unwrap().as_str().to_owned();
            read.push(Message {
                subject: message.subject.to_string(),
                id: header("Nats-Msg-Id"),
                seq: header("Kvbridge-Seq").parse().unwrap(),
                epoch: header("Kvbridge-Epoch").parse().unwrap(),
                schema: header("Kvbridge-Schema"),
                envelope: codec::decode_msgpack(&message.payload).unwrap(),
            });
            left -= 1;
        }
        read
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// One message of a stream.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) subject: String,
    pub(crate) id: String,
    pub(crate) seq: u64,
    pub(crate) epoch: u64,
    pub(crate) schema: String,
    pub(crate) envelope: Envelope,
}

/// Checks that each message begins where the one before it ended, from 0 on; returns the end.
pub(crate) fn contiguous(messages: &[Message]) -> u64 {
    let mut next = 0;
    for message in messages {
        assert_eq!(message.seq, next, "{} follows {next}", message.id);
        assert_eq!(message.seq, message.envelope.seq.0);
        next += u64::from(message.envelope.span);
    }
    next
}
