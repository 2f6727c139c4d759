use rusqlite::params;
use switchboard_core::DeliveryState;

use super::*;
use crate::test_hub::{TestHub, agent_id};
use crate::{Draft, Registration};

async fn lost(hub: &TestHub) -> Vec<(MessageId, Vec<String>)> {
    let found = hub.hub.deliveries().missing(crate::Extent::Everything).await.expect("looked");
    let names = |agents: Vec<AgentId>| agents.iter().map(ToString::to_string).collect();
    found.into_iter().map(|lost| (lost.stored.message.id, names(lost.agents))).collect()
}

#[tokio::test]
async fn missing_delivery_is_queued_or_restored() {
    let hub = TestHub::with(&["a", "b"]).await;
    let mut sent = Vec::new();
    for n in 0..4 {
        sent.push(hub.send("a", "b", &n.to_string()).await);
    }
    assert_eq!(lost(&hub).await, []);
    for gone in &sent[1..3] {
        hub.sql().execute("DELETE FROM deliveries WHERE id / 65536 = ?1", [gone.seq]).expect("deleted");
    }
    let names = vec!["b".to_owned()];
    assert_eq!(lost(&hub).await, [(sent[1].id, names.clone()), (sent[2].id, names)]);
    let known = vec![(agent_id("b"), DeliveryState::Acknowledged)];
    assert_eq!(hub.hub.deliveries().restore(sent[1].id, known).await.expect("restored"), 1);
    assert_eq!(hub.hub.deliveries().restore(sent[2].id, Vec::new()).await.expect("restored"), 1);
    assert_eq!(lost(&hub).await, []);
    let state = async |id| hub.deliveries(id).await.remove(0).state;
    assert_eq!(state(sent[1].id).await, DeliveryState::Acknowledged);
    // A restored delivery is delivered like any other, and none is restored twice.
    assert_eq!(hub.hub.deliveries().restore(sent[2].id, Vec::new()).await.expect("nothing to do"), 0);
    hub.deliver_all().await;
    assert_eq!(state(sent[2].id).await, DeliveryState::Delivered);
    assert_eq!(hub.deliveries(sent[2].id).await.len(), 1);
}

#[tokio::test]
async fn group_misses_as_many_as_gaps() {
    let hub = TestHub::with(&["a", "b", "c", "d"]).await;
    let sent = hub.send("a", "all", "everyone").await;
    hub.clock.advance(crate::test_hub::seconds(1));
    hub.hub
        .agents()
        .register(Registration::mailbox("late".parse().expect("a name")))
        .await
        .expect("registered");
    let rows = hub.deliveries(sent.id).await;
    let agents: Vec<String> = rows.iter().map(|row| row.agent.to_string()).collect();
    let gone = |number: usize| {
        let id = sent.seq * SPREAD + i64::try_from(number).expect("small");
        hub.sql().execute("DELETE FROM deliveries WHERE id = ?1", params![id]).expect("deleted");
    };
    gone(1);
    assert_eq!(lost(&hub).await, [(sent.id, vec![agents[1].clone()])]);
    hub.hub.deliveries().restore(sent.id, Vec::new()).await.expect("restored");
    let again: Vec<String> = hub.deliveries(sent.id).await.iter().map(|row| row.agent.to_string()).collect();
    assert_eq!(again, agents);
}

#[tokio::test]
async fn stopped_messages_and_posts_get_no_delivery() {
    let hub = TestHub::with(&["a", "b"]).await;
    let sent = hub.send("a", "b", "stopped").await;
    let channel = Route::Channel { channel: "general".parse().expect("a name") };
    let draft = Draft { route: Some(channel), ..hub.draft("a", "#general", "posted") };
    hub.hub.submit(draft).await.expect("accepted");
    hub.sql()
        .execute_batch(&format!(
            "DELETE FROM deliveries; INSERT INTO stops (seq, subject, reason, at) VALUES ({}, 's', 'a storm', 0)",
            sent.seq
        ))
        .expect("changed");
    assert_eq!(lost(&hub).await, [(sent.id, vec!["b".to_owned()])]);
    hub.hub.deliveries().restore(sent.id, Vec::new()).await.expect("restored");
    let row = hub.deliveries(sent.id).await.remove(0);
    assert_eq!((row.state, row.note.as_deref()), (DeliveryState::Refused, Some("a storm")));
}
