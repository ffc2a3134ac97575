//! A nats-server of our own, with its store in a folder that goes with it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail};

pub struct Server {
    pub url: String,
    process: Child,
    folder: PathBuf,
}

pub async fn start() -> anyhow::Result<Server> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let script = Command::new(root.join("tests/peers/ensure_nats.sh")).output()?;
    if !script.status.success() {
        bail!("no nats-server: {}", String::from_utf8_lossy(&script.stderr));
    }
    let binary = String::from_utf8(script.stdout)?;
    let folder = std::env::temp_dir().join(format!("bench-bus-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let process = Command::new(binary.trim())
        .args(["-a", "127.0.0.1", "-p", "-1", "-js", "-sd"])
        .arg(folder.join("store"))
        .arg("--ports_file_dir")
        .arg(&folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let ports = folder.join(format!("nats-server_{}.ports", process.id()));
    let mut server = Server { url: String::new(), process, folder };
    for _ in 0..200 {
        if let Ok(text) = fs::read_to_string(&ports) {
            let ports: serde_json::Value = serde_json::from_str(&text)?;
            server.url = ports["nats"][0].as_str().context("a port")?.to_owned();
            return Ok(server);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bail!("nats-server did not start")
}

impl Drop for Server {
    fn drop(&mut self) {
        // It is only stopped; what is left of it is measured by nobody.
        self.process.kill().ok();
        self.process.wait().ok();
        fs::remove_dir_all(&self.folder).ok();
    }
}
