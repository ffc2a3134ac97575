//! The whole command line with this engine among the built-in ones, as a process: what it says of a
//! configuration, and what a router and an operator are told over HTTP.

use std::{
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    process::{Child, Command},
};

use crate::engine::Engine;

/// No test waits longer for one thing.
const LIMIT: Duration = Duration::from_secs(60);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tiny-kvbridge"));
    // What happens to be set here is none of the program's business.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("KVBRIDGE") {
            command.env_remove(name);
        }
    }
    command.kill_on_drop(true);
    command
}

async fn output(args: &[&str]) -> (i32, String) {
    let Output { status, stdout, stderr } = program().args(args).output().await.unwrap();
    let text = [stdout, stderr].concat();
    (status.code().unwrap(), String::from_utf8_lossy(&text).into_owned())
}

fn configured(name: &str, text: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("kvbridge.toml");
    std::fs::write(&path, text).unwrap();
    path
}

/// An entry of this engine; block n has hash n + 1, and the tokens n, n.
fn entry(engine: &Engine, options: &str) -> String {
    format!(
        "[limits]\nreconnect_min = \"5ms\"\nreconnect_max = \"20ms\"\n\
         [recovery]\nreplay_deadline = \"200ms\"\nattempts = 1\n\
         [[sources]]\nname = \"it\"\nengine = \"tiny\"\nmodel = \"m\"\ninstance = \"i:1\"\n\
         endpoint = \"tcp://127.0.0.1:{}\"\nreplay = \"tcp://127.0.0.1:{}\"\n{options}",
        engine.live, engine.journal
    )
}

const OPTIONS: &str = "[sources.options]\nblock_size = 2\n";

fn publish(engine: &Engine, seq: u64) {
    let parent = if seq == 0 { "null".to_owned() } else { format!("\"{seq:x}\"") };
    let stored =
        format!(r#"{{"hash": "{:x}", "parent": {parent}, "tokens": [{seq}, {seq}]}}"#, seq + 1);
    engine.publish(seq, &format!(r#"{{"seq": {seq}, "stored": [{stored}]}}"#));
}

/// A running program, and where it listens.
struct Running {
    process: Child,
    address: String,
}

impl Running {
    async fn start(config: &Path) -> Running {
        let mut command = program();
        command.args(["run", "--listen", "127.0.0.1:0", "--config"]).arg(config);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let first = tokio::time::timeout(LIMIT, lines.next_line()).await.unwrap().unwrap().unwrap();
        let (_, address) = first.split_once(" on http://").expect(&first);
        let address = address.to_owned();
        let banner = lines.next_line().await.unwrap().unwrap();
        assert!(banner.contains("m.i=3A1.0: tiny from tcp://127.0.0.1:"), "{banner}");
        // Read on, or the program would wait for us.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Running { process, address }
    }

    async fn ask(&self, line: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        let request = format!(
            "{line} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n{body}",
            self.address,
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    /// Waits until an answer says all of it.
    async fn until(&self, (line, body): (&str, &str), wanted: &[&str]) {
        let mut last = String::new();
        let looks = async {
            loop {
                last = self.ask(line, body).await;
                if wanted.iter().all(|text| last.contains(text)) {
                    return;
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        let came = tokio::time::timeout(LIMIT, looks).await.is_ok();
        assert!(came, "{line} did not say {wanted:?}: {last}");
    }

    async fn end(mut self) {
        let id = self.process.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().await.unwrap().success());
        let status = tokio::time::timeout(LIMIT, self.process.wait()).await.unwrap().unwrap();
        assert_eq!(status.code(), Some(0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_router_and_an_operator_are_told_of_this_engine_as_of_any_other() {
    let engine = Engine::start().await;
    (0..3).for_each(|seq| publish(&engine, seq));
    let config = configured("told", &entry(&engine, OPTIONS));
    let (code, said) = output(&["check-config", "--config", config.to_str().unwrap()]).await;
    assert_eq!(code, 0, "{said}");

    let running = Running::start(&config).await;
    engine.read().await;
    publish(&engine, 3);
    let question = r#"{"model": "m", "token_ids": [0, 0, 1, 1, 2, 2, 3, 3, 9, 9]}"#;
    let asked = ("POST /v1/match", question);
    running.until(asked, &["\"matched_tokens\":8", "\"trust\":\"exact\""]).await;
    running.until(("GET /v1/replicas", ""), &["\"engine\":\"tiny\"", "\"exact\""]).await;
    running.until(("GET /metrics", ""), &["kvbridge_facts_total{replica=\"m.i=3A1.0\""]).await;
    // What the journal has is repaired; what it has not is known.
    engine.cut().await;
    publish(&engine, 4);
    running.until(("GET /v1/replicas", ""), &["\"next_seq\":5", "\"trust\":\"exact\""]).await;
    engine.read().await;
    engine.cut().await;
    engine.read().await;
    engine.forget_journal();
    publish(&engine, 9);
    running.until(("GET /v1/replicas", ""), &["\"lower_bound\"", "\"history_lost\""]).await;
    running.end().await;
    // A program that has ended reads nobody.
    tokio::time::timeout(LIMIT, engine.unread()).await.unwrap();
}

#[tokio::test]
async fn what_is_wrong_with_an_entry_is_said_with_its_exit_code() {
    let engine = Engine::start().await;
    // The configuration does not know what the adapter wants; opening it does.
    let config = configured("without", &entry(&engine, ""));
    let (code, said) = output(&["check-config", "--config", config.to_str().unwrap()]).await;
    assert_eq!(code, 0, "{said}");
    let (code, said) =
        output(&["run", "--listen", "127.0.0.1:0", "--config", config.to_str().unwrap()]).await;
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("m.i=3A1.0: adapter of engine tiny: missing field `block_size`"),
        "{said}"
    );

    let named = entry(&engine, OPTIONS).replace("\"tiny\"", "\"tinny\"");
    let config = configured("misnamed", &named);
    let (code, said) = output(&["check-config", "--config", config.to_str().unwrap()]).await;
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("vllm") && said.contains("tiny, got \"tinny\""), "{said}");

    // Its engine is named in the file: flags are those of the built-in ones.
    let (code, said) = output(&["run", "--tiny", "tcp://127.0.0.1:1"]).await;
    assert_eq!(code, 2, "{said}");
    let (code, said) = output(&["run", "--help"]).await;
    assert!(code == 0 && said.contains("--vllm") && !said.contains("--tiny"), "{said}");
}
