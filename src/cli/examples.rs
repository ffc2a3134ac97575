//! The examples at the end of each `--help`.

pub(super) const TOP: &str = "\
Examples:
  kvbridge demo                              see it: three modelled engines, faults, a page
  kvbridge run --vllm tcp://127.0.0.1:5557 --replay tcp://127.0.0.1:5558 --model m --instance 127.0.0.1:8000
  kvbridge run --play recording.jsonl        both ends in one process, no engine needed
  kvbridge tail                              what a running kvbridge applies
  kvbridge decode --engine vllm recording.jsonl
  kvbridge bus status --nats nats://127.0.0.1:4222

Exit codes: 0 ok, 1 run-time error, 2 bad input or configuration, 3 condition not reached, 130 Ctrl-C";

pub(super) const RUN: &str = "\
--replay, --snapshot, --plain-cache, --model, --instance, --dp, --bind, --topic, --transport, --metrics, --flush and --member
belong to the source before them.

Examples:
  kvbridge run --vllm tcp://10.0.0.7:5557 --replay tcp://10.0.0.7:5558 --model llama --instance 10.0.0.7:8000 \\
               --vllm tcp://10.0.0.8:5557 --model llama --instance 10.0.0.8:8000 --dp 4
  kvbridge run --vllm http://10.0.0.7:8000       an engine that tells where its events are (vllm 0.31, sglang 0.5.22)
  kvbridge run --engine-url http://10.0.0.7:8000 the same of whichever engine answers there
  kvbridge run --config kvbridge.toml --listen 127.0.0.1:9000
  kvbridge run --play recording.jsonl";

pub(super) const DEMO: &str = "\
Exit codes of --fast: 0 every view ended exact and equal to its engine's truth, 3 one did not

Examples:
  kvbridge demo                              then open http://127.0.0.1:8090
  kvbridge demo --fast --port 0";

pub(super) const DECODE: &str = "\
Examples:
  kvbridge decode --engine vllm recording.jsonl | head -1";

pub(super) const TAIL: &str = "\
Examples:
  kvbridge tail                              a running kvbridge on this machine
  kvbridge tail --url https://bridge:8090 --ca ca.pem --token-file token
                                             one that asks for a token
  kvbridge tail --url https://bridge:8090 --ca ca.pem --cert client.pem --key client.key
  kvbridge tail --vllm tcp://127.0.0.1:5557  an engine itself
  kvbridge tail --vllm tcp://127.0.0.1:5557 --raw recording.jsonl
  kvbridge tail --nats nats://127.0.0.1:4222 --since 10m
                                             what bridges published, and go on to
  kvbridge tail --config kvbridge.toml --replica llama.10=2E0=2E0=2E7=3A8000.0 --from-seq 120";

pub(super) const REPLAY: &str = "\
Seqs are the engine's, both inclusive. What is missing is said with its reason, on the error output.
Exit codes: 0 all of it, 1 not reachable or refused, 2 bad input, 3 something is missing

Examples:
  kvbridge replay --nats nats://127.0.0.1:4222 --replica llama.10=2E0=2E0=2E7=3A8000.0 --from 100 --to 200
  kvbridge replay --config kvbridge.toml --replica llama.10=2E0=2E0=2E7=3A8000.0 --from 0 --to 5000 --out batches.jsonl
  kvbridge replay --config kvbridge.toml --replica llama.10=2E0=2E0=2E7=3A8000.0 --from 0 --to 5000 \\
                  --republish lab.hint --yes";

pub(super) const SNAPSHOT: &str = "\
Exit codes: 0 shown, or the same blocks, 1 not reachable or none there, 2 bad input, 3 different blocks

Examples:
  kvbridge snapshot --nats nats://127.0.0.1:4222 --replica llama.10=2E0=2E0=2E7=3A8000.0
  kvbridge snapshot --config kvbridge.toml --replica llama.10=2E0=2E0=2E7=3A8000.0 --at now --out now.view
  kvbridge snapshot --at now.view
  kvbridge snapshot --config kvbridge.toml --replica llama.10=2E0=2E0=2E7=3A8000.0 --diff now.view latest";

