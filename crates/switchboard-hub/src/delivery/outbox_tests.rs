use std::collections::HashSet;

use rusqlite::params;
use switchboard_core::{Kind, OverallState, Route};

use super::*;
use crate::store::rows::{self, SPREAD};
use crate::test_hub::{TestHub, agent_id, bodies, dead_owner, draft, name, noon, seconds, with_timeout};
use crate::{Draft, Hub, Part, Registration};

fn unreachable() -> Outcome {
    Outcome::Unreachable { reason: "down".into() }
}

/// Receives one delivery of the door.
async fn next_handoff(door: &mut Outbound) -> Handoff {
    let mut handoffs = with_timeout(door.next(1)).await;
    assert_eq!(handoffs.len(), 1);
    handoffs.remove(0)
}

/// Makes the writer look for due deliveries, and returns when it has.
async fn poll_due(hub: &Hub) {
    hub.deliveries().expire_due().await.expect("looked");
}

async fn workspace(hub: &Hub) -> Outbound {
    hub.deliveries().open_door(Door::Workspace).await.expect("opened")
}

/// Returns the deliveries that are ready for the door, without waiting.
fn ready(door: &mut Outbound) -> Vec<Handoff> {
    std::iter::from_fn(|| door.queue.try_recv().ok()).collect()
}

#[tokio::test]
async fn mail_waits_for_door_to_open() {
    let hub = TestHub::with(&["a", "b"]).await;
    let sent = hub.send("a", "b", "hi").await;
    assert_eq!(sent.deliveries[0].state, DeliveryState::Queued);
    let other = hub.open_another().await;
    let mut door = workspace(&other).await;
    let handoff = next_handoff(&mut door).await;
    assert_eq!((handoff.message.id, handoff.seq), (sent.id, sent.seq));
    assert_eq!(hub.state(sent.id).await, DeliveryState::InFlight);
    hub.clock.advance(seconds(1));
    let state = handoff.report(Outcome::Delivered).await.expect("reported");
    assert_eq!(state, Some(DeliveryState::Delivered));
    let delivery = hub.deliveries(sent.id).await.remove(0);
    assert_eq!(delivery.state, DeliveryState::Delivered);
    assert_eq!(delivery.milestones.queued, Some(noon()));
    assert_eq!(delivery.milestones.in_flight, Some(noon()));
    assert_eq!(delivery.milestones.delivered, Some(noon() + seconds(1)));
}

#[tokio::test]
async fn mail_reaches_door_of_other_hub() {
    let hub = TestHub::with(&["a", "b"]).await;
    let other = hub.open_another().await;
    let mut door = workspace(&other).await;
    for n in 0..5 {
        let sent = hub.send("a", "b", &n.to_string()).await;
        let handoff = next_handoff(&mut door).await;
        assert_eq!(handoff.message.id, sent.id);
        handoff.report(Outcome::Delivered).await.expect("reported");
        assert_eq!(hub.state(sent.id).await, DeliveryState::Delivered);
    }
}

/// A hub with two agents and a peer `p@swarm`.
async fn with_peer() -> TestHub {
    let hub = TestHub::with(&["a", "b"]).await;
    let peer = agent_id("p@swarm");
    hub.sql()
        .execute(
            "INSERT INTO agents (name, routes, registered_at) VALUES ('p@swarm', ?1, 0)",
            [rows::json(&vec![Route::Peer { agent: peer }])],
        )
        .expect("inserted");
    hub.hub.agents().register(Registration::mailbox(name("c"))).await.expect("registered");
    hub
}

