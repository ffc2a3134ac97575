//! A router's side in its own process: an index kept from the bus, asked for a prompt.
//!
//! ```sh
//! cargo run --example consumer -- nats://127.0.0.1:4222 fake 1 2 3
//! ```
//! After the server's address a model, and a prompt's token ids.
#![expect(clippy::print_stdout, reason = "an example speaks to whoever runs it")]

use kvbridge::consumer::Consumer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(url), Some(model)) = (args.next(), args.next()) else {
        return Err("expected the server's address and a model".into());
    };
    let prompt: Vec<u32> = args.map(|token| token.parse()).collect::<Result<_, _>>()?;
    let consumer = Consumer::nats(url).model(&model).start().await?;
    consumer.until_usable(&model).await;
    let answer = consumer.match_tokens(&model, &prompt)?;
    for replica in answer.replicas {
        let (key, tokens) = (replica.key, replica.matched_tokens);
        println!("{key}: {tokens} tokens, trust {} ({})", replica.trust.device, replica.reason);
    }
    consumer.stop().await;
    Ok(())
}
