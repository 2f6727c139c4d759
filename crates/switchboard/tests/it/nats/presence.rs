//! Presence among linked hubs: changes arrive at once, and an unchanged agent costs no traffic.

use std::time::Duration;

use serde_json::json;
use switchboard_sys::clock::Clock;
use test_support::nats::Release;
use test_support::{files, poll};

use super::hub::Linked;
use super::{runtime, server};

#[test]
fn watcher_state_shows_at_once_over_the_oldest_server() {
    shows_at_once("watcher_state_shows_at_once_over_the_oldest_server", Release::Oldest);
}

#[test]
fn watcher_state_shows_at_once_over_the_newest_server() {
    shows_at_once("watcher_state_shows_at_once_over_the_newest_server", Release::Newest);
}

/// Heartbeats of hubs are five minutes apart, so only the change itself can show in time.
fn shows_at_once(test: &str, release: Release) {
    let Some(server) = server(test, release, "") else { return };
    let slow = json!({ "presenceSeconds": 1200 });
    let lab = Linked::start("lab", &server.url(), &["codex"], slow.clone());
    let mut office = Linked::start("office", &server.url(), &["qc-1"], slow);
    lab.wait_for("qc-1@office");
    let mut watcher =
        office.sandbox.start(["watch", "--agent", "qc-1", "--channel", "general", "--", "true"]);
    watcher.line();
    let is = |presence: &str| lab.presence("qc-1@office").as_deref() == Some(presence);
    // The docs promise one second. A busy machine gets three, well below the ten until the next poll of all heartbeat
    // files.
    let soon = |what: &str, presence: &str| {
        let shown = poll::within(Duration::from_secs(3), || is(presence).then_some(()));
        shown.unwrap_or_else(|| panic!("{what} does not show within three seconds; {}", office.errors()));
    };
    soon("the start of the watcher", "awake");
    watcher.kill();
    soon("the end of the killed watcher", "offline");
    let mut watcher =
        office.sandbox.start(["watch", "--agent", "qc-1", "--channel", "general", "--", "true"]);
    watcher.line();
    soon("the restart of the watcher", "awake");
    watcher.terminate();
    soon("the end of the watcher", "offline");

    // A killed hub announces itself at its start, and a stopping one says goodbye.
    let watcher = office.sandbox.start(["watch", "--agent", "qc-1", "--channel", "general", "--", "true"]);
    watcher.line();
    soon("the third start of the watcher", "awake");
    office.serve.as_mut().unwrap().terminate();
    poll::until("the end of the hub to show", || is("offline").then_some(()));
    office.serve = Some(office.sandbox.serve());
    poll::until(&format!("the hub to be back; {}", office.errors()), || is("awake").then_some(()));
}

#[test]
fn idle_agents_cost_no_presence_traffic() {
    const IDLE: usize = 200;
    let test = "idle_agents_cost_no_presence_traffic";
    let Some(server) = server(test, Release::Newest, "") else { return };
    let lab = Linked::start("lab", &server.url(), &["codex"], json!({}));
    let names: Vec<String> = (0..IDLE).map(|number| format!("idle-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let office = Linked::start("office", &server.url(), &names, json!({}));
    let beat = || {
        for name in &names {
            let now = Clock::system().now().to_string();
            let file = json!({ "agent_id": name, "timestamp": now, "state": "AWAKE", "substate": "IDLE" });
            let path = office.sandbox.file(&format!("signals/presence/{name}.json"));
            files::put_by_rename(path, file.to_string());
        }
    };
    beat();
    let awake = |hub: &Linked| {
        let who = hub.sandbox.json(["who"]);
        let is_awake = |known: &&serde_json::Value| {
            known["presence"] == "awake"
                && known["name"].as_str().is_some_and(|name| name.starts_with("idle-"))
        };
        who.iter().filter(is_awake).count()
    };
    poll::until(&format!("all to be awake over there; {}", office.errors()), || {
        (awake(&lab) == IDLE).then_some(())
    });
    let [agents, beats] = ["KV_switchboard_agents", "KV_switchboard_presence"].map(|stream| {
        let url = server.url();
        move || {
            runtime().block_on(async {
                let context = async_nats::jetstream::new(async_nats::connect(&url).await.unwrap());
                let info = context.get_stream(stream).await.unwrap();
                let state = info.cached_info().state.clone();
                (state.last_sequence, state.bytes)
            })
        }
    });
    let before = agents();
    // The agents do not change: their hub sees the heartbeats and relays none. Several heartbeats of hubs prove that.
    beat();
    let published = beats().0;
    poll::within(Duration::from_mins(2), || (beats().0 >= published + 8).then_some(()))
        .expect("heartbeats of hubs");
    assert_eq!(agents(), before, "{IDLE} idle agents were told of again");
    let bytes = beats().1;
    assert!(bytes < 2 * 512, "two hubs keep {bytes} bytes of heartbeats");
    assert_eq!(awake(&lab), IDLE);
}
