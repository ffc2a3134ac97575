//! PURE. The maps beneath view and index.

pub(crate) mod keyed;
pub(crate) mod vec_map;
