//! Label keys.

/// The replica key.
pub const REPLICA: &str = "replica";
/// A fact's word.
pub const FACT: &str = "fact";
/// What a batch lost.
pub const LOSS: &str = "loss";
/// What trust came back to.
pub const RESOLUTION: &str = "resolution";
/// A trust state.
pub const STATE: &str = "state";
/// A tier; unknown ones are `other`.
pub const TIER: &str = "tier";
/// How readiness stands.
pub const MODE: &str = "mode";
/// What came of a request.
pub const OUTCOME: &str = "outcome";
/// A stream of the bus; bounded by the configuration.
pub const STREAM: &str = "stream";
/// A model; bounded by the configuration.
pub const MODEL: &str = "model";
/// Where a prediction comes from.
pub const PREDICTION: &str = "prediction";
/// What a turn of a conversation was.
pub const TURN: &str = "turn";
/// Why something was not taken.
pub const REASON: &str = "reason";
/// Who ordered something.
pub const TRIGGER: &str = "trigger";
/// An alarm's name.
pub const ALARM: &str = "alarm";
/// A sink; bounded by the configuration.
pub const SINK: &str = "sink";
/// A reader that a sink connects to; bounded by the configuration.
pub const READER: &str = "reader";
