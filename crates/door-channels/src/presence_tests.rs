use serde_json::json;

use super::*;
use crate::test_channels::{TestChannels, agent, name, write_carelessly};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn future_heartbeat_time_is_ignored() {
    let now = at("2026-01-11T12:00:00Z");
    let (past, future) = (at("2026-01-11T11:59:30Z"), at("2030-01-01T00:00:00Z"));
    assert_eq!(last_sign(Some(past), now, now), Some(past));
    assert_eq!(last_sign(Some(future), past, now), Some(past));
    assert_eq!(last_sign(None, past, now), Some(past));
    assert_eq!(last_sign(Some(future), future, now), None);
    // The writer's clock is an hour behind, or the file is an old copy.
    assert_eq!(last_sign(Some(at("2026-01-11T11:00:00Z")), past, now), Some(past));
}

#[test]
fn presence_ages_to_stale_then_offline() {
    let (now, after) = (at("2026-01-11T12:00:00Z"), PresenceTimeouts::default());
    for (state, gone, since, expected) in [
        ("AWAKE", false, Some("11:59:59"), PresenceState::Awake),
        ("AWAKE", false, Some("11:55:01"), PresenceState::Awake),
        ("AWAKE", false, Some("11:55:00"), PresenceState::Stale),
        ("AWAKE", false, Some("11:40:00"), PresenceState::Offline),
        ("OFFLINE", false, Some("11:59:59"), PresenceState::Offline),
        ("AWAKE", true, Some("11:59:59"), PresenceState::Offline),
        ("AWAKE", false, None, PresenceState::Stale),
    ] {
        let since = since.map(|time| at(&format!("2026-01-11T{time}Z")));
        assert_eq!(awareness(state, gone, since, now, after), expected, "{state} {since:?}");
    }
}

#[tokio::test]
async fn heartbeat_ends_with_offline() {
    let test = TestChannels::new(&[]).await;
    let (hub, heartbeat_writer) = (
        test.channels.hub(),
        HeartbeatWriter::new(test.channels.tree().clone(), name("codex"), "general".into()),
    );
    let seen = async || test.channels.presence_entries().await.unwrap().remove(0);
    heartbeat_writer.start_work(hub.now()).await;
    let working = seen().await;
    assert_eq!((working.awareness, working.substate.as_deref()), (PresenceState::Awake, Some("WORKING")));
    assert_eq!((working.pid, working.channel.as_deref()), (Some(std::process::id()), Some("general")));
    heartbeat_writer.finish_work(Some("it broke".into()), hub.now()).await;
    let idle = seen().await;
    assert_eq!((idle.substate.as_deref(), idle.error.as_deref()), (Some("IDLE"), Some("it broke")));
    test.channels.report_presence().await.unwrap();
    assert_eq!(hub.agents().presence(&agent("codex")).state, PresenceState::Awake);
    let stop = CancellationToken::new();
    stop.cancel();
    heartbeat_writer.run(Duration::from_secs(1), hub, stop).await;
    assert_eq!(seen().await.awareness, PresenceState::Offline);
}

#[tokio::test]
async fn foreign_and_huge_heartbeats_are_rejected() {
    let test = TestChannels::new(&[]).await;
    let run = json!({ "agent_id": "claude", "timestamp": "2026-01-11T16:30:00.000Z", "state": "AWAKE" });
    write_carelessly(&test.path("signals/presence/codex.json"), run.to_string());
    write_carelessly(&test.path("signals/presence/huge.json"), vec![b' '; 100_000]);
    write_carelessly(&test.path("signals/presence/claude.json"), run.to_string());
    let seen = test.channels.presence_entries().await.unwrap();
    assert_eq!(seen.iter().map(|seen| seen.agent.as_str()).collect::<Vec<_>>(), ["claude"]);
}

#[tokio::test]
async fn ended_process_is_offline_at_once() {
    let test = TestChannels::new(&[]).await;
    // A pid that no process has: the kernel's highest is 2^22.
    let owner = format!("{}/4194999/1", ProcessIdentity::this_process().host());
    let run = json!({ "agent_id": "codex", "timestamp": iso(test.channels.hub().now()), "state": "AWAKE", "owner": owner });
    write_carelessly(&test.path("signals/presence/codex.json"), run.to_string());
    assert_eq!(test.channels.presence_entries().await.unwrap()[0].awareness, PresenceState::Offline);
}

#[tokio::test]
async fn deprecated_heartbeat_belongs_to_current_agent() {
    let test = TestChannels::new(&[]).await;
    let now = test.channels.hub().now();
    let run = |at: Timestamp, state: &str| {
        json!({ "agent_id": "claude-1", "timestamp": iso(at), "state": state }).to_string()
    };
    write_carelessly(&test.path("signals/presence/claude-1.json"), run(now, "AWAKE"));
    let early = now - SignedDuration::from_mins(1);
    write_carelessly(&test.path("signals/presence/claude.json"), run(early, "OFFLINE"));
    let seen = test.channels.presence_entries().await.unwrap();
    assert_eq!(seen.iter().map(|seen| seen.agent.as_str()).collect::<Vec<_>>(), ["claude"]);
    assert_eq!(seen[0].awareness, PresenceState::Awake);
}

#[tokio::test]
async fn offline_is_written_by_last_watcher_only() {
    let test = TestChannels::new(&[]).await;
    let heartbeat_writer =
        HeartbeatWriter::new(test.channels.tree().clone(), name("codex"), "general".into());
    let run = |owner: &str| {
        let now = iso(test.channels.hub().now());
        json!({ "agent_id": "codex", "timestamp": now, "state": "AWAKE", "owner": owner }).to_string()
    };
    let gone = format!("{}/4194999/1", ProcessIdentity::this_process().host());
    for (owner, expected) in [("another-machine/7/1", PresenceState::Awake), (&gone, PresenceState::Offline)]
    {
        write_carelessly(&test.path("signals/presence/codex.json"), run(owner));
        heartbeat_writer.write_offline(test.channels.hub()).await;
        assert_eq!(test.channels.presence_entries().await.unwrap()[0].awareness, expected, "{owner}");
    }
}
