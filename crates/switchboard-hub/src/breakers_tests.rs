use std::collections::BTreeMap;

use switchboard_core::{Budgets, Door, NativeId, OverallState};

use super::*;
use crate::test_hub::{TestHub, agent_id, journal, name, seconds};
use crate::{Draft, Hub, HubConfig, Selection};

/// A hub whose agents have budgets.
async fn with(budgets: Budgets, agents: &[&str]) -> (TestHub, Hub) {
    let hub = TestHub::with(agents).await;
    let clock = hub.clock.clone();
    let limited = Hub::open(HubConfig { budgets, clock, ..HubConfig::new(hub.path()) }).await.expect("opens");
    (hub, limited)
}

fn everyone(messages_per_hour: Option<u64>, tokens_per_day: Option<u64>) -> Budgets {
    Budgets { everyone: Budget { messages_per_hour, tokens_per_day }, ..Budgets::default() }
}

async fn send(hub: &Hub, from: &str, to: &str, body: &str) -> crate::Accepted {
    hub.submit(crate::test_hub::draft(hub, from, to, body)).await.expect("accepted")
}

async fn notices(hub: &Hub) -> Vec<(String, String)> {
    let all = journal(hub).await.into_iter().map(|stored| stored.message);
    let own = all.filter(|message| message.from == agent_id(HUB_NAME));
    own.map(|message| (message.to.to_string(), message.body)).collect()
}

/// Ten replies, the last of which is stopped.
async fn storm(hub: &TestHub) -> crate::Accepted {
    let mut last = hub.send("a", "b", "start").await;
    for (from, to) in [("b", "a"), ("a", "b")].into_iter().cycle().take(9) {
        last = hub.reply(from, to, last.id).await;
    }
    assert!(matches!(last.stopped, Some(TripReason::Hops { .. })), "{:?}", last.stopped);
    last
}

#[tokio::test]
async fn message_budget_stops_sender_for_an_hour() {
    let (test, hub) = with(everyone(Some(3), None), &["a", "b"]).await;
    for _ in 0..3 {
        assert_eq!(send(&hub, "a", "b", "task").await.stopped, None);
    }
    for _ in 0..2 {
        let stopped = send(&hub, "a", "b", "task").await;
        assert_eq!(stopped.stopped, Some(TripReason::Messages { agent: agent_id("a"), count: 4, budget: 3 }));
        assert_eq!(stopped.deliveries[0].state, DeliveryState::Refused);
    }
    // Others are not affected, and neither are messages to the person.
    assert_eq!(send(&hub, "b", "a", "mine").await.stopped, None);
    assert_eq!(send(&hub, "a", "human", "help").await.stopped, None);
    let received = notices(&hub).await;
    assert_eq!(received.len(), 1, "{received:?}");
    assert!(
        received[0].0 == "human" && received[0].1.contains("wrote 4 messages within an hour"),
        "{received:?}"
    );
    test.clock.advance(seconds(3700));
    for _ in 0..3 {
        assert_eq!(send(&hub, "a", "b", "task").await.stopped, None);
    }
    // The budget renews with the hour, and the person is notified again.
    assert!(send(&hub, "a", "b", "task").await.stopped.is_some());
    assert_eq!(notices(&hub).await.len(), 2);
}

#[tokio::test]
async fn person_is_notified_of_budget_every_hour() {
    let (test, hub) = with(everyone(Some(1), None), &["a", "b"]).await;
    let mut stopped = 0;
    for _ in 0..30 {
        stopped += usize::from(send(&hub, "a", "b", "task").await.stopped.is_some());
        test.clock.advance(seconds(6 * 60));
    }
    assert!(stopped > 20, "{stopped}");
    let received = notices(&hub).await;
    assert!((2..=4).contains(&received.len()), "{received:?}");
    assert!(
        received.iter().all(|(_, text)| !text.contains("thread")),
        "a word does not lift a budget: {received:?}"
    );
}

#[tokio::test]
async fn token_budget_counts_writes_reads_and_reports() {
    let (test, hub) = with(everyone(None, Some(100)), &["a", "b", "c"]).await;
    send(&hub, "a", "b", &"x".repeat(200)).await;
    hub.breakers().record_tokens(agent_id("B"), 40).await.expect("noted");
    // b has 90 of its 100, a 50.
    let stopped = send(&hub, "a", "b", &"x".repeat(80)).await.stopped;
    assert_eq!(stopped, Some(TripReason::Tokens { agent: agent_id("b"), tokens: 110, budget: 100 }));
    assert_eq!(send(&hub, "a", "c", &"x".repeat(80)).await.stopped, None);
    let stopped = send(&hub, "a", "c", &"x".repeat(200)).await.stopped;
    assert_eq!(stopped, Some(TripReason::Tokens { agent: agent_id("a"), tokens: 120, budget: 100 }));
    // The person decides for themselves.
    let person = Draft { verified: true, ..crate::test_hub::draft(&hub, "human", "b", &"x".repeat(4000)) };
    assert_eq!(hub.submit(person).await.expect("accepted").stopped, None);
    test.clock.advance(seconds(86_500));
    assert_eq!(send(&hub, "a", "b", &"x".repeat(80)).await.stopped, None);
}

