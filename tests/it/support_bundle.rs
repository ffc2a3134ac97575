//! `kvbridge support-bundle` and `man`, of a real process.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::{
    bridge::Bridge,
    harness::folder,
    peer::{Peer, capture},
    program::kvbridge,
};

#[test]
fn a_support_bundle_has_what_helps_and_no_prompt_and_no_secret() {
    let mut peer = Peer::play(&capture("0.32.0-basic"), &[]);
    let bridge = Bridge::run("support_bundle", &[peer.source()], "");
    peer.wait_subscriber();
    peer.publish(20);
    bridge.reaches("exact", 20);
    let folder = folder("support_bundle");
    let config = folder.join("kvbridge.toml");
    let text =
        "[bus]\nkind = \"nats\"\nurl = \"nats://h:1\"\nuser = \"u\"\npassword = \"s3cret\"\n";
    std::fs::write(&config, text).unwrap();
    let out = folder.join("bundle.json");
    let bundle = |more: &[&str]| {
        let mut command = kvbridge();
        command.args(["support-bundle", "--url", &bridge.url, "--listen", "1s", "--out"]);
        let said = command.arg(&out).args(more).output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        let text = std::fs::read_to_string(&out).unwrap();
        (serde_json::from_str::<Value>(&text).unwrap(), text)
    };
    let (told, text) = bundle(&["--config", config.to_str().unwrap()]);
    assert_eq!(told["configuration"]["bus"]["password"], "***");
    assert_eq!(told["configuration"]["bus"]["user"], "u");
    assert_eq!(told["replicas"]["replicas"][0]["trust"], "exact");
    assert!(told["version"].is_string() && told["alarms"]["alarms"].is_array());
    let metrics = told["metrics"].as_array().unwrap();
    assert!(metrics.iter().any(|line| line.as_str().unwrap().starts_with("kvbridge_facts_total")));
    assert_eq!(told["changes"][0]["event"], "standing");
    assert_eq!(std::fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o600);
    // The recording's prompts have salts and tokens, and its blocks hashes.
    let snapshot = bridge.get(&format!(
        "/v1/replicas/{}/snapshot",
        told["replicas"]["replicas"][0]["key"].as_str().unwrap()
    ));
    let block: Value = serde_json::from_str(snapshot.lines().nth(1).unwrap()).unwrap();
    for secret in ["s3cret", "salt-1", "\"tokens\"", block["hash"].as_str().unwrap()] {
        assert!(!text.contains(secret), "{secret} is in it");
    }
    // Of a configuration that is wrong only where it is: its values may stand in wrong places.
    std::fs::write(&config, "[bus]\npasword = \"s3cret\"\n").unwrap();
    let (told, text) = bundle(&["--config", config.to_str().unwrap()]);
    assert_eq!(told["configuration"]["problems"][0], "bus.pasword");
    assert!(!text.contains("s3cret"), "{text}");
}

#[test]
fn there_is_a_manual_page_for_every_command() {
    let folder = folder("man");
    assert!(kvbridge().arg("man").arg(&folder).status().unwrap().success());
    let page = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    assert!(page("kvbridge.1").contains("support\\-bundle"));
    assert!(page("kvbridge-run.1").contains("\\-\\-vllm"));
}
