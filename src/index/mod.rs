//! PURE. All views together, answering prefix queries.