#[tokio::test]
async fn exhausted_member_does_not_stop_others() {
    let own = Budget { messages_per_hour: None, tokens_per_day: Some(1) };
    let budgets = Budgets { agents: BTreeMap::from([(name("c"), own)]), ..Budgets::default() };
    let (test, hub) = with(budgets, &["a", "b", "c"]).await;
    let sent = send(&hub, "a", "all", "a text that is longer than a token").await;
    assert_eq!(sent.stopped, None);
    let states: Vec<_> = sent.deliveries.iter().map(|d| (d.agent.to_string(), d.state)).collect();
    let expected =
        [("b", DeliveryState::Queued), ("c", DeliveryState::Refused), ("human", DeliveryState::Queued)];
    assert_eq!(states, expected.map(|(agent, state)| (agent.to_owned(), state)));
    let resumed = hub.breakers().resume(Selection::Agent(agent_id("c"))).await.expect("resumed");
    assert_eq!(resumed.len(), 1);
    assert_eq!(resumed[0].deliveries.len(), 1);
    assert_eq!(test.deliveries(sent.id).await[1].state, DeliveryState::Queued);
}

#[tokio::test]
async fn resumed_message_is_delivered_and_chain_resets() {
    let hub = TestHub::with(&["a", "b"]).await;
    let mut last = storm(&hub).await;
    let stopped = hub.hub.breakers().stopped().await.expect("read");
    assert_eq!(stopped.len(), 1);
    assert_eq!(stopped[0].stored.message.id, last.id);
    assert!(stopped[0].concerns(&agent_id("B")) && !stopped[0].concerns(&agent_id("c")));

    hub.clock.advance(seconds(61));
    let thread = stopped[0].stored.message.thread;
    assert_eq!(hub.hub.breakers().resume(Selection::Thread(last.id)).await.expect("resumed"), []);
    let resumed = hub.hub.breakers().resume(Selection::Thread(thread)).await.expect("resumed");
    assert_eq!((resumed.len(), resumed[0].deliveries.len(), resumed[0].lost.len()), (1, 1, 0));
    assert_eq!(hub.hub.breakers().stopped().await.expect("read"), []);
    hub.deliver_all().await;
    let (_, receipt) = hub.hub.journal().receipt(last.id).await.expect("read").expect("there");
    assert_eq!(receipt.overall_state(), OverallState::Delivered);
    assert_eq!(receipt.deliveries[0].milestones.ended, None);

    // Eight more hops pass, and then the person is notified again.
    for (from, to) in [("a", "b"), ("b", "a")].into_iter().cycle().take(8) {
        last = hub.reply(from, to, last.id).await;
        assert_eq!(last.stopped, None);
    }
    assert!(hub.reply("a", "b", last.id).await.stopped.is_some());
    assert_eq!(notices(&hub.hub).await.len(), 2);
}

#[tokio::test]
async fn resumed_pair_counts_from_zero() {
    let hub = TestHub::with(&["a", "b"]).await;
    let start = hub.send("a", "b", "start").await;
    for _ in 0..10 {
        hub.reply("b", "a", start.id).await;
    }
    assert!(matches!(hub.reply("b", "a", start.id).await.stopped, Some(TripReason::Pair { .. })));
    assert_eq!(hub.hub.breakers().resume(Selection::Agent(agent_id("b"))).await.expect("resumed").len(), 1);
    for _ in 0..10 {
        assert_eq!(hub.reply("a", "b", start.id).await.stopped, None);
    }
    assert!(matches!(hub.reply("a", "b", start.id).await.stopped, Some(TripReason::Pair { .. })));
    assert_eq!(hub.hub.breakers().resume(Selection::All).await.expect("resumed").len(), 1);
}