#[tokio::test]
async fn retry_sends_waiting_messages_in_order() {
    const MANY: usize = 100;
    let hub = with_peer().await;
    let mut sent = Vec::new();
    for n in 0..MANY {
        sent.push(hub.send("a", "p@swarm", &n.to_string()).await.id);
    }
    let mut door = hub.hub.deliveries().open_door(Door::Swarm).await.expect("opened");
    for _ in 0..3 {
        let mut taken = ready(&mut door).into_iter();
        taken.next().expect("the first").report(unreachable()).await.expect("reported");
        for handoff in taken {
            let behind = Outcome::Blocked { reason: "others go first".into() };
            handoff.report(behind).await.expect("reported");
        }
        hub.clock.advance(seconds(600));
        poll_due(&hub.hub).await;
    }
    let attempts = async |id| hub.deliveries(id).await[0].attempts;
    assert_eq!((attempts(sent[0]).await, attempts(sent[MANY - 1]).await), (4, 1), "with the one under way");
    let mut taken = ready(&mut door).into_iter();
    let first = taken.next().expect("the first");
    for handoff in taken {
        handoff.report(Outcome::Blocked { reason: "others go first".into() }).await.expect("reported");
    }
    first.report(Outcome::Delivered).await.expect("reported");
    hub.hub.deliveries().retry_peer_now(agent_id("p@swarm")).await.expect("hurried");
    let bodies: Vec<_> = ready(&mut door).iter().map(|handoff| handoff.message.body.clone()).collect();
    let expected: Vec<_> = (1..=64).map(|n| n.to_string()).collect();
    assert_eq!(bodies, expected, "as many as the door takes on, in order");
}

#[tokio::test]
async fn starting_door_retries_first_of_each_peer() {
    let hub = with_peer().await;
    let mut door = hub.hub.deliveries().open_door(Door::Swarm).await.expect("opened");
    for text in ["first", "second"] {
        hub.send("a", "p@swarm", text).await;
        next_handoff(&mut door)
            .await
            .report(Outcome::Blocked { reason: "busy".into() })
            .await
            .expect("reported");
    }
    hub.hub.deliveries().retry_first().await.expect("hurried");
    assert_eq!(next_handoff(&mut door).await.message.body, "first");
    assert!(ready(&mut door).is_empty());
}

#[tokio::test]
async fn first_delivery_of_peer_waits_for_none() {
    let hub = with_peer().await;
    let sent = hub.send("a", "p@swarm", "first").await;
    let mut door = hub.hub.deliveries().open_door(Door::Swarm).await.expect("opened");
    let full = Outcome::Blocked { reason: "the queue of the peer is full".into() };
    next_handoff(&mut door).await.report(full).await.expect("reported");
    assert_eq!(hub.deliveries(sent.id).await[0].attempts, 0, "it was not tried");
    hub.clock.advance(seconds(2));
    poll_due(&hub.hub).await;
    assert_eq!(next_handoff(&mut door).await.message.body, "first");
}

#[tokio::test]
async fn expired_first_delivery_retries_next() {
    let hub = with_peer().await;
    let expiring = Draft { expires_at: Some(noon() + seconds(10)), ..hub.draft("a", "p@swarm", "first") };
    hub.hub.submit(expiring).await.expect("sent");
    hub.send("a", "p@swarm", "second").await;
    let mut door = hub.hub.deliveries().open_door(Door::Swarm).await.expect("opened");
    let mut taken = ready(&mut door).into_iter();
    let first = taken.next().expect("the first");
    let second = taken.next().expect("the second");
    second.report(Outcome::Blocked { reason: "the first goes before it".into() }).await.expect("reported");
    first.report(unreachable()).await.expect("reported");
    hub.clock.advance(seconds(11));
    poll_due(&hub.hub).await;
    assert_eq!(next_handoff(&mut door).await.message.body, "second");
}

#[tokio::test]
async fn message_goes_only_to_door_of_route() {
    let hub = with_peer().await;
    let mut mailboxes = workspace(&hub.hub).await;
    hub.send("a", "p@swarm", "away").await;
    hub.send("a", "b", "here").await;
    let here = next_handoff(&mut mailboxes).await;
    assert_eq!(here.message.body, "here");
    let mut swarm = hub.hub.deliveries().open_door(Door::Swarm).await.expect("opened");
    let away = next_handoff(&mut swarm).await;
    assert_eq!(away.message.body, "away");
    assert!(ready(&mut mailboxes).is_empty());
}

