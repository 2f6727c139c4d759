use switchboard_core::{AgentId, NativeId, Route};

use super::*;
use crate::directory::RemoteAgent;
use crate::test_hub::{TestHub, agent_id, name};
use crate::{Draft, RelayedMessage};

/// A hub with `claude` and `codex` that has a message of `office` for these.
async fn hub_with_relayed_message(to: &str) -> (TestHub, MessageId) {
    let hub = TestHub::with(&["claude", "codex"]).await;
    let resident = RemoteAgent { name: name("qc-1"), role: None, team: None, channels: vec![] };
    hub.hub.relay().put_remote_agents(name("office"), vec![resident]).await.expect("noted");
    let draft = hub.draft("qc-1@office", to, "from afar");
    let (id, route) = (draft.id, Some(Route::Hub { hub: name("office") }));
    let native = NativeId { door: Door::Nats, scope: "office".into(), id: id.to_string() };
    let draft = Draft { native, native_is_id: true, route, ..draft };
    let message = RelayedMessage { draft, thread: id, via: vec![] };
    hub.hub.submit_relayed(vec![message]).await.remove(0).expect("taken");
    hub.deliver_all().await;
    (hub, id)
}

async fn update(hub: &TestHub) -> Vec<ReceiptUpdate> {
    hub.hub
        .relay()
        .pending_receipts(100)
        .await
        .expect("read")
        .into_iter()
        .filter_map(|owed| owed.update)
        .collect()
}

fn of(id: MessageId, agent: &str, status: ReceiptStatus) -> ReceiptUpdate {
    ReceiptUpdate { hub: name("office"), id, agent: name(agent), status }
}

#[tokio::test]
async fn receipt_is_pending_until_cleared() {
    let (hub, id) = hub_with_relayed_message("claude").await;
    assert_eq!(update(&hub).await, []);
    hub.hub.mailboxes().mark_seen(agent_id("claude"), vec![id]).await.expect("noted");
    assert_eq!(update(&hub).await, [of(id, "claude", ReceiptStatus::Seen)]);
    // The state changes while the receipt is being sent.
    let telling = hub.hub.relay().pending_receipts(100).await.expect("read");
    hub.hub.mailboxes().acknowledge(agent_id("claude"), id, Some("merged".into())).await.expect("noted");
    hub.hub.relay().clear_receipts(telling).await.expect("noted");
    let done = of(id, "claude", ReceiptStatus::Acknowledged { note: Some("merged".into()) });
    assert_eq!(update(&hub).await, [done]);
    let telling = hub.hub.relay().pending_receipts(100).await.expect("read");
    hub.hub.relay().clear_receipts(telling).await.expect("noted");
    assert_eq!(hub.hub.relay().pending_receipts(100).await.expect("read"), []);
}

#[tokio::test]
async fn receipts_cover_group_readers_of_remote_messages() {
    let (hub, id) = hub_with_relayed_message("all").await;
    let own = hub.send("claude", "codex", "of ours").await;
    hub.deliver_all().await;
    hub.hub.mailboxes().mark_seen(agent_id("codex"), vec![own.id, id]).await.expect("noted");
    hub.hub.mailboxes().acknowledge(agent_id("claude"), id, None).await.expect("noted");
    hub.hub.mailboxes().acknowledge(AgentId::human(), id, None).await.expect("noted");
    let mut receipts = update(&hub).await;
    receipts.sort_by_key(|update| update.agent.to_string());
    let done = ReceiptStatus::Acknowledged { note: None };
    assert_eq!(
        receipts,
        [of(id, "claude", done.clone()), of(id, "codex", ReceiptStatus::Seen), of(id, "human", done)],
        "and only of the message that came from there"
    );
}

#[tokio::test]
async fn removed_message_has_no_receipt() {
    let (hub, id) = hub_with_relayed_message("claude").await;
    hub.hub.mailboxes().mark_seen(agent_id("claude"), vec![id]).await.expect("noted");
    hub.sql().execute("DELETE FROM deliveries", []).expect("deleted");
    let owed = hub.hub.relay().pending_receipts(100).await.expect("read");
    assert_eq!(owed.iter().map(|owed| owed.update.is_none()).collect::<Vec<_>>(), [true]);
    hub.hub.relay().clear_receipts(owed).await.expect("noted");
    assert_eq!(hub.hub.relay().pending_receipts(100).await.expect("read"), []);
}
