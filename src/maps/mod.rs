//! PURE. The maps beneath view and index.

pub(crate) mod keyed;
pub(crate) mod table;
pub(crate) mod tags;
pub(crate) mod vec_map;

/// Adds to a long list that grows by a quarter: one that doubles itself would be half empty.
pub(crate) fn push_slim<T>(list: &mut Vec<T>, item: T) {
    if list.len() == list.capacity() {
        list.reserve_exact((list.len() / 4).max(4));
    }
    list.push(item);
}