#[tokio::test]
async fn dropped_handoff_returns_to_the_queue() {
    let hub = TestHub::with(&["a", "b"]).await;
    let mut door = workspace(&hub.hub).await;
    let sent = hub.send("a", "b", "first").await;
    let first = next_handoff(&mut door).await;
    hub.hub.deliveries().close_doors();
    hub.send("a", "b", "second").await;
    drop(first);
    // The writer returns it before this.
    poll_due(&hub.hub).await;
    assert_eq!(hub.state(sent.id).await, DeliveryState::Queued);
    let mut door = workspace(&hub.hub).await;
    let again = next_handoff(&mut door).await;
    assert_eq!((again.message.id, again.delivery.attempts), (sent.id, 2), "before what was queued after it");
    again.report(Outcome::Delivered).await.expect("reported");
    assert_eq!(hub.state(sent.id).await, DeliveryState::Delivered);
    assert_eq!(next_handoff(&mut door).await.message.body, "second");
}

/// A door that drops every handoff at once is broken: the hub does not spin with it.
#[tokio::test]
async fn handoff_dropped_repeatedly_backs_off() {
    let hub = TestHub::with(&["a", "b"]).await;
    let mut door = workspace(&hub.hub).await;
    let sent = hub.send("a", "b", "hi").await;
    for _ in 0..4 {
        drop(next_handoff(&mut door).await);
    }
    // The writer has the last drop before this.
    poll_due(&hub.hub).await;
    let DeliveryState::Failed { retry_at } = hub.state(sent.id).await else {
        panic!("{:?}", hub.state(sent.id).await)
    };
    assert!(retry_at > hub.hub.now() && retry_at <= hub.hub.now() + seconds(8), "{retry_at}");
    assert!(ready(&mut door).is_empty(), "not before its time");
    hub.clock.advance(seconds(8));
    poll_due(&hub.hub).await;
    let again = next_handoff(&mut door).await;
    assert_eq!((again.message.id, again.delivery.attempts), (sent.id, 5));
    again.report(Outcome::Delivered).await.expect("reported");
    assert_eq!(hub.state(sent.id).await, DeliveryState::Delivered);
}

#[tokio::test]
async fn refusal_is_final_with_reason() {
    let hub = TestHub::with(&["a", "b"]).await;
    let mut door = workspace(&hub.hub).await;
    let sent = hub.send("a", "b", "hi").await;
    let refused = Outcome::Refused { reason: "not you".into() };
    let state = next_handoff(&mut door).await.report(refused).await.expect("reported");
    assert_eq!(state, Some(DeliveryState::Refused));
    hub.clock.advance(seconds(3600));
    poll_due(&hub.hub).await;
    assert!(ready(&mut door).is_empty());
    let (_, receipt) = hub.hub.journal().receipt(sent.id).await.expect("read").expect("there");
    assert_eq!(receipt.overall_state(), OverallState::Failed);
    assert_eq!(receipt.deliveries[0].note.as_deref(), Some("not you"));
    assert_eq!(receipt.deliveries[0].milestones.ended, Some(noon()));
}

#[tokio::test]
async fn unreachable_peer_is_retried_until_expiry() {
    let hub = TestHub::with(&["a", "b"]).await;
    let mut door = workspace(&hub.hub).await;
    let sent = hub.send("a", "b", "hi").await;
    let mut attempts = 0;
    loop {
        let handoff = next_handoff(&mut door).await;
        attempts += 1;
        assert_eq!(handoff.delivery.attempts, attempts);
        match handoff.report(unreachable()).await.expect("reported") {
            Some(DeliveryState::Failed { retry_at }) => {
                hub.clock.advance(retry_at.duration_since(hub.hub.now()));
            }
            Some(DeliveryState::Expired) => break,
            state => panic!("{state:?}"),
        }
        poll_due(&hub.hub).await;
    }
    let waited = hub.hub.now().duration_since(noon());
    assert!(waited > seconds(6 * 86_400) && waited <= seconds(7 * 86_400), "{waited:?}");
    assert!(attempts > 100, "{attempts}");
    assert_eq!(hub.state(sent.id).await, DeliveryState::Expired);
}

/// The writer caches the next due time and does not query before it.
#[tokio::test]
async fn retry_precedes_later_messages() {
    let hub = TestHub::with(&["a", "b"]).await;
    let mut door = workspace(&hub.hub).await;
    hub.send("a", "b", "first").await;
    let failed = next_handoff(&mut door).await.report(unreachable()).await.expect("reported");
    let Some(DeliveryState::Failed { retry_at }) = failed else { panic!("{failed:?}") };
    hub.send("a", "b", "too early for the first").await;
    hub.clock.advance(retry_at.duration_since(hub.clock.now()));
    hub.send("a", "b", "last").await;
    let mut bodies = Vec::new();
    for _ in 0..3 {
        bodies.push(next_handoff(&mut door).await.message.body.clone());
    }
    assert_eq!(bodies, ["too early for the first", "first", "last"]);
}

