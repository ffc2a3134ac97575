//! A bridge that reads this engine beside all those which are built in:
//! `adapter-minimal kvbridge.toml`. It tells how each replica stands whenever that changes.

use kvbridge::{Bridge, pipeline::FleetEvent};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).unwrap_or_else(|| "kvbridge.toml".to_owned());
    let builder = Bridge::builder().adapter(adapter_minimal::ENGINE, adapter_minimal::open);
    let bridge = builder.config_file(file).start().await?;
    let mut events = bridge.fleet().events();
    loop {
        tokio::select! {
            event = events.recv() => if let Ok(FleetEvent::Standing(key, _, status)) = event {
                println!("{key}: {} ({})", status.trust.device, status.reason);
            },
            _ = tokio::signal::ctrl_c() => break,
        }
    }
    bridge.stop().await;
    Ok(())
}