#[tokio::test]
async fn thread_limit_resets_when_person_writes() {
    let hub = TestHub::with(&["a", "b", "c"]).await;
    let start = hub.send("a", "b", "start").await;
    let limit = LoopLimits::default().thread;
    let replies = (0..limit).map(|_| Draft { in_reply_to: Some(start.id), ..hub.draft("b", "c", "re") });
    let mut stopped = 0;
    for draft in replies {
        // Slow enough for the pair.
        hub.clock.advance(seconds(7));
        stopped += usize::from(hub.hub.submit(draft).await.expect("accepted").stopped.is_some());
    }
    assert_eq!(stopped, 0);
    hub.clock.advance(seconds(61));
    let over = hub.reply("b", "c", start.id).await.stopped;
    assert_eq!(over, Some(TripReason::Thread { count: limit + 1, limit }));
    let person = Draft { in_reply_to: Some(start.id), verified: true, ..hub.draft("human", "a", "go on") };
    hub.hub.submit(person).await.expect("accepted");
    assert_eq!(hub.reply("b", "c", start.id).await.stopped, None);
}

#[tokio::test]
async fn sender_without_answer_gets_stop_notice() {
    let hub = TestHub::with(&["a", "b"]).await;
    let last = storm(&hub).await;
    assert_eq!(notices(&hub.hub).await.iter().map(|(to, _)| to.as_str()).collect::<Vec<_>>(), ["human"]);
    hub.hub.breakers().resume(Selection::All).await.expect("resumed");
    hub.clock.advance(seconds(61));
    let mut parent = last.id;
    let mut stops = 0;
    for (from, to) in [("a", "b"), ("b", "a")].into_iter().cycle().take(9) {
        let draft = Draft { in_reply_to: Some(parent), ..hub.draft(from, to, "re") };
        let native = NativeId { door: Door::Channels, scope: "general".into(), id: draft.id.to_string() };
        let sent = hub.hub.submit(Draft { native, ..draft }).await.expect("accepted");
        stops += usize::from(sent.stopped.is_some());
        parent = sent.id;
    }
    assert_eq!(stops, 1);
    let received = notices(&hub.hub).await;
    assert_eq!(received.len(), 3, "{received:?}");
    assert!(received[2].0 == "a" && received[2].1.contains("Your message to b was stopped"), "{received:?}");
}

#[tokio::test]
async fn message_of_person_resets_pair_limit() {
    let hub = TestHub::with(&["a", "b"]).await;
    let mut last = hub.send("a", "b", "question").await;
    for _ in 0..10 {
        last = hub.send("a", "b", "question").await;
        assert_eq!(hub.reply("b", "a", last.id).await.stopped, None);
    }
    let stopped = hub.reply("b", "a", last.id).await.stopped;
    assert!(matches!(stopped, Some(TripReason::Pair { count: 11, limit: 10, .. })), "{stopped:?}");
    let person = Draft { verified: true, ..hub.draft("human", "b", "ask a") };
    let question = hub.hub.submit(person).await.expect("accepted");
    assert_eq!(hub.reply("b", "a", question.id).await.stopped, None);
}

/// The reset applies whichever message the agents reply to: the person's message may not have reached both of
/// them.
#[tokio::test]
async fn message_of_person_resets_reply_chain() {
    let hub = TestHub::with(&["a", "b"]).await;
    let last = storm(&hub).await;
    hub.clock.advance(seconds(61));
    assert!(matches!(hub.reply("a", "b", last.id).await.stopped, Some(TripReason::Hops { .. })));
    let word = Draft { in_reply_to: Some(last.id), verified: true, ..hub.draft("human", "a", "go on") };
    hub.hub.submit(word).await.expect("accepted");
    let mut next = hub.reply("a", "b", last.id).await;
    assert_eq!(next.stopped, None);
    // And counts from there.
    for (from, to) in [("b", "a"), ("a", "b")].into_iter().cycle().take(7) {
        next = hub.reply(from, to, next.id).await;
        assert_eq!(next.stopped, None);
    }
    assert!(matches!(hub.reply("b", "a", next.id).await.stopped, Some(TripReason::Hops { hops: 9, .. })));
}

#[tokio::test]
async fn sender_without_answer_gets_later_stop_notices() {
    let hub = TestHub::with(&["a", "b"]).await;
    let last = storm(&hub).await;
    let by_file = |parent| {
        let draft = Draft { in_reply_to: Some(parent), ..hub.draft("a", "b", "re") };
        let native = NativeId { door: Door::Channels, scope: "general".into(), id: draft.id.to_string() };
        hub.hub.submit(Draft { native, ..draft })
    };
    for _ in 0..3 {
        assert!(by_file(last.id).await.expect("accepted").stopped.is_some());
    }
    let to = |received: Vec<(String, String)>| received.into_iter().map(|(to, _)| to).collect::<Vec<_>>();
    assert_eq!(to(notices(&hub.hub).await), ["human", "a"], "one for those of a minute");
    hub.clock.advance(seconds(61));
    assert!(by_file(last.id).await.expect("accepted").stopped.is_some());
    assert_eq!(to(notices(&hub.hub).await), ["human", "a", "a"]);
}
