//! Message, reply, broadcast, team, channel and presence between two hubs, on the oldest and the newest server.

use serde_json::json;
use test_support::nats::Release;
use test_support::poll;

use super::hub::Linked;
use super::interest::wait_for_reader;
use super::server;

#[test]
fn two_hubs_over_the_oldest_server() {
    two_hubs("two_hubs_over_the_oldest_server", Release::Oldest);
}

#[test]
fn two_hubs_over_the_newest_server() {
    two_hubs("two_hubs_over_the_newest_server", Release::Newest);
}

fn two_hubs(test: &str, release: Release) {
    let Some(server) = server(test, release, "") else { return };
    let lab = Linked::start("lab", &server.url(), &["codex", "claude"], json!({}));
    let office = Linked::start("office", &server.url(), &["qc-1", "codex"], json!({}));
    lab.wait_for("qc-1@office");
    office.wait_for("codex@lab");

    // A message to a name that this hub does not have, and the answer.
    let sent = lab.send("codex", &["qc-1", "please look"]);
    assert_eq!(sent["to"], "qc-1@office");
    let id = sent["native_id"].as_str().unwrap();
    let mail = office.wait_for_mail("qc-1", "please look");
    assert_eq!((mail["from"].as_str(), mail["door"].as_str()), (Some("codex@lab"), Some("nats")));
    lab.wait_for_state(id, "qc-1@office", "delivered");
    office.send("qc-1", &["codex@lab", "looks good", "--reply-to", mail["id"].as_str().unwrap()]);
    let answer = lab.wait_for_mail("codex", "looks good");
    assert_eq!((&answer["from"], &answer["in_reply_to"]), (&json!("qc-1@office"), &sent["id"]));
    for hub in [&lab, &office] {
        let thread = hub.sandbox.json(["thread", sent["id"].as_str().unwrap()]);
        let bodies: Vec<_> = thread.iter().map(|message| message["body"].as_str().unwrap()).collect();
        assert_eq!(bodies, ["please look", "looks good"], "{}", hub.name);
    }

    // Names that both hubs have; the people; everyone.
    lab.send("claude", &["codex@office", "to your codex"]);
    office.wait_for_mail("codex", "to your codex");
    office.send("qc-1", &["human@lab", "a question"]);
    assert_eq!(lab.wait_for_mail("human", "a question")["from"], "qc-1@office");
    let all = lab.send("codex", &["all", "to everyone"]);
    for agent in ["qc-1", "codex", "human"] {
        office.wait_for_mail(agent, "to everyone");
    }
    lab.wait_for_state(all["native_id"].as_str().unwrap(), "qc-1@office", "delivered");

    // A team across hubs.
    office.sandbox.ok(["team", "create", "backend"]);
    office.sandbox.ok(["team", "add", "backend", "qc-1"]);
    poll::until("lab to know the team", || {
        lab.sandbox
            .json(["agents"])
            .iter()
            .any(|a| a["name"] == "qc-1@office" && a["team"] == "backend")
            .then_some(())
    });
    lab.send("codex", &["team:backend", "to the team"]);
    office.wait_for_mail("qc-1", "to the team");

    // A channel that both read.
    for (hub, agent) in [(&lab, "codex"), (&office, "qc-1")] {
        hub.sandbox.ok(["channel", "post", "--agent", agent, "--channel", "general", "--text", "I am here"]);
    }
    wait_for_reader(&lab, "qc-1@office", "general");
    lab.sandbox.ok(["channel", "post", "--agent", "codex", "--channel", "general", "--text", "shall we?"]);
    poll::until("the post to be in the other channel", || {
        let posts = office.sandbox.json(["channel", "read", "--channel", "general"]);
        posts.iter().any(|post| post.to_string().contains("shall we?")).then_some(())
    });

    // Presence, and its end.
    let watch = ["watch", "--agent", "qc-1", "--channel", "general", "--", "true"];
    let _watcher = office.sandbox.start(watch);
    poll::until("qc-1 to be awake there", || {
        (lab.presence("qc-1@office").as_deref() == Some("awake")).then_some(())
    });
    let mut office = office;
    office.serve.take().unwrap().kill();
    poll::until("qc-1 to be offline, because its hub is silent", || {
        (lab.presence("qc-1@office").as_deref() == Some("offline")).then_some(())
    });
    let waiting = lab.send("codex", &["qc-1", "for later"]);
    lab.wait_for_state(waiting["native_id"].as_str().unwrap(), "qc-1@office", "in_flight");
    office.serve = Some(office.sandbox.serve());
    office.wait_for_mail("qc-1", "for later");
    lab.wait_for_state(waiting["native_id"].as_str().unwrap(), "qc-1@office", "delivered");
}