/// The cache is invalid after a write of another process.
#[tokio::test]
async fn queue_of_other_hub_precedes_later_messages() {
    let hub = TestHub::with(&["a", "b"]).await;
    let other = hub.open_another().await;
    let mut door = workspace(&hub.hub).await;
    let mut expected = Vec::new();
    for n in 0..20 {
        for (whose, sender) in [("another", &other), ("this", &hub.hub)] {
            let body = format!("{n} of {whose}");
            sender.submit(draft(sender, "a", "b", &body)).await.expect("accepted");
            expected.push(body);
        }
    }
    let mut bodies = Vec::new();
    while bodies.len() < expected.len() {
        for handoff in with_timeout(door.next(256)).await {
            bodies.push(handoff.message.body.clone());
            handoff.report(Outcome::Delivered).await.expect("reported");
        }
    }
    assert_eq!(bodies, expected);
}

/// One report among many that no longer counts changes nothing for the others.
#[tokio::test]
async fn concurrent_reports_each_get_an_answer() {
    let hub = TestHub::with(&["a", "b"]).await;
    let mut door = workspace(&hub.hub).await;
    let mut handoffs = Vec::new();
    for n in 0..4 {
        hub.send("a", "b", &n.to_string()).await;
        handoffs.push(next_handoff(&mut door).await);
    }
    let taken_over = "UPDATE deliveries SET fence = fence + 1 WHERE id = ?1";
    hub.sql().execute(taken_over, [handoffs[1].delivery.id.0]).expect("taken over");
    let refused = Outcome::Refused { reason: "no".into() };
    let outcomes = [Outcome::Delivered, Outcome::Delivered, refused, Outcome::Shown];
    let answers = Handoff::report_all(handoffs.into_iter().zip(outcomes).collect()).await;
    let answers: Vec<_> = answers.into_iter().map(|answer| answer.expect("reported")).collect();
    let states = [DeliveryState::Delivered, DeliveryState::Refused, DeliveryState::Seen].map(Some);
    assert_eq!(answers, [states[0], None, states[1], states[2]]);
}

#[tokio::test]
async fn late_report_after_expired_lease_is_ignored() {
    let hub = TestHub::with(&["a", "b"]).await;
    let (first, second) = (hub.open_another().await, hub.open_another().await);
    let sent = hub.send("a", "b", "hi").await;
    let mut slow_door = workspace(&first).await;
    let slow = next_handoff(&mut slow_door).await;
    // Otherwise the first hub might be the one to retry.
    drop(slow_door);
    hub.clock.advance(seconds(59));
    let mut door = workspace(&second).await;
    assert!(ready(&mut door).is_empty(), "the lease still holds");
    hub.clock.advance(seconds(1));
    poll_due(&second).await;
    let taken = next_handoff(&mut door).await;
    assert_eq!(taken.delivery.attempts, 2);
    let late = slow.report(Outcome::Refused { reason: "late".into() }).await.expect("reported");
    assert_eq!(late, None);
    let delivery = hub.deliveries(sent.id).await.remove(0);
    assert_eq!((delivery.state, delivery.note), (DeliveryState::InFlight, None));
    let state = taken.report(Outcome::Delivered).await.expect("reported");
    assert_eq!(state, Some(DeliveryState::Delivered));
}

#[tokio::test]
async fn late_drop_is_ignored() {
    let hub = TestHub::with(&["a", "b"]).await;
    let first = hub.open_another().await;
    let sent = hub.send("a", "b", "hi").await;
    let mut slow_door = workspace(&first).await;
    let slow = next_handoff(&mut slow_door).await;
    // Otherwise the first hub might be the one to retry.
    drop(slow_door);
    hub.clock.advance(seconds(61));
    let mut door = workspace(&hub.hub).await;
    let taken = next_handoff(&mut door).await;
    drop(slow);
    poll_due(&first).await;
    assert_eq!(hub.state(sent.id).await, DeliveryState::InFlight);
    assert!(taken.report(Outcome::Delivered).await.expect("reported").is_some());
}

