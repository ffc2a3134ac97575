//! An index in another Rust program, kept from the bus without a kvbridge of its own.

use kvbridge::{
    consumer::Consumer,
    index::{Prompt, Query},
    schemas::Trust,
};
use tokio::time::Instant;

use crate::bus_reader::{LIMIT, LOOK, World};

/// As true as one of a kvbridge, and nothing when it cannot know.
#[tokio::test]
async fn a_consumer_in_another_program_follows_and_knows_when_it_cannot() {
    let mut world = World::start("reader-library");
    let bridge = world.bridge("300ms").await;
    let consumer = Consumer::nats(world.server.url()).model("fake").start().await.unwrap();
    let other = Consumer::nats(world.server.url()).model("other").start().await.unwrap();
    tokio::time::timeout(LIMIT, consumer.until_usable("fake")).await.unwrap();
    for _ in 0..2 {
        world.burst(30).await;
        let next_seq = world.is_true(&bridge).await["next_seq"].as_u64().unwrap();
        let deadline = Instant::now() + LIMIT;
        loop {
            let answer = consumer.match_tokens("fake", &[1, 2, 3]).unwrap();
            let [replica] = answer.replicas.as_slice() else { panic!("{answer:?}") };
            if replica.usable && replica.as_of.cursor.next_seq.0 == next_seq {
                break;
            }
            assert!(Instant::now() < deadline, "{answer:?}");
            tokio::time::sleep(LOOK).await;
        }
    }
    assert!(other.index().query(&nothing("fake")).is_err(), "it was not asked to read that");
    world.server.kill();
    let deadline = Instant::now() + LIMIT;
    while consumer.match_tokens("fake", &[]).unwrap().fallback.is_none() {
        assert!(Instant::now() < deadline, "it vouches for what it cannot know");
        tokio::time::sleep(LOOK).await;
    }
    consumer.stop().await;
    other.stop().await;
    world.end([bridge]);
}

fn nothing(model: &str) -> Query<'_> {
    let prompt = Prompt::Tokens(&[]);
    Query { model, prompt, lora: None, salt: None, accept: Trust::Exact, hints: false }
}
