//! What every decoded batch is, of whatever dialect and from whatever bytes.

use kvbridge_adapters_api::Loss;
use kvbridge_adapters_msgpack::DecodedBatch;
use kvbridge_schemas::Event;

/// What holds for every payload whatsoever.
pub(crate) fn check(decoded: &DecodedBatch) {
    let worst = decoded.faults.iter().map(|fault| fault.kind.loss()).max().unwrap_or_default();
    match decoded.body {
        Some(_) => {
            assert_eq!(decoded.batch.loss, Loss::Body);
            assert!(decoded.batch.events.is_empty() && decoded.faults.is_empty());
        }
        None => assert_eq!(decoded.batch.loss, worst),
    }
    let blocks = |event: &Event| match event {
        Event::Stored(stored) => stored.blocks.len(),
        _ => 0,
    };
    assert!(decoded.batch.events.iter().map(blocks).sum::<usize>() <= decoded.batch.bytes as usize);
}