#[tokio::test]
async fn lease_of_dead_process_is_released() {
    let hub = TestHub::with(&["a", "b"]).await;
    let us = ProcessIdentity::this_process();
    let owners = [
        (dead_owner().await, true),
        ("not an owner".to_owned(), true),
        // The pid is ours, but the start is another: a process that had our pid before us.
        (format!("{}/{}/1", us.host(), us.pid()), true),
        ("elsewhere/1/1".to_owned(), false),
        (us.to_string(), false),
    ];
    for (n, (owner, _)) in owners.iter().enumerate() {
        let sent = hub.send("a", "b", &n.to_string()).await;
        let lease = (hub.hub.now() + seconds(60)).as_microsecond();
        hub.sql()
            .execute(
                "UPDATE deliveries SET state = 1, attempts = 1, fence = 1, owner = ?1, due_at = ?2 WHERE id = ?3",
                params![owner, lease, sent.seq * SPREAD],
            )
            .expect("changed");
    }
    let mut door = workspace(&hub.open_another().await).await;
    let got: Vec<_> = ready(&mut door).iter().map(|h| h.message.body.clone()).collect();
    assert_eq!(got, ["0", "1", "2"]);
}

#[tokio::test]
async fn deliveries_of_dead_process_come_first() {
    let hub = TestHub::with(&["a", "b"]).await;
    for n in 0..4 {
        let sent = hub.send("a", "b", &n.to_string()).await;
        // The third did not fit into the queue of the dead process.
        if n != 2 {
            let lease = (hub.hub.now() + seconds(60)).as_microsecond();
            hub.sql()
                .execute(
                    "UPDATE deliveries SET state = 1, attempts = 1, fence = 1, owner = ?1, due_at = ?2 WHERE id = ?3",
                    params![dead_owner().await, lease, sent.seq * SPREAD],
                )
                .expect("changed");
        }
        hub.clock.advance(seconds(1));
    }
    let mut door = workspace(&hub.open_another().await).await;
    let got: Vec<_> = ready(&mut door).iter().map(|h| h.message.body.clone()).collect();
    assert_eq!(got, ["0", "1", "2", "3"]);
}

#[tokio::test]
async fn closed_door_returns_unreceived_deliveries() {
    let hub = TestHub::with(&["a", "b"]).await;
    let door = workspace(&hub.hub).await;
    let sent = hub.send("a", "b", "waits").await;
    let rest = door.close().await;
    assert_eq!(rest.iter().map(|handoff| handoff.message.id).collect::<Vec<_>>(), [sent.id]);
    hub.hub.shut_down().await;
    drop(rest);
    // As if its process had been killed: without a report, no backoff has started.
    let state: i64 =
        hub.sql().query_row("SELECT state FROM deliveries", [], |row| row.get(0)).expect("a row");
    assert_eq!(state, rows::state_number(DeliveryState::InFlight));
}

#[tokio::test]
async fn overflow_waits_in_database_in_order() {
    let hub = TestHub::with(&["a", "b"]).await;
    let mut door = workspace(&hub.hub).await;
    let mut got = Vec::new();
    for n in 0..700 {
        hub.send("a", "b", &n.to_string()).await;
        // A slow door receives one now and then, so that slots become free while others wait.
        if n % 5 == 4 {
            got.push(next_handoff(&mut door).await);
        }
        assert!(door.queue.len() <= IN_FLIGHT);
    }
    while got.len() < 700 {
        let handoff = next_handoff(&mut door).await;
        got.push(handoff);
        poll_due(&hub.hub).await;
    }
    let order: Vec<i32> = got.iter().map(|handoff| handoff.message.body.parse().expect("a number")).collect();
    assert_eq!(order, (0..700).collect::<Vec<_>>());
}

