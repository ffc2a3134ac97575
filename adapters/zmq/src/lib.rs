//! ZeroMQ framing and sockets shared by the engines that speak it.
//!
//! An engine publishes numbered batches on a PUB socket and keeps a bounded journal of them that a
//! ROUTER answers from. [`ZmqSource`] makes a source of the two; an engine's adapter adds a
//! [`Decode`] and its settings. [`Server`] is the engine's side, for replaying captures and for
//! tests.
//!
//! - [`mod@frame`]: messages as bytes; pure.
//! - [`mod@subscribe`]: the supervised live subscription, one endpoint each.
//! - [`mod@exchange`]: asking a ROUTER: one fresh DEALER each, with deadlines and a bounded spool.
//! - [`mod@replay`]: what an engine's journal is asked and answers.
//! - [`mod@snapshot`]: the same of an engine's snapshot.
//! - [`mod@source`]: both as one stream of source events.
//! - [`mod@serve`]: PUB, journal and replay ROUTER, as an engine has them.
//! - [`mod@outlet`]: PUB and ROUTER alone, for whoever serves readers of its own.
//! - [`mod@dial`]: a publisher that connects to a reader, and knows when that one listens.
//!
//! The sockets of a client are behind one trait with two implementations, chosen at run time:
//! [`Transport::Zeromq`], the default, and with the feature `omq` `Transport::Omq`.
//! `docs/adr/0010-two-zeromq-transports.md` says when to use which.
//!
//! # What the default transport cannot survive
//!
//! Measured against `zeromq` 0.7.0. An endpoint is a trust boundary: put only engines you run
//! behind it. Under `omq` the first two, PING and the silent peer
//! of a bound socket do no harm; the rest holds for both or was not tried.
//!
//! - **A frame header that announces 2^36 bytes or more aborts the process** ("memory allocation
//!   failed"); it cannot be caught. It takes a peer that speaks the greeting, so a wrong port does
//!   not do it (HTTP and random bytes give a clean error). 2^32 reserves 4 GiB of address space
//!   until the peer closes. Our frame limit is applied after the library has read the frame.
//! - **Endless frames with the MORE flag** are collected without a limit: 4.7 GB in 6 s.
//! - **PING, ERROR or any command but READY drops the link**: a publisher with heartbeats on
//!   (`ZMQ_HEARTBEAT_IVL`) reconnects at every beat and what is sent between is lost. Stock engines
//!   set none.
//! - **No CURVE and no PLAIN**: such a publisher fails the handshake with an error.
//! - **A peer whose host vanished without a word is silent for ever**; set
//!   [`SubscribeSettings::idle_recycle`](subscribe::SubscribeSettings::idle_recycle) or probe by
//!   replay.
//! - **On a bound socket a peer that never ends its handshake keeps its connection**: there is no
//!   time limit on the accepting side.
//! - **An ipc endpoint with a wildcard panics** (in our task: the source then ends).
//!
//! # Example
//!
//! ```
//! use bytes::Bytes;
//! use kvbridge_adapters_zmq::frame::{FRAME_BYTES_MAX, ReplayFrame, parse_replay};
//!
//! let end = vec![Bytes::new(), Bytes::from_static(&[0xff; 8]), Bytes::new()];
//! assert_eq!(parse_replay(end, FRAME_BYTES_MAX), Ok(ReplayFrame::End));
//! ```
#![deny(clippy::indexing_slicing, clippy::string_slice)]

pub mod dial;
pub mod exchange;
mod fifo;
pub mod frame;
mod live_queue;
pub mod outlet;
mod publisher;
pub mod replay;
mod retry;
pub mod serve;
pub mod snapshot;
pub mod source;
pub mod subscribe;
mod transport;

pub use dial::{Dial, DialEvent, Place};
pub use exchange::{
    Exchange, ExchangeClient, ExchangeFailure, ExchangeSettings, Heard, Next, Turn,
};
pub use fifo::QueueLimits;
pub use frame::{FrameError, LiveForm, LiveFrame, SeqFrame};
pub use kvbridge_adapters_api::Counters;
pub use outlet::{Addressed, Multipart, Outlet, OutletAddress};
pub use replay::{ReplayClient, ReplayFailure, ReplayPart, ReplaySettings};
pub use retry::RetrySettings;
pub use serve::{Faults, Framing, ServeError, ServeSettings, Server};
pub use snapshot::{ReadSnapshot, SnapshotPart};
pub use source::{Decode, Decoded, ZmqSettings, ZmqSource};
pub use subscribe::{DetachReason, Link, SubscribeSettings, Subscriber, WireEvent};
pub use transport::{Transport, TransportError};
