//! PURE. The maps beneath view and index.

pub(crate) mod keyed;
pub(crate) mod table;
pub(crate) mod vec_map;