#[tokio::test]
async fn delivery_queued_past_lease_arrives_once() {
    let hub = TestHub::with(&["a", "b"]).await;
    let mut door = workspace(&hub.hub).await;
    for n in 0..20 {
        hub.send("a", "b", &n.to_string()).await;
    }
    let mut delivered = Vec::new();
    while delivered.len() < 20 {
        let handoff = next_handoff(&mut door).await;
        let body = handoff.message.body.clone();
        // One delivery takes half a minute, so that most leases expire before their turn.
        hub.clock.advance(seconds(30));
        let state = handoff.report(Outcome::Delivered).await.expect("reported");
        assert_eq!(state, Some(DeliveryState::Delivered), "{body}");
        delivered.push(body);
    }
    assert_eq!(delivered.iter().collect::<HashSet<_>>().len(), 20, "{delivered:?}");
}

#[tokio::test]
async fn two_hubs_share_door_without_duplicates() {
    let hub = TestHub::with(&["a", "b"]).await;
    let other = hub.open_another().await;
    let mut tasks = tokio::task::JoinSet::new();
    let (tell, mut delivered) = mpsc::channel(1000);
    for hub in [hub.hub.clone(), other.clone()] {
        let (mut door, tell) = (workspace(&hub).await, tell.clone());
        tasks.spawn(async move {
            loop {
                for handoff in door.next(16).await {
                    let body = handoff.message.body.clone();
                    assert!(handoff.report(Outcome::Delivered).await.expect("reported").is_some());
                    tell.send(body).await.expect("told");
                }
            }
        });
    }
    for n in 0..100 {
        let hub = if n % 2 == 0 { &hub.hub } else { &other };
        hub.submit(draft(hub, "a", "b", &n.to_string())).await.expect("accepted");
    }
    let mut got = HashSet::new();
    while got.len() < 100 {
        assert!(got.insert(with_timeout(delivered.recv()).await.expect("open")), "delivered twice");
    }
    poll_due(&hub.hub).await;
    assert!(delivered.try_recv().is_err());
}

#[tokio::test]
async fn handoff_of_failed_transaction_is_discarded() {
    let hub = TestHub::with(&["a", "b"]).await;
    let mut door = workspace(&hub.hub).await;
    // A message is journaled and leased, and then its job fails: its number is assigned again.
    let lost = draft(&hub.hub, "a", "b", "undone");
    let failed: Result<(), HubError> = hub
        .hub
        .write(move |tx| {
            let prepared = crate::journal::submit::Prepared::new(lost, 100, 100)?;
            crate::journal::submit::submit(tx, prepared)?;
            Err(HubError::Closed)
        })
        .await;
    assert!(failed.is_err());
    let sent = hub.send("a", "b", "kept").await;
    poll_due(&hub.hub).await;
    assert_eq!(hub.state(sent.id).await, DeliveryState::InFlight);
    let handoff = next_handoff(&mut door).await;
    assert_eq!(handoff.message.body, "kept");
    let state = handoff.report(Outcome::Delivered).await.expect("reported");
    assert_eq!(state, Some(DeliveryState::Delivered));
    assert_eq!(bodies(&hub.hub).await, ["kept"]);
}

#[tokio::test]
async fn expired_queued_message_is_not_delivered() {
    let hub = TestHub::with(&["a", "b"]).await;
    let expiring = |body| Draft { expires_at: Some(noon() + seconds(60)), ..hub.draft("a", "b", body) };
    let short = hub.hub.submit(expiring("short")).await.expect("accepted");
    let long = hub.send("a", "b", "long").await;
    hub.clock.advance(seconds(60));
    let mut door = workspace(&hub.hub).await;
    let handoff = next_handoff(&mut door).await;
    assert_eq!(handoff.message.id, long.id);
    let expired = hub.hub.deliveries().expire_due().await.expect("expired");
    // The tick of the open door may have come first.
    assert!(expired.iter().all(|delivery| delivery.message == short.id), "{expired:?}");
    assert!(ready(&mut door).is_empty());
    let delivery = hub.deliveries(short.id).await.remove(0);
    assert_eq!((delivery.state, delivery.milestones.ended), (DeliveryState::Expired, Some(hub.hub.now())));
}

