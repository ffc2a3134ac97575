//! PURE. The fold of one replica’s events.
