//! What operators take as it is fits the program: every configuration is proven, every command and
//! option is one that there is, every packaged file too, and promtool reads rules and dashboard.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::{harness::folder, peer::root, program::kvbridge};

fn deployed(folder: &str, ending: &str) -> Vec<(PathBuf, String)> {
    let files = fs::read_dir(root().join("deploy").join(folder)).unwrap();
    let paths = files.map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|it| it == ending))
        .map(|path| (path.clone(), fs::read_to_string(path).unwrap()))
        .collect();
    found.sort();
    assert!(!found.is_empty(), "no {ending} in deploy/{folder}");
    found
}

/// The block of lines that is indented below a line.
fn block(text: &str, head: &str) -> Option<String> {
    let (_, rest) = text.split_once(head)?;
    let lines = rest.lines().skip(1).take_while(|line| line.is_empty() || line.starts_with("    "));
    let lines: Vec<&str> = lines.map(|line| line.get(4..).unwrap_or("")).collect();
    Some(lines.join("\n"))
}

#[test]
fn every_configuration_in_a_manifest_is_proven() {
    let folder = folder("deploy");
    let tokens = "[[tokens]]\ntoken = \"0123456789abcdef\"\nscopes = [\"read\", \"report\"]\n";
    fs::create_dir_all(folder.join("tokens")).unwrap();
    fs::write(folder.join("tokens/tokens.toml"), tokens).unwrap();
    let mut seen = 0;
    for (path, text) in deployed("kubernetes", "yaml") {
        let Some(config) = block(&text, "kvbridge.toml: |") else { continue };
        seen += 1;
        let config = config.replace("/etc/kvbridge", folder.to_str().unwrap());
        fs::write(folder.join("kvbridge.toml"), &config).unwrap();
        let mut command = kvbridge();
        command.arg("check-config").arg("--config").arg(folder.join("kvbridge.toml"));
        let said = command.output().unwrap();
        let told = String::from_utf8(said.stdout).unwrap();
        assert!(said.status.success(), "{}: {told}", path.display());
    }
    assert_eq!(seen, 4, "configurations in deploy/kubernetes");
}

#[test]
fn probes_ask_what_there_is_and_pods_have_no_rights() {
    for (path, text) in deployed("kubernetes", "yaml") {
        let name = path.display();
        for probe in text.lines().filter(|line| line.contains("httpGet: {path: /")) {
            let known = ["/healthz", "/readyz", "/health,"];
            assert!(known.iter().any(|it| probe.contains(it)), "{name}: {probe}");
        }
        let ours = text.matches("image: kvbridge:local").count();
        for guard in ["readOnlyRootFilesystem: true", "drop: [\"ALL\"]", "runAsNonRoot: true"] {
            assert!(text.matches(guard).count() >= ours, "{name}: {guard}");
        }
    }
}

/// A command line without its program, as the program itself reads it: with `--help` behind it.
fn understood(line: &str) -> bool {
    let arguments = line.split_whitespace();
    kvbridge().args(arguments).arg("--help").output().unwrap().status.success()
}

#[test]
fn every_command_line_is_understood() {
    let (_, unit) = deployed("systemd", "service").pop().unwrap();
    let started = unit.lines().filter_map(|line| line.split_once("=kvbridge "));
    let started: Vec<&str> = started.map(|(_, line)| line).collect();
    assert_eq!(started.len(), 2, "{started:?}");
    assert!(started.iter().all(|line| understood(line)), "{started:?}");
    assert!(!understood("run --colour red"), "what is wrong is seen");
}

#[test]
fn the_debian_package_names_what_there_is() {
    let manifest: toml::Table = include_str!("../../Cargo.toml").parse().unwrap();
    let deb = &manifest["package"]["metadata"]["deb"];
    let assets = deb["assets"].as_array().unwrap();
    let mut made = Vec::new();
    for asset in assets {
        let source = asset[0].as_str().unwrap();
        match source.strip_prefix("target/") {
            Some(built) => made.push(built),
            None => assert!(root().join(source).is_file(), "{source} is not there"),
        }
    }
    let script = fs::read_to_string(root().join("deploy/debian/build.sh")).unwrap();
    let shells = script.lines().find_map(|line| line.strip_prefix("for shell in ")).unwrap();
    let shells = shells.split(';').next().unwrap().split(' ');
    let mut expected = vec!["release/kvbridge".to_owned(), "package/man/*.1".to_owned()];
    expected.extend(shells.map(|shell| format!("package/kvbridge.{shell}")));
    assert_eq!(made, expected, "Cargo.toml against deploy/debian/build.sh");
    let config = root().join("deploy/debian/kvbridge.toml");
    let said = kvbridge().args(["check-config", "--config"]).arg(config).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stdout));
}

/// Every expression of the dashboard as a rule, with its variables filled in.
fn rules_of_the_dashboard() -> (usize, String) {
    let (_, text) = deployed("grafana", "json").pop().unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let expressions: Vec<String> = targets
        .map(|target| target["expr"].as_str().unwrap())
        .map(|expr| expr.replace("$job", ".*").replace("$replica", ".*"))
        .collect();
    let rules = expressions.iter().enumerate().map(|(number, expression)| {
        format!("      - record: panel:expression:{number}\n        expr: {expression:?}\n")
    });
    let rules: String = rules.collect();
    (expressions.len(), format!("groups:\n  - name: dashboard\n    rules:\n{rules}"))
}

/// Where Prometheus is installed; elsewhere names alone are checked, in `src/telemetry`.
#[test]
fn promtool_reads_the_rules_and_the_dashboard() {
    let (count, rules) = rules_of_the_dashboard();
    assert!(count > 15, "the expressions are not found");
    assert!(!rules.contains('$'), "a variable is left: {rules}");
    let Ok(version) = Command::new("promtool").arg("--version").output() else { return };
    assert!(version.status.success());
    let path = folder("promtool").join("dashboard.yml");
    fs::write(&path, rules).unwrap();
    let alerts = root().join("deploy/prometheus");
    let check = |what: &str, path: &Path| {
        let said = Command::new("promtool").args([what, "rules"]).arg(path).output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    };
    check("check", &path);
    check("check", &alerts.join("alerts.yml"));
    check("test", &alerts.join("alerts_test.yml"));
}
