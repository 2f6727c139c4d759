use jiff::Timestamp;
use serde_json::Map;

use super::*;
use crate::{Door, Kind, MessageId, NativeId, Origin};

fn agent(text: &str) -> AgentId {
    text.parse().unwrap()
}

/// A reply with the chain `via`: names of agents, and `hub:NAME` for hubs.
fn reply(from: &str, to: &str, via: &str) -> Message {
    let (first, id) = (MessageId::from_parts(1, 1), MessageId::from_parts(2, 2));
    let native = NativeId { door: Door::Workspace, scope: String::new(), id: "2".into() };
    Message {
        id,
        from: agent(from),
        to: to.parse().unwrap(),
        kind: Kind::status_update(),
        body: "thanks".into(),
        in_reply_to: Some(first),
        thread: first,
        sent_at: Timestamp::UNIX_EPOCH,
        expires_at: None,
        metadata: Map::new(),
        origin: Origin { native, verified: true, route: None },
        via: via.split_whitespace().map(|hop| hop.parse().unwrap()).collect(),
        signed: None,
    }
}

fn unverified(message: Message) -> Message {
    Message { origin: Origin { verified: false, ..message.origin }, ..message }
}

/// Whether a message to one agent may be delivered to it.
fn check(message: &Message, pair_replies: u32) -> Result<(), TripReason> {
    let to = message.to.as_agent().unwrap();
    check_loops(
        message,
        to,
        RecentReplies { pair_replies, ..RecentReplies::default() },
        LoopLimits::default(),
    )
}

fn cycle(agents: &[&str]) -> Result<(), TripReason> {
    Err(TripReason::Cycle { agents: agents.iter().map(|name| agent(name)).collect() })
}

#[test]
fn chain_beyond_eight_hops_is_stopped() {
    let stop = Err(TripReason::Hops { hops: 9, limit: 8 });
    let table = [
        ("b", "", Ok(())),
        ("b", "a b a b a b a", Ok(())),
        ("b", "b a b a b a b a", Ok(())),
        ("b", "a b a b a b a b a", stop.clone()),
        ("k", "b c d e f g h i", Ok(())),
        ("k", "b c d e f g h i j", stop.clone()),
        // Hubs do not count.
        ("k", "hub:home b c hub:office d e f g h hub:home hub:office i hub:home", Ok(())),
        ("k", "hub:home b c hub:office d e f g h hub:home hub:office i j", stop),
    ];
    for (to, via, expected) in table {
        assert_eq!(check(&reply("a", to, via), 0), expected, "to {to} via {via}");
    }
}

#[test]
fn group_recipients_are_checked_separately() {
    let (circle, hops) = ("a b c", "b c d e f g h i j");
    let pair = |count| Err(TripReason::Pair { from: agent("a"), to: agent("b"), count, limit: 10 });
    let table = [
        ("b", circle, 0, cycle(&["a", "b", "c"])),
        ("d", circle, 0, Ok(())),
        ("b", "", 10, pair(11)),
        ("k", hops, 0, Err(TripReason::Hops { hops: 9, limit: 8 })),
        ("human", hops, 10, Ok(())),
    ];
    for address in ["all", "team:backend", "#general", "job:7", "job:7/0"] {
        for (to, via, pair_replies, expected) in &table {
            let recent = RecentReplies { pair_replies: *pair_replies, ..RecentReplies::default() };
            let checked = check_loops(&reply("a", address, via), &agent(to), recent, LoopLimits::default());
            assert_eq!(checked, *expected, "{address} for {to} via {via}");
        }
    }
}

#[test]
fn eleventh_reply_within_minute_is_stopped() {
    let stop = |count| Err(TripReason::Pair { from: agent("a"), to: agent("b"), count, limit: 10 });
    for (earlier, expected) in [(0, Ok(())), (9, Ok(())), (10, stop(11)), (29, stop(30))] {
        assert_eq!(check(&reply("a", "b", "b"), earlier), expected, "{earlier} earlier");
    }
}

#[test]
fn fourth_self_reply_within_minute_is_stopped() {
    let stop = |count| Err(TripReason::Pair { from: agent("a"), to: agent("a"), count, limit: 3 });
    for (earlier, expected) in [(0, Ok(())), (2, Ok(())), (3, stop(4)), (9, stop(10))] {
        for to in ["a", "A"] {
            assert_eq!(check(&reply("a", to, "a"), earlier), expected, "{earlier} earlier to {to}");
        }
    }
    assert_eq!(check(&reply("a", "a@research", "a"), 3), Ok(())); // another a
}

#[test]
fn cycle_is_stopped_at_second_round() {
    let table = [
        ("c", "a", "a b", Ok(())), // the first round closes
        ("a", "b", "a b c", cycle(&["a", "b", "c"])),
        ("A", "B", "a b c", cycle(&["a", "b", "c"])),
        ("a", "b", "x a b c", cycle(&["a", "b", "c"])), // x led in and is no part of it
        ("a", "b", "a hub:office b hub:home c", cycle(&["a", "b", "c"])),
        ("a", "b", "a b c d", cycle(&["a", "b", "c", "d"])),
        ("a", "d", "a b c", Ok(())),   // it leaves the circle
        ("a", "c", "a b c", Ok(())),   // it turns back
        ("a", "b", "a b a c", Ok(())), // a lead asks b, then c, then b again
        ("a", "c", "a b a c a b", Ok(())),
        ("a", "b@research", "a b c", Ok(())), // another b
    ];
    for (from, to, via, expected) in table {
        assert_eq!(check(&reply(from, to, via), 0), expected, "{from} to {to} via {via}");
    }
}

