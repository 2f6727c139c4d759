use switchboard_core::DeliveryState;

use super::*;
use crate::test_hub::{TestHub, agent_id, name};

fn remote(text: &str, team: Option<&str>, channels: &[&str]) -> RemoteAgent {
    let channels = channels.iter().map(|channel| name(channel)).collect();
    RemoteAgent { name: name(text), role: None, team: team.map(name), channels }
}

#[tokio::test]
async fn remote_agents_are_known_and_reached() {
    let hub = TestHub::with(&["codex", "claude"]).await;
    let office = name("office");
    let remotes = vec![remote("codex", Some("backend"), &[]), remote("qc-1", None, &["general"])];
    assert!(hub.hub.relay().put_remote_agents(office.clone(), remotes.clone()).await.expect("noted"));
    assert!(
        !hub.hub.relay().put_remote_agents(office.clone(), remotes).await.expect("noted"),
        "the same again is no news"
    );

    let route = |to: &'static str| {
        let hub = &hub;
        async move { hub.send("claude", to, "hello").await.deliveries[0].route.to_string() }
    };
    assert_eq!(route("qc-1").await, "hub:office", "a name that nobody here has");
    assert_eq!(route("codex").await, "mailbox:codex", "our own come first");
    assert_eq!(route("codex@office").await, "hub:office");
    assert_eq!(route("team:backend").await, "hub:office", "a team that nobody here belongs to");
    assert_eq!(route("#general").await, "hub:office");
    let sent = hub.send("claude", "QC-1", "hello").await;
    assert_eq!(hub.stored(sent.id).await.message.to, agent_id("qc-1@office").into());
    assert_eq!(hub.state(sent.id).await, DeliveryState::Queued);

    assert!(hub.hub.relay().put_remote_agents(office, vec![]).await.expect("noted"));
    let gone = hub.hub.submit(hub.draft("claude", "qc-1", "hello")).await;
    assert!(gone.is_err(), "{gone:?}");
    assert_eq!(hub.hub.directory().await.expect("read").agents().count(), 2);
}

#[tokio::test]
async fn name_in_two_hubs_needs_full_address() {
    let hub = TestHub::with(&["claude"]).await;
    for other in ["office", "lab"] {
        hub.hub.relay().put_remote_agents(name(other), vec![remote("qc-1", None, &[])]).await.expect("noted");
    }
    let error = hub.hub.submit(hub.draft("claude", "qc-1", "hello")).await.expect_err("ambiguous");
    assert!(error.to_string().contains("no agent is named 'qc-1'"), "{error}");
    assert_eq!(hub.send("claude", "qc-1@lab", "hello").await.deliveries[0].route.to_string(), "hub:lab");
}
