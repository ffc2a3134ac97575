//! The examples at the end of each `--help`.

pub(super) const TOP: &str = "\
Examples:
  kvbridge run --vllm tcp://127.0.0.1:5557 --replay tcp://127.0.0.1:5558 --model m --instance 127.0.0.1:8000
  kvbridge run --play recording.jsonl        both ends in one process, no engine needed
  kvbridge tail                              what a running kvbridge applies
  kvbridge decode --engine vllm recording.jsonl

Exit codes: 0 ok, 1 run-time error, 2 bad input or configuration, 3 condition not reached, 130 Ctrl-C";

pub(super) const RUN: &str = "\
--replay, --model, --instance, --dp, --bind and --topic belong to the source before them.

Examples:
  kvbridge run --vllm tcp://10.0.0.7:5557 --replay tcp://10.0.0.7:5558 --model llama --instance 10.0.0.7:8000 \\
               --vllm tcp://10.0.0.8:5557 --model llama --instance 10.0.0.8:8000 --dp 4
  kvbridge run --config kvbridge.toml --listen 127.0.0.1:9000
  kvbridge run --play recording.jsonl";

pub(super) const DECODE: &str = "\
Examples:
  kvbridge decode --engine vllm recording.jsonl | head -1";

pub(super) const TAIL: &str = "\
Examples:
  kvbridge tail                              a running kvbridge on this machine
  kvbridge tail --vllm tcp://127.0.0.1:5557  an engine itself
  kvbridge tail --vllm tcp://127.0.0.1:5557 --raw recording.jsonl";

pub(super) const PLAY: &str = "\
Examples:
  kvbridge play recording.jsonl --pub 5557 --replay 5558 --rate 100
  kvbridge play recording.jsonl --drop 5-9,20 --journal 5";

pub(super) const CHECK: &str = "\
Examples:
  kvbridge check-config --config kvbridge.toml
  KVBRIDGE__HTTP__LISTEN=0.0.0.0:8090 kvbridge check-config";

pub(super) const COMPLETIONS: &str = "\
Examples:
  kvbridge completions bash > /etc/bash_completion.d/kvbridge
  kvbridge completions zsh > \"${fpath[1]}/_kvbridge\"";