#[test]
fn two_agents_continue_until_hop_limit() {
    let chain = ["a", "b"].repeat(4);
    for hops in 1..=chain.len() {
        let (from, to) = if hops % 2 == 0 { ("a", "b") } else { ("b", "a") };
        assert_eq!(check(&reply(from, to, &chain[..hops].join(" ")), 0), Ok(()), "{hops} hops");
    }
}

/// A chain, earlier replies and why they stop what `from` answers `b`: one row for each limit.
fn stopped(from: &str) -> [(String, u32, TripReason); 3] {
    let (from, to) = (agent(from), agent("b"));
    let circle = vec![from.clone(), to.clone(), agent("c")];
    [
        ("b c d e f g h i j".into(), 0, TripReason::Hops { hops: 9, limit: 8 }),
        (String::new(), 10, TripReason::Pair { from: from.clone(), to, count: 11, limit: 10 }),
        (format!("{from} b c"), 0, TripReason::Cycle { agents: circle }),
    ]
}

#[test]
fn only_verified_person_is_never_stopped() {
    for from in ["human", "Human"] {
        for (via, earlier, stop) in stopped(from) {
            let message = reply(from, "b", &via);
            assert_eq!(check(&message, earlier), Ok(()), "{from} via {via}");
            assert_eq!(check(&unverified(message), earlier), Err(stop), "unverified {from} via {via}");
        }
    }
}

#[test]
fn agent_is_stopped_verified_or_not() {
    for (via, earlier, stop) in stopped("a") {
        let message = reply("a", "b", &via);
        assert_eq!(check(&message, earlier), Err(stop.clone()), "via {via}");
        assert_eq!(check(&unverified(message), earlier), Err(stop), "unverified via {via}");
    }
}

#[test]
fn message_to_person_is_never_stopped() {
    let chains = ["a b c d e f g h i j", "a human b", "a b c a b c a b c a b c"];
    for (via, to) in chains.into_iter().flat_map(|via| [(via, "human"), (via, "Human")]) {
        let message = reply("a", to, via);
        assert_eq!(check(&message, 99), Ok(()), "{to} via {via}");
        assert_eq!(check(&unverified(message), 99), Ok(()), "unverified to {to} via {via}");
    }
}

#[test]
fn human_of_other_realm_is_an_agent() {
    let (from, to) = (agent("human@elsewhere"), agent("a"));
    let stop = |from, to| Err(TripReason::Pair { from, to, count: 11, limit: 10 });
    assert_eq!(check(&reply("human@elsewhere", "a", ""), 10), stop(from.clone(), to.clone()));
    assert_eq!(check(&reply("a", "human@elsewhere", ""), 10), stop(to, from));
}

#[test]
fn message_without_parent_is_never_stopped() {
    let task = Message { in_reply_to: None, ..reply("a", "b", "a b c a b c a b c") };
    assert_eq!(check(&task, 1000), Ok(()));
}

#[test]
fn limits_are_configurable() {
    let limits = LoopLimits { hops: 1, pair_per_minute: 2, self_per_minute: 1, ..LoopLimits::default() };
    let pair = |to, count, limit| Err(TripReason::Pair { from: agent("a"), to: agent(to), count, limit });
    let table = [
        ("b", "b", 1, Ok(())),
        ("b", "b", 2, pair("b", 3, 2)),
        ("a", "a", 0, Ok(())),
        ("a", "a", 1, pair("a", 2, 1)),
        ("b", "a b", 0, Err(TripReason::Hops { hops: 2, limit: 1 })),
    ];
    for (to, via, pair_replies, expected) in table {
        let checked = check_loops(
            &reply("a", to, via),
            &agent(to),
            RecentReplies { pair_replies, ..RecentReplies::default() },
            limits,
        );
        assert_eq!(checked, expected, "{to} via {via} after {pair_replies}");
    }
}

#[test]
fn trip_reason_names_agents_and_counts() {
    let table = [
        (
            check(&reply("a", "k", "b c d e f g h i j"), 0),
            "the reply chain has 9 hops between agents and its limit is 8",
        ),
        (
            check(&reply("a", "b@research", ""), 10),
            "a and b@research exchanged 11 replies within a minute and their limit is 10",
        ),
        (check(&reply("a", "b", "a b c"), 0), "the replies form a loop: a → b → c"),
    ];
    for (stopped, expected) in table {
        assert_eq!(stopped.unwrap_err().to_string(), expected);
    }
}

#[test]
fn thread_limit_exempts_messages_to_person() {
    let limits = LoopLimits { thread: 5, ..LoopLimits::default() };
    let table =
        [("b", 4, Ok(())), ("b", 5, Err(TripReason::Thread { count: 6, limit: 5 })), ("human", 500, Ok(()))];
    for (to, thread_replies, expected) in table {
        let message = reply("a", to, "b");
        let recent = RecentReplies { thread_replies, ..RecentReplies::default() };
        assert_eq!(check_loops(&message, &agent(to), recent, limits), expected, "{to}, {thread_replies}");
    }
}
