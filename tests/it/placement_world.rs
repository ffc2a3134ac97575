//! The placement view as a router sees it: a fake engine, a bridge, the network between them in the
//! test's hand, and what `/v1/match` and `/v1/route` say meanwhile.

use kvbridge::clock::Clock;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    fake_engine::{
        peer::{Pair, Status},
        started::fake_engine,
    },
    peer::{LIMIT, scratch},
    proxy::{Link, Proxy},
};

/// Between two looks.
const LOOK: std::time::Duration = std::time::Duration::from_millis(10);

/// Quick reconnects, and a silent replay that is asked for again soon.
const LIMITS: &str = "[limits]\nreconnect_min = \"5ms\"\nreconnect_max = \"50ms\"\n";
const RECOVERY: &str = "[recovery]\nreplay_deadline = \"1s\"\nattempts = 200\n";

/// More lines of these two.
#[derive(Clone, Copy, Default)]
pub(crate) struct More {
    pub(crate) limits: &'static str,
    pub(crate) recovery: &'static str,
}

pub(crate) struct Placement {
    pub(crate) pair: Pair,
    pub(crate) live: Proxy,
    pub(crate) replay: Proxy,
}

impl Placement {
    /// Both, attached and exact.
    pub(crate) async fn start(name: &str, args: &str, more: More) -> Placement {
        let placement = Placement::begin((name, args, more), 0, Link::Open, false).await;
        // Few: a short journal must still have the first.
        placement.pair.burst(3).await;
        placement.is_usable().await;
        placement
    }

    /// A bridge that comes when the engine has had so many requests, with replays behind that link.
    pub(crate) async fn late(name: &str, args: &str, bursts: u64, replay: Link) -> Placement {
        Placement::begin((name, args, More::default()), bursts, replay, false).await
    }

    /// As `start`, and the bridge keeps its view on disk.
    pub(crate) async fn keeping(name: &str, args: &str) -> Placement {
        let placement = Placement::begin((name, args, More::default()), 0, Link::Open, true).await;
        placement.pair.burst(3).await;
        placement.is_usable().await;
        placement
    }

    async fn begin(
        (name, args, more): (&str, &str, More),
        bursts: u64,
        link: Link,
        keeps: bool,
    ) -> Placement {
        let (fake, mut ports) = fake_engine("vllm", "127.0.0.1:0", args);
        let rank = &mut ports["ranks"][0];
        let (live, replay) = (proxy(&mut rank["live"]).await, proxy(&mut rank["replay"]).await);
        replay.set(link);
        if bursts > 0 {
            let control = format!("{}/control", ports["http"].as_str().unwrap());
            let burst = json!({"fault": "burst", "count": bursts}).to_string();
            let client = crate::bridge::http_client();
            assert!(client.post(control).body(burst).send().await.unwrap().status().is_success());
        }
        let file = scratch(&format!("placement-{name}.toml"));
        let text = format!("{LIMITS}{}{RECOVERY}{}", more.limits, more.recovery);
        std::fs::write(&file, text).unwrap();
        let file = file.to_str().unwrap().to_owned();
        let state = keeps.then(|| crate::harness::folder(&format!("placement-{name}-state")));
        let pair =
            Pair::join("vllm", (fake, ports), |_| vec!["--config".to_owned(), file.clone()], state);
        Placement { pair, live, replay }
    }

    pub(crate) async fn falls_back(&self, trust: &str, reason: &str) {
        falls_back(&self.pair, trust, reason).await;
    }

    pub(crate) async fn is_usable(&self) {
        is_usable(&self.pair).await;
    }
}

/// Puts a link that the test steers in front of an endpoint.
async fn proxy(endpoint: &mut Value) -> Proxy {
    let port = endpoint.as_str().unwrap().rsplit_once(':').unwrap().1.parse().unwrap();
    let proxy = Proxy::to(port).await;
    *endpoint = json!(format!("tcp://127.0.0.1:{}", proxy.port));
    proxy
}

/// What a router is told now: the match of the replica, and where a request would go.
async fn asked(pair: &Pair) -> (Value, Value) {
    let (url, key) = pair.replica_url.split_once("/v1/replicas/").unwrap();
    let prompt: Vec<u32> = (0..64).collect();
    let ask = async |path: &str, body: Value| -> Value {
        let request = pair.client.post(format!("{url}{path}")).body(body.to_string());
        serde_json::from_str(&request.send().await.unwrap().text().await.unwrap()).unwrap()
    };
    let matched = ask("/v1/match", json!({"model": "fake", "token_ids": prompt})).await;
    let replicas = matched["replicas"].as_array().unwrap();
    let mut of_rank = replicas.iter().find(|it| it["key"] == key).unwrap().clone();
    let (instance, rank) = (&of_rank["replica"]["instance"], &of_rank["replica"]["rank"]);
    let candidates = json!([{"instance": instance, "rank": rank, "load": 3}]);
    let body = json!({"model": "fake", "token_ids": prompt, "candidates": candidates});
    let route = ask("/v1/route", body).await;
    of_rank["fallback"] = matched["fallback"].clone();
    (of_rank, route)
}

/// Waits until both answers say that the replica may not be matched, and why; that it goes on
/// serving is said too.
pub(crate) async fn falls_back(pair: &Pair, trust: &str, reason: &str) {
    let deadline = Instant::now() + LIMIT;
    loop {
        let (replica, route) = asked(pair).await;
        let candidate = &route["candidates"][0];
        let told = replica["reason"] == reason && candidate["reason"] == reason;
        if told && replica["trust"] == trust {
            assert_eq!((&replica["usable"], &candidate["usable"]), (&json!(false), &json!(false)));
            assert_eq!((&route["fallback"], &route["by"]), (&json!("load"), &json!("fallback")));
            assert_eq!(route["choice"]["key"], replica["key"], "it is never left out");
            return;
        }
        assert!(Instant::now() < deadline, "not {trust} ({reason}): {replica}, {route}");
        tokio::time::sleep(LOOK).await;
    }
}

/// Exact and true, and both answers may be used.
pub(crate) async fn is_usable(pair: &Pair) -> Status {
    let status = pair.is_true().await;
    let deadline = Instant::now() + LIMIT;
    loop {
        // The index follows the view.
        let (replica, route) = asked(pair).await;
        if replica["trust"] == "exact" {
            assert_eq!((&replica["usable"], &replica["fallback"]), (&json!(true), &Value::Null));
            assert_eq!(route["fallback"], Value::Null);
            assert_eq!(route["candidates"][0]["usable"], true);
            return status;
        }
        assert!(Instant::now() < deadline, "not usable: {replica}");
        tokio::time::sleep(LOOK).await;
    }
}

/// The same, and how long it took since the fault ended.
pub(crate) async fn exact_again(case: &str, pair: &Pair, since: &Clock) -> Status {
    let status = is_usable(pair).await;
    let took = since.elapsed().as_millis();
    #[expect(clippy::print_stdout, reason = "how long it took is what a reader wants to see")]
    {
        println!("placement: {case}: exact and true {took} ms after the fault ended");
    }
    status
}