#[tokio::test]
async fn expired_message_leaves_mailbox_at_once() {
    let hub = TestHub::with(&["a", "b"]).await;
    let draft = Draft { expires_at: Some(noon() + seconds(60)), ..hub.draft("a", "b", "short") };
    let short = hub
        .hub
        .submit(Draft { restored: Some(vec![(agent_id("b"), DeliveryState::Delivered)]), ..draft })
        .await;
    let short = short.expect("accepted");
    assert_eq!(hub.mailbox("b", Part::Waiting).await, ["short"]);
    assert_eq!(hub.hub.mailboxes().unread(agent_id("b"), 10).await.expect("counted"), 1);
    hub.clock.advance(seconds(60));
    assert_eq!(hub.mailbox("b", Part::Waiting).await, Vec::<String>::new());
    assert_eq!(hub.hub.mailboxes().unread(agent_id("b"), 10).await.expect("counted"), 0);
    assert_eq!(hub.state(short.id).await, DeliveryState::Delivered);
    assert_eq!(hub.hub.deliveries().expire_due().await.expect("expired").len(), 1);
    assert_eq!(hub.state(short.id).await, DeliveryState::Expired);
    assert_eq!(hub.mailbox("b", Part::Done).await, ["short"]);
    assert_eq!(hub.hub.deliveries().expire_due().await.expect("expired"), []);
}

#[tokio::test]
async fn settle_waits_only_for_open_doors() {
    let hub = TestHub::with(&["a", "b"]).await;
    let queued = hub.send("a", "b", "nobody").await;
    let receipt = with_timeout(hub.hub.deliveries().wait_until_settled(queued.id)).await.expect("settled");
    assert_eq!(receipt.overall_state(), OverallState::Pending);
    let mut door = workspace(&hub.hub).await;
    let _ = next_handoff(&mut door).await.report(Outcome::Delivered).await;
    let sent = hub.send("a", "b", "hi").await;
    let waiting = tokio::spawn({
        let hub = hub.hub.clone();
        async move { hub.deliveries().wait_until_settled(sent.id).await }
    });
    let handoff = next_handoff(&mut door).await;
    assert!(!waiting.is_finished());
    handoff.report(unreachable()).await.expect("reported");
    let receipt = with_timeout(waiting).await.expect("ended").expect("settled");
    assert!(matches!(receipt.deliveries[0].state, DeliveryState::Failed { .. }));
    let unknown = hub.hub.deliveries().wait_until_settled(hub.hub.next_id()).await;
    assert!(matches!(unknown, Err(HubError::UnknownMessage { .. })), "{unknown:?}");
}

#[tokio::test]
async fn settle_ends_with_the_hub() {
    let hub = TestHub::with(&["a", "b"]).await;
    let mut door = workspace(&hub.hub).await;
    let sent = hub.send("a", "b", "hi").await;
    let handoff = next_handoff(&mut door).await;
    let waiting = tokio::spawn({
        let hub = hub.hub.clone();
        async move { hub.deliveries().wait_until_settled(sent.id).await }
    });
    with_timeout(hub.hub.shut_down()).await;
    let _ = with_timeout(waiting).await.expect("it ends");
    let late = handoff.report(Outcome::Delivered).await;
    assert!(matches!(late, Err(HubError::Closed)), "{late:?}");
    assert!(with_timeout(door.next(1)).await.is_empty());
}

#[tokio::test]
async fn clock_set_back_delays_no_delivery() {
    let hub = TestHub::with(&["a", "b"]).await;
    let first = hub.open_another().await;
    let mut door = workspace(&first).await;
    let failed = hub.send("a", "b", "failed").await;
    poll_due(&first).await;
    next_handoff(&mut door).await.report(unreachable()).await.expect("reported");
    let hung = hub.send("a", "b", "in flight").await;
    poll_due(&first).await;
    let _hung = next_handoff(&mut door).await;
    first.shut_down().await;
    let queued = hub.send("a", "b", "queued").await;
    hub.clock.advance(seconds(-3600));
    let mut door = workspace(&hub.hub).await;
    let handoff = next_handoff(&mut door).await;
    assert_eq!(handoff.message.id, queued.id);
    handoff.report(Outcome::Delivered).await.expect("reported");
    // The longest lease, and then the longest backoff, and not an hour more.
    hub.clock.advance(seconds(61));
    poll_due(&hub.hub).await;
    let handoff = next_handoff(&mut door).await;
    assert_eq!(handoff.message.id, hung.id);
    handoff.report(Outcome::Delivered).await.expect("reported");
    hub.clock.advance(seconds(15 * 60));
    poll_due(&hub.hub).await;
    let rest: Vec<_> = ready(&mut door).iter().map(|handoff| handoff.message.id).collect();
    assert!(rest.contains(&failed.id), "{rest:?}");
}

