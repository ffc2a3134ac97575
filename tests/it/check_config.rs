//! `kvbridge check-config`: every problem, one a line, exit 2.

use std::process::Command;

fn check(directory: &str, text: &str, variables: &[(&str, &str)]) -> (i32, String) {
    let directory = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(directory);
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("kvbridge.toml"), text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_kvbridge"))
        .arg("check-config")
        .current_dir(&directory)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_good_file_is_exit_0() {
    let text = "[[sources]]\nengine = \"vllm\"\nendpoint = \"tcp://h:5557\"\ndp = 2";
    assert_eq!(check("good", text, &[]), (0, "ok: 2 replicas\n".to_owned()));
}

#[test]
fn a_problem_of_run_is_told_once_and_a_missing_file_is_exit_2() {
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kvbridge"));
        let output = command.args(args).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(
        run(&["run", "--vllm", "tcp://h:1", "--listen", "x"]),
        (
            Some(2),
            "kvbridge: http.listen: expected an address such as 127.0.0.1:8090, got \"x\" \
             (command line)\n"
                .to_owned()
        )
    );
    let (code, told) = run(&["check-config", "--config", "absent.toml"]);
    assert_eq!(code, Some(2));
    assert_eq!(told.matches("os error").count(), 1, "{told}");
}

#[test]
fn all_problems_are_printed_and_the_environment_wins() {
    let (code, out) =
        check("bad", "[http]\nlisten = 5\n[bus]\nkind = \"x\"", &[("KVBRIDGE__HTTP__LISTEN", "y")]);
    assert_eq!(code, 2);
    assert_eq!(out.lines().count(), 2, "{out}");
    assert!(out.contains("KVBRIDGE__HTTP__LISTEN"), "{out}");
}
