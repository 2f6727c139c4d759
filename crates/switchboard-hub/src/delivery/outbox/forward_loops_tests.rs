use std::sync::Arc;

use switchboard_core::{AgentId, DeliveryState, Door, NativeId, Outcome, RoutingRules};

use crate::test_hub::{TestHub, agent_id, config, with_timeout};
use crate::{Draft, Hub, Part, Peer, Registration};

const REASON: &str = "the only route to 'bob' is the one that the message came by";

/// A hub with `codex` and `alice`, whose mail is forwarded to a member of a swarm.
async fn forwarding() -> TestHub {
    let mut hub = TestHub::with(&["codex"]).await;
    let mut links = RoutingRules::default();
    links.forward(agent_id("alice"), agent_id("bob@research")).expect("a forward");
    let settings = crate::HubConfig { links: Arc::new(links), ..config(hub.path(), &hub.clock) };
    hub.hub.shut_down().await;
    hub.hub = Hub::open(settings).await.expect("opened");
    hub.hub
        .agents()
        .register(Registration::mailbox("alice".parse().expect("a name")))
        .await
        .expect("registered");
    let bob = Peer { name: "bob".parse().expect("a name"), role: None };
    hub.hub.agents().put_peers("research".parse().expect("a name"), Some(vec![bob])).await.expect("known");
    hub
}

/// Sends to `alice`, and has the swarm refuse it.
async fn refused(hub: &TestHub, draft: Draft) {
    let sent = hub.hub.submit(draft).await.expect("accepted");
    assert_eq!(sent.deliveries[0].agent, agent_id("bob@research"));
    let mut door = hub.hub.deliveries().open_door(Door::Swarm).await.expect("opened");
    for handoff in with_timeout(door.next(1)).await {
        handoff.report(Outcome::Refused { reason: REASON.into() }).await.expect("reported");
    }
    assert_eq!(hub.state(sent.id).await, DeliveryState::Refused);
}

#[tokio::test]
async fn person_is_notified_once_per_refused_forward() {
    let hub = forwarding().await;
    refused(&hub, hub.draft("codex", "alice", "round")).await;
    refused(&hub, hub.draft("codex", "alice", "and round")).await;
    hub.deliver_all().await;
    let unseen = hub.mailbox("human", Part::Unseen).await;
    assert_eq!(unseen.len(), 1, "{unseen:?}");
    for part in ["from codex to alice", "forwarded to bob@research", REASON, "switchboard route alice"] {
        assert!(unseen[0].contains(part), "{part}: {unseen:?}");
    }
    // The sender uses a workspace and has a receipt.
    assert_eq!(hub.mailbox("codex", Part::Unseen).await, Vec::<String>::new());
    let notice = hub
        .hub
        .journal()
        .newest(10)
        .await
        .expect("read")
        .items
        .into_iter()
        .find(|one| one.message.to == AgentId::human().into());
    hub.hub
        .mailboxes()
        .mark_seen(agent_id("human"), vec![notice.expect("told").message.id])
        .await
        .expect("seen");
    refused(&hub, hub.draft("codex", "alice", "again")).await;
    hub.deliver_all().await;
    assert_eq!(hub.mailbox("human", Part::Unseen).await.len(), 1);
}

#[tokio::test]
async fn sender_without_receipts_is_notified_each_time() {
    let hub = forwarding().await;
    for number in 0..2 {
        let native = NativeId { door: Door::Channels, scope: "general".into(), id: format!("msg-{number}") };
        refused(&hub, Draft { native, ..hub.draft("codex", "alice", "round") }).await;
    }
    hub.deliver_all().await;
    let unseen = hub.mailbox("codex", Part::Unseen).await;
    assert_eq!(unseen.len(), 2, "{unseen:?}");
    assert!(unseen[0].contains("Your message to alice was refused"), "{unseen:?}");
    assert_eq!(hub.mailbox("human", Part::Unseen).await.len(), 1);
}

#[tokio::test]
async fn direct_refusal_is_reported_by_receipt_alone() {
    let hub = TestHub::with(&["codex", "alice"]).await;
    let sent = hub.send("codex", "alice", "hi").await;
    let mut door = hub.hub.deliveries().open_door(Door::Workspace).await.expect("opened");
    for handoff in with_timeout(door.next(1)).await {
        handoff.report(Outcome::Refused { reason: REASON.into() }).await.expect("reported");
    }
    assert_eq!(hub.state(sent.id).await, DeliveryState::Refused);
    assert_eq!(hub.hub.journal().newest(10).await.expect("read").items.len(), 1);
}
