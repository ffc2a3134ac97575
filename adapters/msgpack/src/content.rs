//! The hash of each block's own tokens.

use kvbridge_schemas::{StoredBlock, content_hash};

/// Gives every block of a dense store the hash of its tokens. Each block has `overlap` tokens in
/// common with the next, which the last block has too. In a sparse store nothing tells which tokens
/// are whose.
pub fn fill_content(tokens: &[u32], block_size: u32, overlap: usize, blocks: &mut [StoredBlock]) {
    let Ok(size) = usize::try_from(block_size) else { return };
    let dense = blocks.len().checked_mul(size).and_then(|count| count.checked_add(overlap));
    if size == 0 || dense != Some(tokens.len()) {
        return;
    }
    for (block, start) in blocks.iter_mut().zip((0..).step_by(size)) {
        block.content = tokens.get(start..start + size + overlap).map(content_hash);
    }
}
