//! One hot path, a number of times: `bench-guard PATH TIMES`. What a thousand more of them cost is
//! the difference of two runs under callgrind; `check.py` compares it with `bounds.json`.

mod apply;
mod decode;

use std::process::ExitCode;

/// Blocks of one unit of each path, so that figures are per block.
const BLOCKS: usize = 64;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let (path, times) = (words.next(), words.next().and_then(|word| word.parse::<usize>().ok()));
    let (Some(path), Some(times), None) = (path, times, words.next()) else {
        eprintln!("usage: bench-guard PATH TIMES");
        return ExitCode::from(2);
    };
    match path.as_str() {
        "decode_array" => decode::engine(decode::vllm, false, times),
        "decode_map" => decode::engine(decode::vllm, true, times),
        "decode_sglang" => decode::engine(decode::sglang, false, times),
        "envelope_write" => decode::envelope_write(times),
        "envelope_read" => decode::envelope_read(times),
        "apply_store" => apply::stores(times),
        "apply_store_remove" => apply::stores_and_removals(times),
        "query_depths" => apply::depths(times),
        "query_answer" => apply::answers(times),
        other => {
            eprintln!("no path is called {other}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