#[tokio::test]
async fn damaged_delivery_does_not_stop_others() {
    let hub = TestHub::with(&["a", "b"]).await;
    let mut sent = Vec::new();
    for n in 0..8 {
        let draft = Draft { expires_at: Some(noon() + seconds(600)), ..hub.draft("a", "b", &n.to_string()) };
        sent.push(hub.hub.submit(draft).await.expect("accepted"));
    }
    let sql = hub.sql();
    let damage = |column: &str, value: &str, n: usize| {
        let text = format!("UPDATE deliveries SET {column} = {value} WHERE id = {}", sent[n].seq * SPREAD);
        assert_eq!(sql.execute(&text, []).expect("changed"), 1);
    };
    damage("fence", "'x'", 0);
    damage("fence", "9223372036854775807", 1);
    damage("attempts", "-1", 2);
    damage("attempts", "4294967295", 3);
    damage("route", "'{}'", 4);
    damage("note", "x'ff'", 5);
    sql.execute("UPDATE messages SET body = x'ff' WHERE seq = ?1", [sent[6].seq]).expect("changed");
    let mut door = workspace(&hub.hub).await;
    let got: HashSet<_> = ready(&mut door).iter().map(|handoff| handoff.message.body.clone()).collect();
    assert!(got.contains("7"), "{got:?}");
    assert!(!got.contains("6") && !got.contains("4"), "{got:?}");
    // Submission and housekeeping continue as well.
    hub.send("a", "b", "next").await;
    hub.clock.advance(seconds(601));
    hub.hub.deliveries().expire_due().await.expect("the others expire");
    assert_eq!(hub.state(sent[7].id).await, DeliveryState::Expired);
}

#[tokio::test]
async fn reopened_door_replaces_and_closed_queues() {
    let hub = TestHub::with(&["a", "b"]).await;
    drop(workspace(&hub.hub).await);
    let sent = hub.send("a", "b", "hi").await;
    assert_eq!(hub.state(sent.id).await, DeliveryState::Queued);
    let mut old = workspace(&hub.hub).await;
    let mut new = workspace(&hub.hub).await;
    let kept = next_handoff(&mut old).await;
    let kind = kept.message.kind.clone();
    assert_eq!(kind, Kind::delegate_task());
    hub.send("a", "b", "second").await;
    assert_eq!(next_handoff(&mut new).await.message.body, "second");
    assert!(with_timeout(old.next(1)).await.is_empty(), "the old end is closed");
}

/// A post in a channel that the agent reads; its file is not written yet.
fn post(hub: &TestHub) -> Draft {
    let channel = Route::Channel { channel: name("general") };
    Draft { route: Some(channel), allow_unregistered: true, ..hub.draft("a", "reader", "hi") }
}

#[tokio::test]
async fn leased_delivery_waits_for_its_report() {
    let hub = TestHub::with(&["a"]).await;
    let draft = post(&hub);
    let (accepted, mut leased) = hub.hub.submit_leased(draft.clone()).await.expect("accepted");
    assert_eq!(hub.state(accepted.id).await, DeliveryState::InFlight);
    let (again, none) = hub.hub.submit_leased(draft).await.expect("accepted");
    assert!(again.duplicate && none.is_empty(), "{again:?}");
    let handoff = leased.pop().expect("one delivery");
    assert_eq!(handoff.report(Outcome::Delivered).await.expect("reported"), Some(DeliveryState::Delivered));
    let delivery = hub.deliveries(accepted.id).await.remove(0);
    assert_eq!((delivery.state, delivery.note), (DeliveryState::Delivered, None));
}

#[tokio::test]
async fn dropped_lease_goes_to_the_door() {
    let hub = TestHub::with(&["a"]).await;
    let mut door = hub.hub.deliveries().open_door(Door::Channels).await.expect("opened");
    let (accepted, leased) = hub.hub.submit_leased(post(&hub)).await.expect("accepted");
    assert!(ready(&mut door).is_empty(), "its submitter has it");
    drop(leased);
    assert_eq!(next_handoff(&mut door).await.message.id, accepted.id);
}
