use switchboard_core::{Hop, NativeId, Route};

use super::*;
use crate::directory::RemoteAgent;
use crate::test_hub::{TestHub, agent_id, name, seconds};
use crate::{Draft, RelayedMessage};

/// A hub with `claude` and `codex`, linked with `office`, where `qc-1` is.
async fn linked() -> TestHub {
    let hub = TestHub::with(&["claude", "codex"]).await;
    let resident = RemoteAgent { name: name("qc-1"), role: None, team: None, channels: vec![] };
    hub.hub.relay().put_remote_agents(name("office"), vec![resident]).await.expect("noted");
    hub
}

/// A message that `office` relays.
fn relayed(hub: &TestHub, from: &str, to: &str) -> RelayedMessage {
    let draft = hub.draft(from, to, "from afar");
    let native = NativeId { door: Door::Nats, scope: "office".into(), id: draft.id.to_string() };
    let route = Some(Route::Hub { hub: name("office") });
    let thread = draft.id;
    RelayedMessage { draft: Draft { native, native_is_id: true, route, ..draft }, thread, via: vec![] }
}

#[tokio::test]
async fn only_local_messages_for_others_are_relayed() {
    let hub = linked().await;
    hub.send("claude", "codex", "of ours").await;
    let direct = hub.send("claude", "qc-1", "direct").await;
    let all = hub.send("claude", "all", "to all").await;
    hub.hub.submit_relayed(vec![relayed(&hub, "qc-1@office", "all")]).await.remove(0).expect("taken");

    let page = hub.hub.relay().outgoing(0, 100).await.expect("read");
    let ids: Vec<_> = page.messages.iter().map(|relay| relay.stored.message.id).collect();
    assert_eq!((ids, page.until, page.more), (vec![direct.id, all.id], 4, false));
    assert_eq!(page.messages[0].deliveries, direct.deliveries);
    assert_eq!(page.messages[1].deliveries, all.deliveries);
    assert!(all.deliveries.len() > 1, "each has all of its own: {:?}", all.deliveries);
    let page = hub.hub.relay().outgoing(0, 1).await.expect("read");
    assert_eq!((page.messages.len(), page.until, page.more), (0, 1, true));
    let page = hub.hub.relay().outgoing(9, 100).await.expect("read");
    assert_eq!((page.messages.len(), page.until, page.more), (0, 9, false));
}

#[tokio::test]
async fn channel_posts_are_relayed_both_directions() {
    let hub = linked().await;
    let native =
        |draft: &Draft| NativeId { door: Door::Channels, scope: "general".into(), id: draft.id.to_string() };
    let route = Some(Route::Channel { channel: name("general") });
    let draft = hub.draft("claude", "codex", "in the channel");
    let here = hub.hub.submit(Draft { native: native(&draft), route, ..draft }).await.expect("accepted");
    let mut post = relayed(&hub, "qc-1@office", "codex");
    post.draft.metadata.insert(POSTED_IN.to_owned(), "general".into());
    post.draft.restored = Some(Vec::new());
    let there = post.draft.id;
    let plain = relayed(&hub, "qc-1@office", "codex");
    for answer in hub.hub.submit_relayed(vec![plain, post]).await {
        answer.expect("taken");
    }

    let page = hub.hub.relay().outgoing(0, 100).await.expect("read");
    let ids: Vec<_> = page.messages.iter().map(|relay| relay.stored.message.id).collect();
    assert_eq!(ids, [here.id], "what a link brought goes to no further hub");
    let page = hub.hub.relay().posts(0, 100).await.expect("read");
    let ids: Vec<_> = page.posts.iter().map(|stored| stored.message.id).collect();
    assert_eq!((ids, page.until, page.more), (vec![there], 3, false));
    let page = hub.hub.relay().posts(0, 2).await.expect("read");
    assert_eq!((page.posts.len(), page.until, page.more), (0, 2, true));
}

#[tokio::test]
async fn relayed_message_is_not_relayed_further() {
    let hub = linked().await;
    let far = RemoteAgent { name: name("far-1"), role: None, team: None, channels: vec![] };
    hub.hub.relay().put_remote_agents(name("lab"), vec![far]).await.expect("noted");
    let answers = hub
        .hub
        .submit_relayed(vec![relayed(&hub, "qc-1@office", "all"), relayed(&hub, "qc-1@office", "far-1@lab")])
        .await;
    let routes: Vec<_> =
        answers[0].as_ref().expect("taken").deliveries.iter().map(|d| d.route.to_string()).collect();
    assert_eq!(routes, ["mailbox:claude", "mailbox:codex", "mailbox:human"]);
    assert!(answers[1].is_err(), "{:?}", answers[1]);
}

