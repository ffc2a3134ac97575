//! Indexes of KV blocks behind one trait, and the work they are given.

#[cfg(feature = "others")]
pub mod chain_index;
#[cfg(feature = "others")]
pub mod dynamo;
pub mod limit;
pub mod lru;
pub mod oracle;
pub mod ours;
pub mod peer;
pub mod rows;
pub mod workload;

/// One thing done for every peer that was built in, ours first.
#[macro_export]
macro_rules! for_each_peer {
    ($do:ident($($argument:expr),*)) => {{
        $do::<$crate::ours::Ours<true>>($($argument),*);
        $do::<$crate::ours::Ours<false>>($($argument),*);
        #[cfg(feature = "others")]
        {
            $do::<$crate::chain_index::Chain<false>>($($argument),*);
            $do::<$crate::chain_index::Chain<true>>($($argument),*);
            $do::<$crate::dynamo::Radix>($($argument),*);
            $do::<$crate::dynamo::Compressed>($($argument),*);
        }
    }};
}
