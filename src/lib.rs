//! kvbridge keeps a cache-aware router's map of KV blocks true, knows when it is not, and says so.
//!
//! - [`recovery`]: PURE. One replica's state machine: gap, replay, snapshot, epoch, trust.
//! - [`view`]: PURE. The fold of one replica's events: which blocks it holds, where, how often.
//! - [`index`]: PURE. All views together, answering prefix queries.
//! - [`discovery`]: PURE. Which engines there are, from what names and servers tell.
//! - [`doctor`]: PURE. What is wrong, from what was seen of an engine or a bridge.
//! - [`jobs`]: PURE. Deliberate resyncs and flushes: whom to ask now, and what came of it.
//! - [`route`]: PURE. Which replica a request should go to, from matches and load.
//! - [`shared_log`]: PURE. What bridges must write, and readers believe, of a log they share.
//! - [`sink_line`]: PURE. What one router is told of one replica, in a form that it knows.
//! - [`slo`]: PURE. What routing was worth: predicted against observed, turns that were scattered.
//!
//! With the feature `shell` (on by default), everything that touches the world:
//!
//! - `checkpoint`: views on disk, for the next process.
//! - `config`: file, environment and flags → a proven configuration.
//! - `bus`: where envelopes travel beyond this process.
//! - `pipeline`: one task per replica; opens sources, performs what recovery decides.
//! - `cli`: the subcommands, one file each; `capture`: the format of recorded frames;
//!   `playback`: a recording as an engine; `fake_engine`: a model of an engine.
//! - `bridge`: all of it in another program; `adapters`: engines which that program brings.
//! - `consumer`: an index in another program, maintained from a bus.
//! - `http`: the API of routers and operators.
//! - `foreman`: runs jobs.
//! - `lookout`: asks engines where their events are.
//! - `engine_metrics`: what engines say of themselves beside their events.
//! - `alarms`: what an operator is woken for; `memory`: the process's soft limit.
//! - `sinks`: routers that are fed in forms they know.
//! - `fan_out`: consumers that ask for events as they would ask an engine.
//! - `telemetry`: metrics and the log.
//! - `checkup`: sees for `doctor`.
//! - `clock`: the only place that reads time.

#[cfg(feature = "shell")]
pub mod adapters;
#[cfg(feature = "shell")]
pub mod alarms;
#[cfg(feature = "shell")]
pub mod bridge;
#[cfg(feature = "shell")]
pub mod bus;
#[cfg(feature = "shell")]
pub mod capture;
#[cfg(feature = "shell")]
pub mod checkpoint;
#[cfg(feature = "shell")]
mod checkup;
#[cfg(feature = "shell")]
pub mod cli;
#[cfg(feature = "shell")]
pub mod clock;
#[cfg(feature = "shell")]
pub mod config;
#[cfg(feature = "shell")]
pub mod consumer;
pub mod discovery;
pub mod doctor;
#[cfg(feature = "shell")]
pub mod engine_metrics;
#[cfg(feature = "shell")]
pub mod fake_engine;
#[cfg(feature = "shell")]
pub mod fan_out;
#[cfg(feature = "shell")]
pub mod foreman;
#[cfg(feature = "shell")]
pub mod http;
pub mod index;
pub mod jobs;
#[cfg(feature = "shell")]
pub mod lookout;
mod maps;
#[cfg(feature = "shell")]
pub mod memory;
#[cfg(feature = "shell")]
pub mod pipeline;
#[cfg(feature = "shell")]
pub mod playback;
mod recent;
pub mod recovery;
pub mod route;
pub mod shared_log;
pub mod sink_check;
pub mod sink_line;
#[cfg(feature = "shell")]
pub mod sinks;
pub mod slo;
#[cfg(feature = "shell")]
pub mod telemetry;
pub mod view;
#[cfg(feature = "shell")]
mod web_client;

#[cfg(feature = "shell")]
pub use bridge::Bridge;
pub use kvbridge_adapters_api as api;
pub use kvbridge_schemas as schemas;
