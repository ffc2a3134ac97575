//! SHELL around a pure core: wire-faithful models of vLLM, SGLang and TensorRT-LLM, for
//! demonstrations, tests and bug reports.
//!
//! Pure, without time, socket or task: [`cache`] (pool, eviction, copies, groups, host tier),
//! [`radix`] (a tree of pages), [`drained`] (events that wait), [`native`] (the same published),
//! which of them in [`model`], [`engine`] (requests and steps), [`hash`], [`encode`] (bytes of each
//! release), [`traffic`].
//! The shell is one task a rank, which owns engine and publisher, and an HTTP server that asks it.
//! So a rank's cache and the seq it belongs to are always read together: `GET /truth`.
//!
//! It knows nothing of the bridge: what it sends is decoded like any engine's.

pub mod cache;
pub mod control;
pub mod drained;
pub mod encode;
pub mod engine;
pub mod hash;
mod host;
mod http;
mod http_sources;
mod http_text;
pub mod model;
mod msgpack;
pub mod native;
mod next;
pub mod radix;
mod rank;
pub mod release;
pub mod rng;
pub mod sequence;
pub mod settings;
mod snapshots;
pub mod traffic;

use std::{io, net::SocketAddr, sync::Arc};

use kvbridge_adapters_zmq::ServeError;
use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
};

pub use model::Model;
pub use release::{Release, ReleaseError};
pub use settings::FakeSettings;

use self::rank::Rank;
use crate::{clock::Clock, config::HttpConfig, http::Service, pipeline::Tasks};

/// Questions that wait for one rank; its steps take milliseconds. Full: the asker waits.
const ASK_QUEUE: usize = 64;

/// Why a fake engine did not start.
#[derive(Debug, thiserror::Error)]
pub enum FakeError {
    /// A publisher did not start.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The HTTP server did not.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
}

/// Where a running fake engine is found.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Ports {
    /// `http://host:port`.
    pub http: String,
    /// In the order of ranks.
    pub ranks: Vec<RankPorts>,
}

/// Where a rank is found.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct RankPorts {
    /// Its number.
    pub rank: u32,
    /// Where it publishes.
    pub live: String,
    /// Where it answers replay requests.
    pub replay: String,
    /// Where it is asked for what it holds, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
}

/// Binds everything and starts the tasks. They end when `tasks` are stopped.
pub async fn start(
    settings: FakeSettings,
    tasks: &mut Tasks,
    clock: Clock,
) -> Result<Ports, FakeError> {
    let address = settings.http;
    let listener =
        TcpListener::bind(address).await.map_err(|source| FakeError::Listen { address, source })?;
    let local = listener.local_addr().map_err(|source| FakeError::Listen { address, source })?;
    let mut ranks = Vec::new();
    let mut asks = Vec::new();
    for number in 0..settings.dp {
        let rank = Rank::bind(&settings, number, clock).await?;
        let (live, replay) = match settings.engine {
            // All ranks are there; nothing is journaled.
            Model::Drained(_) => (format!("http://{local}"), String::new()),
            Model::Paged(_) | Model::Radix(_) | Model::Native(_) => {
                (rank.live().to_owned(), rank.replay().to_owned())
            }
        };
        let snapshot = rank.snapshot().map(str::to_owned);
        ranks.push(RankPorts { rank: number, live, replay, snapshot });
        let (ask, ask_rx) = mpsc::channel(ASK_QUEUE);
        asks.push(ask);
        tasks.spawn(format!("fake rank {number}"), rank.run(ask_rx, tasks.stop_token()));
    }
    let ports = Ports { http: format!("http://{local}"), ranks };
    let router = http::router(Arc::new(settings), ports.clone(), asks, clock);
    let stop = tasks.stop_token();
    let plain = watch::channel(None).1;
    let service = Service::new(router, plain, HttpConfig::default(), stop);
    tasks.spawn("fake http", service.serve(listener));
    Ok(ports)
}