pub(super) const HEALTH: &str = "\
Exit codes: 0 ready, 1 no answer or another one, 2 a certificate cannot be used

Examples:
  kvbridge health
  kvbridge health --url https://bridge:8090/readyz --ca ca.pem
  kvbridge health --url http://127.0.0.1:8000/health      a fake engine";

pub(super) const RESYNC: &str = "\
Trust of a replica is withdrawn from when it is asked until its view is proven again; nothing is asked of its cache.
Ctrl-C cancels what has not begun.
Exit codes: 0 all reached it, 1 no answer or a refusal, 2 bad input, 3 some did not, 130 Ctrl-C

Examples:
  kvbridge resync --all --max-parallel 1
  kvbridge resync --replica llama.10=2E0=2E0=2E7=3A8000.0 --wait lower_bound --timeout 30s
  kvbridge resync --model llama --url https://bridge:8090 --ca ca.pem --token-file token --json";

pub(super) const FLUSH: &str = "\
Every rank of an engine that is asked loses its cache. vllm has the endpoint with VLLM_SERVER_DEV_MODE=1 and says what it
did with its next step only: without requests a replica is pending (no_traffic). trtllm has none (flush_unsupported).
Ctrl-C cancels what has not begun.
Exit codes: 0 all reached it, 1 no answer or a refusal, 2 bad input, 3 some did not, 130 Ctrl-C

Examples:
  kvbridge flush --replica llama.10=2E0=2E0=2E7=3A8000.0
  kvbridge flush --model llama --max-parallel 1 --timeout 10m";

pub(super) const DOCTOR: &str = "\
It looks step by step and changes nothing; --probe sends tiny completions, --drain takes events that another reader would get.
docs/doctor.md has every finding. Exit codes: 0 all well (or notes), 1 warnings, 2 errors or bad arguments

Examples:
  kvbridge doctor http://10.0.0.7:8000           an engine that tells where its events are (vllm 0.31, sglang 0.5.22, trtllm)
  kvbridge doctor http://10.0.0.7:8000 --probe   the same without traffic
  kvbridge doctor tcp://10.0.0.7:5557 --engine vllm --replay tcp://10.0.0.7:5657
  kvbridge doctor http://10.0.0.7:8000 --engine trtllm --drain --probe      only where nobody else reads it
  kvbridge doctor --kvbridge http://127.0.0.1:8090 --router-endpoints endpoints.txt
  kvbridge doctor http://10.0.0.7:8000 --json | jq '.findings[] | select(.severity == \"error\")'";

pub(super) const PLAY: &str = "\
Examples:
  kvbridge play recording.jsonl --pub 5557 --replay 5558 --rate 100
  kvbridge play recording.jsonl --drop 5-9,20 --journal 5";