#[tokio::test]
async fn message_keeps_thread_without_local_parent() {
    let hub = linked().await;
    let elsewhere = hub.hub.next_id();
    let mut one = relayed(&hub, "qc-1@office", "claude");
    one.draft.in_reply_to = Some(elsewhere);
    one.thread = elsewhere;
    one.via = vec![Hop::Agent(agent_id("far-1@lab"))];
    let id = one.draft.id;
    hub.hub.submit_relayed(vec![one.clone(), one]).await.remove(0).expect("taken");
    let message = hub.stored(id).await.message;
    assert_eq!((message.thread, message.via), (elsewhere, vec![Hop::Agent(agent_id("far-1@lab"))]));
    let reply = hub.reply("claude", "qc-1@office", id).await;
    let message = hub.stored(reply.id).await.message;
    let chain = ["far-1@lab", "qc-1@office"].map(|agent| Hop::Agent(agent_id(agent)));
    assert_eq!((message.thread, message.via), (elsewhere, chain.to_vec()));
}

#[tokio::test]
async fn remote_delivery_follows_receipts() {
    let hub = linked().await;
    let (one, two) = (hub.send("claude", "qc-1", "one").await, hub.send("claude", "qc-1", "two").await);
    assert_eq!(hub.state(one.id).await, DeliveryState::Queued);
    let deliveries = [&one, &two].map(|sent| sent.deliveries[0].clone()).to_vec();
    hub.hub.relay().mark_relayed("cursor", "7 1".into(), deliveries).await.expect("noted");
    assert_eq!(hub.state(one.id).await, DeliveryState::InFlight);
    let noted = hub.hub.notes(Door::Nats).all(LINK).await.expect("read");
    assert_eq!(noted, [("cursor".to_owned(), "7 1".to_owned())]);

    let receipt = |id, refused: Option<&str>| RemoteReceipt {
        id,
        agent: agent_id("qc-1@office"),
        status: refused
            .map_or(ReceiptStatus::Accepted, |reason| ReceiptStatus::Refused { reason: reason.to_owned() }),
    };
    let receipts =
        vec![receipt(one.id, None), receipt(two.id, Some("gone")), receipt(hub.hub.next_id(), None)];
    assert_eq!(hub.hub.relay().apply_receipts(receipts.clone()).await.expect("noted").len(), 2);
    assert_eq!(hub.hub.relay().apply_receipts(receipts).await.expect("noted").len(), 0, "old news");
    assert_eq!(hub.state(one.id).await, DeliveryState::Delivered);
    let refused = &hub.deliveries(two.id).await[0];
    assert_eq!((refused.state, refused.note.as_deref()), (DeliveryState::Refused, Some("gone")));
}

#[tokio::test]
async fn receipts_apply_to_remote_deliveries_only() {
    let hub = linked().await;
    let local = hub.send("claude", "codex", "of ours").await;
    let status = ReceiptStatus::Refused { reason: "no".into() };
    let receipt = RemoteReceipt { id: local.id, agent: agent_id("codex"), status };
    assert_eq!(hub.hub.relay().apply_receipts(vec![receipt]).await.expect("noted").len(), 0);
    let direct = hub.send("claude", "qc-1", "direct").await;
    assert_eq!(
        hub.hub.relay().expire_remote_deliveries(hub.hub.now(), "too late").await.expect("noted").len(),
        0
    );
    let later = hub.hub.now() + seconds(1);
    assert_eq!(hub.hub.relay().expire_remote_deliveries(later, "too late").await.expect("noted").len(), 1);
    assert_eq!(hub.state(direct.id).await, DeliveryState::Expired);
    assert_ne!(hub.state(local.id).await, DeliveryState::Expired);
}

/// A member of a swarm that only `office` is in: replies return through `office`, and no other stranger can be
/// addressed that way.
#[tokio::test]
async fn reply_to_stranger_returns_by_relaying_hub() {
    let hub = linked().await;
    let question =
        hub.hub.submit_relayed(vec![relayed(&hub, "bob@research", "claude")]).await.remove(0).expect("taken");
    let answer = Draft { in_reply_to: Some(question.id), ..hub.draft("claude", "bob@research", "yes") };
    let answer = hub.hub.submit(answer).await.expect("taken");
    assert_eq!(answer.deliveries[0].route, Route::Hub { hub: name("office") });
    for (to, parent) in [("bob@research", None), ("carol@research", Some(question.id))] {
        let other = Draft { in_reply_to: parent, ..hub.draft("claude", to, "and you?") };
        hub.hub.submit(other).await.expect_err("nobody knows them");
    }
    // The hub identifies an agent that it speaks for by the name alone.
    hub.hub.relay().mark_relayed("cursor", "7 1".into(), answer.deliveries).await.expect("noted");
    let receipt =
        RemoteReceipt { id: answer.id, agent: agent_id("bob@office"), status: ReceiptStatus::Accepted };
    assert_eq!(hub.hub.relay().apply_receipts(vec![receipt]).await.expect("noted").len(), 1);
    assert_eq!(hub.state(answer.id).await, DeliveryState::Delivered);
}

