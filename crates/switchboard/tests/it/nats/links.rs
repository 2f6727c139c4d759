//! Mail that is forwarded to an agent of another hub.

use serde_json::json;
use test_support::nats::Release;

use super::hub::Linked;
use super::server;

#[test]
fn mail_is_forwarded_between_hubs_and_answered() {
    let test = "mail_is_forwarded_between_hubs_and_answered";
    let Some(server) = server(test, Release::Newest, "") else { return };
    let office = Linked::start("office", &server.url(), &["qc-1"], json!({}));
    let mut lab = Linked::start("lab", &server.url(), &["codex"], json!({}));
    let settings = json!({
        "nats": { "url": server.url(), "hub": "lab", "presenceSeconds": 4 },
        "links": { "forwards": { "reviewer": "qc-1@office" } },
    });
    lab.sandbox.configure_user(&settings.to_string());
    lab.kill_and_restart();
    lab.wait_for("qc-1@office");
    let reason = lab.sandbox.ok(["route", "reviewer"]);
    assert!(reason.contains("qc-1@office  gets the mail of that one by a link"), "{reason}");
    assert!(reason.contains("→ hub:office"), "{reason}");
    let sent = lab.send("codex", &["reviewer", "please look"]);
    assert_eq!(sent["to"], "reviewer");
    let mail = office.wait_for_mail("qc-1", "please look");
    lab.wait_for_state(sent["native_id"].as_str().unwrap(), "qc-1@office", "delivered");
    office.send("qc-1", &["codex@lab", "looks good", "--reply-to", mail["id"].as_str().unwrap()]);
    assert_eq!(lab.wait_for_mail("codex", "looks good")["in_reply_to"], sent["id"]);
    assert_eq!(office.sandbox.json(["inbox", "qc-1"]).len(), 1, "once");
}
