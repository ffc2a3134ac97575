//! Tiny completions that make events flow: an engine without traffic says nothing.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use reqwest::{Client, StatusCode};
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::{clock::Clock, config::limits, doctor::ProbeSight, web_client};

/// Words of a prompt, of a few tokens each: some hundred tokens fill a block of any engine, and
/// more would be a load.
const WORDS: u64 = 96;

/// Between two rounds. The first may be published before a subscription has reached the engine.
const EVERY: Duration = Duration::from_secs(1);

/// Which rank is meant, where the engine has several behind one server.
const RANK_HEADER: &str = "x-data-parallel-rank";

/// What sends them, and what became of them.
pub(super) struct Probe {
    client: Client,
    url: String,
    model: Option<String>,
    ranks: u32,
    /// No prompt has been seen before: a cached one stores nothing.
    nonce: u64,
    served: u64,
    failed: Option<String>,
}

impl Probe {
    pub(super) fn new(url: &str, model: Option<&str>, ranks: u32) -> Result<Probe, String> {
        let client = web_client::builder([url]).timeout(limits::DISCOVERY_DEADLINE).build();
        let client = client.map_err(|error| web_client::root(&error))?;
        let url = format!("{}/v1/completions", url.trim_end_matches('/'));
        let model = model.map(str::to_owned);
        Ok(Probe { client, url, model, ranks, nonce: Clock::unix_ms(), served: 0, failed: None })
    }

    /// One completion for each rank.
    async fn round(&mut self) {
        for rank in 0..self.ranks {
            match self.send(rank).await {
                Ok(()) => self.served += 1,
                Err(why) => self.failed = Some(why),
            }
        }
    }

    async fn send(&mut self, rank: u32) -> Result<(), String> {
        self.nonce += 1;
        let words: Vec<String> = (0..WORDS).map(|at| format!("{}x{at}", self.nonce)).collect();
        let mut body = json!({"prompt": words.join(" "), "max_tokens": 1});
        if let Some(model) = &self.model {
            body["model"] = json!(model);
        }
        let mut request = self.client.post(&self.url).body(body.to_string());
        request = request.header("content-type", "application/json");
        if self.ranks > 1 {
            request = request.header(RANK_HEADER, rank.to_string());
        }
        let response = request.send().await.map_err(|error| web_client::root(&error))?;
        match response.status() {
            StatusCode::OK => Ok(()),
            status => Err(format!("/v1/completions was answered {}", status.as_u16())),
        }
    }

    pub(super) fn sight(self) -> ProbeSight {
        match self.failed {
            Some(why) if self.served == 0 => ProbeSight::Failed(why),
            _ => ProbeSight::Served(self.served),
        }
    }
}

/// Sends them for so much time, if they are to be sent. `served` has how many were.
pub(super) async fn during(listen: Duration, probe: Option<&mut Probe>, served: &AtomicU64) {
    let Some(probe) = probe else { return };
    let rounds = async {
        loop {
            probe.round().await;
            served.store(probe.served, Ordering::Relaxed);
            sleep(EVERY).await;
        }
    };
    // Running out is how it ends.
    drop(timeout(listen, rounds).await);
}
