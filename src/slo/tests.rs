//! Turns, tokens computed again and why, and the share of scattered turns.

use super::*;

fn served(replica: u64, input_tokens: u64, cached_tokens: u64) -> Served {
    Served { replica, input_tokens, cached_tokens, predicted_tokens: None }
}

#[test]
fn tokens_computed_again_have_their_reason() {
    let again = |scattered, evicted, unknown| Reprefilled { scattered, evicted, unknown };
    let routed = |predicted, it: Served| Served { predicted_tokens: Some(predicted), ..it };
    for (what, second, turn, expected) in [
        ("all cached", served(1, 1_500, 1_000), Turn::FollowUp, again(0, 0, 0)),
        ("more than the turn before", served(1, 1_500, 1_200), Turn::FollowUp, again(0, 0, 0)),
        ("elsewhere", served(2, 1_500, 0), Turn::Scattered, again(1_000, 0, 0)),
        ("elsewhere, with a shared head", served(2, 1_500, 800), Turn::FollowUp, again(200, 0, 0)),
        ("known to be gone", routed(200, served(1, 1_500, 200)), Turn::Scattered, again(0, 800, 0)),
        ("gone and more", routed(600, served(1, 1_500, 200)), Turn::Scattered, again(0, 400, 400)),
        (
            "held, they said",
            routed(1_000, served(1, 1_500, 0)),
            Turn::Scattered,
            again(0, 0, 1_000),
        ),
        ("nobody said", served(1, 1_500, 749), Turn::Scattered, again(0, 0, 251)),
        ("half is enough", served(1, 1_500, 750), Turn::FollowUp, again(0, 0, 250)),
        ("a shorter turn", served(1, 400, 100), Turn::Scattered, again(0, 0, 300)),
        ("nothing at all", served(1, 0, 0), Turn::FollowUp, again(0, 0, 0)),
    ] {
        let mut conversations = Conversations::default();
        let first = conversations.note(Tick(0), "m", 7, served(1, 1_000, 0));
        assert_eq!(first, (Turn::First, Reprefilled::default()), "nothing is expected of it");
        assert_eq!(conversations.note(Tick(1), "m", 7, second), (turn, expected), "{what}");
        assert_eq!(conversations.note(Tick(2), "m", 8, second).0, Turn::First, "another one");
    }
}

#[test]
fn a_conversation_is_forgotten_after_its_time_or_when_there_are_too_many() {
    let mut conversations = Conversations::default();
    let turn = |it: &mut Conversations, at, id| it.note(Tick(at), "m", id, served(1, 10, 10)).0;
    assert_eq!(turn(&mut conversations, 0, 0), Turn::First);
    assert_eq!(turn(&mut conversations, CONVERSATION_TTL_MS - 1, 0), Turn::FollowUp);
    assert_eq!(turn(&mut conversations, 2 * CONVERSATION_TTL_MS - 2, 0), Turn::FollowUp);
    assert_eq!(turn(&mut conversations, 3 * CONVERSATION_TTL_MS - 2, 0), Turn::First);
    for id in 1..=u64::try_from(CONVERSATIONS_MAX).unwrap() {
        turn(&mut conversations, 3 * CONVERSATION_TTL_MS, id);
    }
    assert_eq!(conversations.turns.len(), CONVERSATIONS_MAX);
    assert_eq!(turn(&mut conversations, 3 * CONVERSATION_TTL_MS, 2), Turn::FollowUp);
    assert_eq!(turn(&mut conversations, 3 * CONVERSATION_TTL_MS, 0), Turn::First);
}

#[test]
fn the_share_of_scattered_turns_is_that_of_five_minutes() {
    let ratio = |it: &Conversations, at: u64| {
        it.scatter_ratios(Tick(at)).map(|(model, ratio)| (model.to_owned(), ratio)).next()
    };
    let mut conversations = Conversations::default();
    for id in 0..4 {
        conversations.note(Tick(0), "m", id, served(1, 100, 0));
    }
    assert_eq!(ratio(&conversations, 0), None, "first turns are no part of it");
    conversations.note(Tick(1_000), "m", 0, served(2, 100, 0));
    for id in 1..4 {
        conversations.note(Tick(15_000), "m", id, served(1, 100, 100));
    }
    assert_eq!(ratio(&conversations, 20_000), Some(("m".to_owned(), 0.25)));
    assert_eq!(ratio(&conversations, 300_000), Some(("m".to_owned(), 0.0)), "the scattered is old");
    conversations.note(Tick(310_000), "m", 1, served(2, 100, 0));
    assert_eq!(ratio(&conversations, 310_000), Some(("m".to_owned(), 1.0)));
    conversations.keep_models(|model| model != "m");
    assert_eq!(ratio(&conversations, 310_000), None);
}

#[test]
fn models_beyond_the_bound_have_no_share() {
    let mut conversations = Conversations::default();
    for number in 0..=u64::try_from(MODELS_MAX).unwrap() {
        for _ in 0..2 {
            conversations.note(Tick(0), &number.to_string(), number, served(1, 100, 0));
        }
    }
    assert_eq!(conversations.scatter_ratios(Tick(0)).count(), MODELS_MAX);
}