#[tokio::test]
async fn receipts_only_advance_a_delivery() {
    use DeliveryState::{Acknowledged, Delivered, Expired, Refused, Seen};
    let done = || ReceiptStatus::Acknowledged { note: Some("merged".into()) };
    let refused = || ReceiptStatus::Refused { reason: "gone".into() };
    let table = [
        (vec![ReceiptStatus::Accepted, ReceiptStatus::Seen, done()], Acknowledged),
        // Later receipts may overtake earlier ones.
        (vec![ReceiptStatus::Seen, ReceiptStatus::Accepted], Seen),
        (vec![done(), ReceiptStatus::Accepted, ReceiptStatus::Seen], Acknowledged),
        (vec![ReceiptStatus::Accepted, refused()], Delivered),
        (vec![refused(), ReceiptStatus::Seen, done()], Refused),
    ];
    let hub = linked().await;
    for (words, expected) in table {
        let sent = hub.send("claude", "qc-1", "please look").await;
        for status in words.clone() {
            let receipt = RemoteReceipt { id: sent.id, agent: agent_id("qc-1@office"), status };
            hub.hub.relay().apply_receipts(vec![receipt]).await.expect("noted");
        }
        let delivery = hub.deliveries(sent.id).await.remove(0);
        assert_eq!(delivery.state, expected, "{words:?}");
        assert_eq!(delivery.milestones.delivered.is_some(), expected != Refused, "{words:?}");
        assert_eq!(delivery.note.as_deref() == Some("merged"), expected == Acknowledged, "{words:?}");
    }
    let late = hub.send("claude", "qc-1", "too late").await;
    hub.hub.relay().expire_remote_deliveries(hub.hub.now() + seconds(1), "too late").await.expect("noted");
    let receipt = RemoteReceipt { id: late.id, agent: agent_id("qc-1@office"), status: done() };
    assert!(hub.hub.relay().apply_receipts(vec![receipt]).await.expect("noted").is_empty());
    assert_eq!(hub.state(late.id).await, Expired);
}

#[tokio::test]
async fn notice_to_remote_agent_is_relayed() {
    let hub = linked().await;
    let answer = hub.hub.submit_relayed(vec![relayed(&hub, "qc-1@office", "claude")]).await.remove(0);
    let about = hub.stored(answer.expect("taken").id).await.message;
    let to = agent_id("qc-1@office");
    let write = move |tx: &mut Transaction<'_>| {
        crate::delivery::notice::write(tx, &about, to, "not seen".into(), serde_json::Map::new())
    };
    let id = hub.hub.write(write).await.expect("written");
    let page = hub.hub.relay().outgoing(0, 100).await.expect("read");
    let out: Vec<_> = page.messages.iter().map(|relay| relay.stored.message.id).collect();
    assert_eq!(out, [id], "the notice, and not what it is about");

    let notice = hub.stored(id).await.message;
    assert!(crate::is_notice(&notice));
    let mut there = notice.clone();
    there.from = agent_id("switchboard@lab");
    there.origin.route = Some(Route::Hub { hub: name("lab") });
    assert!(crate::is_notice(&there));
    // A swarm member, or an agent of another hub, may have the same name.
    there.origin.route = Some(Route::Hub { hub: name("office") });
    assert!(!crate::is_notice(&there));
    there.origin.route = Some(Route::Peer { agent: agent_id("switchboard@lab") });
    assert!(!crate::is_notice(&there));
}

#[tokio::test]
async fn message_relayed_elsewhere_is_not_repeated() {
    let hub = linked().await;
    let mut draft = hub.draft("claude", "all", "from a folder that hubs share");
    draft.metadata.insert(switchboard_core::NO_RELAY.into(), true.into());
    let accepted = hub.hub.submit(draft).await.expect("taken");
    let agents: Vec<_> = accepted.deliveries.iter().map(|delivery| delivery.agent.to_string()).collect();
    assert_eq!(agents, ["codex", "human"], "not those of another hub");
    assert_eq!(hub.hub.relay().outgoing(0, 100).await.expect("read").messages, []);
}

#[tokio::test]
async fn relayed_copy_adds_missing_deliveries() {
    for (status, reached) in [("office", vec!["codex", "claude", "human"]), ("lab", vec!["codex"])] {
        let hub = linked().await;
        let brought = relayed(&hub, "qc-1@office", "all");
        let mut found = brought.draft.clone();
        found.to = "codex".parse().expect("an address");
        found.native = NativeId { door: Door::Channels, scope: "general".into(), id: "msg-1".into() };
        found.native_is_id = false;
        found.route = Some(Route::Channel { channel: name("general") });
        found.metadata.insert(switchboard_core::NO_RELAY.into(), status.into());
        let first = hub.hub.submit(found).await.expect("taken");
        for _ in 0..2 {
            let again = hub.hub.submit_relayed(vec![brought.clone()]).await.remove(0).expect("the same");
            assert_eq!((again.id, again.seq, again.duplicate), (first.id, first.seq, true));
            let agents: Vec<_> = again.deliveries.iter().map(|one| one.agent.to_string()).collect();
            assert_eq!(agents, reached, "passed on by {status}");
        }
        let other = RelayedMessage {
            draft: Draft { body: "other words".into(), ..brought.draft.clone() },
            ..brought
        };
        let other = hub.hub.submit_relayed(vec![other]).await.remove(0);
        assert!(matches!(other, Err(HubError::Conflict { .. })), "{other:?}");
    }
}