pub(super) const FAKE_ENGINE: &str = "\
GET /members/R/metrics says when tensor-parallel member R started. GET /truth says what is really cached, each rank with the seq it holds for. POST /control makes a
fault, of all ranks or of ?rank=R:
  {\"fault\": \"restart\" | \"silent_restart\" | \"clear\" | \"undecodable_event\" | \"unknown_tag\"}
  {\"fault\": \"drop\" | \"hole\" | \"burn\" | \"poison\" | \"burst\", \"count\": 3}
  {\"fault\": \"slow_reader\", \"count\": 2000}     cuts replay answers; null = whole again
  {\"fault\": \"snapshot_busy\" | \"snapshot_short\" | \"snapshot_garbled\", \"count\": 1}
  {\"fault\": \"leave_out\", \"count\": 1}             stores of a native stream, no seq missing
  {\"fault\": \"stall\", \"ms\": 500}
  {\"fault\": \"freeze_clock\" | \"end_lost\" | \"latch\", \"on\": true}
  {\"fault\": \"restart_tp_rank\", \"tp_rank\": 1}

Examples:
  kvbridge fake-engine --engine vllm --rps 20 --blocks 256
  kvbridge run --vllm tcp://127.0.0.1:5557 --replay tcp://127.0.0.1:5657 --model fake --instance 127.0.0.1:8000
  kvbridge fake-engine --engine sglang --encoding 0.5.18
  kvbridge fake-engine --engine sglang --buffer-steps 20 --snapshot 5757 --rps 20
  kvbridge run --sglang tcp://127.0.0.1:5557 --replay tcp://127.0.0.1:5657 --snapshot tcp://127.0.0.1:5757 --plain-cache --model fake
  kvbridge fake-engine --engine trtllm --dp 2 --rps 20
  kvbridge run --trtllm http://127.0.0.1:8000 --dp 2 --model fake
  kvbridge fake-engine --engine trtllm --native cpp --rps 20
  kvbridge run --trtllm tcp://127.0.0.1:5557 --replay tcp://127.0.0.1:5657 --model fake --instance 127.0.0.1:8000
  kvbridge fake-engine --engine vllm --encoding 0.16 --hashes bytes --dp 2 --host-blocks 64
  curl -d '{\"fault\":\"drop\",\"count\":3}' http://127.0.0.1:8000/control
  curl http://127.0.0.1:8000/truth";

pub(super) const CHECK: &str = "\
Examples:
  kvbridge check-config --config kvbridge.toml
  KVBRIDGE__HTTP__LISTEN=0.0.0.0:8090 kvbridge check-config";

pub(super) const BUS: &str = "\
Reads [bus] and [[sources]] of the configuration; status needs neither when it is given --nats.
Exit codes: 0 as it must be, 1 not reachable or refused, 2 bad configuration, 3 a stream is missing or differs

Examples:
  kvbridge bus status --nats nats://127.0.0.1:4222
  kvbridge bus status --config kvbridge.toml --json
  kvbridge bus apply --config kvbridge.toml
  kvbridge bus permissions --role bridge --role index --role viewer --model llama";

pub(super) const PERMISSIONS: &str = "\
Of the configuration it reads bus.stream, bus.shards and bus.inbox; without --model the models of [[sources]], and
without those all models.

Examples:
  kvbridge bus permissions --role bridge --role index --model llama > users.conf      include users.conf
  kvbridge bus permissions --config kvbridge.toml --role viewer";

pub(super) const SINK: &str = "\
Examples:
  kvbridge sink test --preset dynamo
  kvbridge sink test --help                      where messages may come from";

pub(super) const SINK_TEST: &str = "\
A late reader asks from 0, as routers do, and so does this. Token ids are not shown.
Exit codes: 0 no message breaks a rule, 1 not reachable, 2 bad input, 3 a rule is broken or messages are missing

Examples:
  kvbridge sink test --preset dynamo --count 40                  a view that is made up
  kvbridge sink test --preset dynamo --url http://127.0.0.1:8090 --replica llama.10=2E0=2E0=2E7=3A8000.0
  kvbridge sink test --preset llm-d --config kvbridge.toml --json
  kvbridge sink test --preset llm-d --bind tcp://127.0.0.1:5557  in place of a router that is connected to
  kvbridge sink test --preset dynamo --endpoint tcp://10.0.0.7:5557 --replay tcp://10.0.0.7:5558
                                                                 whether Dynamo can read that engine itself";

pub(super) const SUPPORT_BUNDLE: &str = "\
Hosts, models and the names of sources are in it; prompts, hashes and secrets are not.

Examples:
  kvbridge support-bundle --config kvbridge.toml --out bundle.json
  kvbridge support-bundle --url https://bridge:8090 --ca ca.pem --token-file token --listen 30s";

pub(super) const COMPLETIONS: &str = "\
Examples:
  kvbridge completions bash > /etc/bash_completion.d/kvbridge
  kvbridge completions zsh > \"${fpath[1]}/_kvbridge\"";
