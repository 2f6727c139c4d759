//! From every door to every door, and back: one id, one history, one conversation.

use std::cell::RefCell;

use serde_json::{Value, json};
use test_support::mcp::Client;
use test_support::nats::Release;
use test_support::{Running, Sandbox, poll};

use crate::nats::hub::Linked;
use crate::nats::server;

/// What the worker does: sends where it is told to, says nothing to an answer, and answers everything else.
const WORKER: &str = r#"
read -r prompt
case "$prompt" in
  "SEND "*) set -- $prompt; to=$2; shift 2; exec "$SWITCHBOARD" --from teller send "$to" "$*" ;;
  "re: "*) ;;
  *) echo "re: $prompt" ;;
esac
"#;

/// Somebody behind a door, as a test moves it.
enum Party<'a> {
    /// A mailbox, by the command line.
    Mailbox { hub: &'a Linked, agent: &'static str },
    /// A session over MCP.
    Session { client: RefCell<Client> },
    /// Somebody who reads and writes a channel.
    Channel { hub: &'a Linked, agent: &'static str },
    /// A node of the router.
    Worker { hub: &'a Linked, job: String },
    /// Somebody at another hub.
    Elsewhere { hub: &'a Linked, agent: &'static str, address: &'static str, back: &'static str },
}

/// A message as its recipient sees it.
struct Got {
    id: String,
    from: String,
}

const CHANNEL: &str = "general";

impl Party<'_> {
    /// How others at the first hub write to it.
    fn address(&self) -> &str {
        match self {
            Self::Mailbox { agent, .. } | Self::Channel { agent, .. } => agent,
            Self::Session { .. } => "claude",
            Self::Worker { .. } => "teller",
            Self::Elsewhere { address, .. } => address,
        }
    }

    fn send(&self, to: &Party<'_>, text: &str) {
        match self {
            Self::Mailbox { hub, agent } => drop(hub.send(agent, &[to.address(), text])),
            Self::Session { client } => {
                let letter =
                    json!({ "recipient": to.address(), "action": "request_review", "payload": text });
                client.borrow_mut().ok("send_message", letter);
            }
            Self::Channel { hub, agent } => {
                let post = ["channel", "post", "--agent", agent, "--channel", CHANNEL, "--text", text];
                hub.sandbox.ok(post.into_iter().chain(["--to", to.address()]));
            }
            Self::Worker { hub, job } => {
                let prompt = format!("SEND {} {text}", to.address());
                hub.sandbox.ok(["worker", "inject", &format!("{job}/0"), &prompt, "--wait"]);
            }
            Self::Elsewhere { hub, agent, back, .. } => {
                let address = format!("{}{back}", to.address());
                hub.send(agent, &[&address, text]);
            }
        }
    }

    /// Waits for a message with this text.
    fn get(&self, text: &str) -> Got {
        // Each door has its own words for it.
        let of = |message: &Value| Got {
            id: message["id"].as_str().unwrap().to_owned(),
            from: ["from", "sender"].iter().find_map(|key| message[*key].as_str()).unwrap().to_owned(),
        };
        match self {
            Self::Mailbox { hub, agent } | Self::Elsewhere { hub, agent, .. } => {
                of(&hub.wait_for_mail(agent, text))
            }
            Self::Session { client } => poll::until(text, || {
                let said = client.borrow_mut().call("wait_for_message", json!({ "timeout": 20 }));
                let messages = said.data["messages"].as_array().cloned().unwrap_or_default();
                messages.iter().find(|message| message.to_string().contains(text)).map(of)
            }),
            Self::Channel { hub, .. } => poll::until(text, || {
                let posts = hub.sandbox.json(["channel", "read", "--channel", CHANNEL]);
                posts.iter().find(|post| post["content"]["text"] == text).map(of)
            }),
            // It shows nothing: what it got is in the history of its hub, delivered.
            Self::Worker { hub, .. } => poll::until(text, || {
                let found = hub.sandbox.json(["search", text]);
                let is_there = |message: &&Value| message["body"] == text && message["state"] != "queued";
                found.iter().find(is_there).map(of)
            }),
        }
    }

    /// Answers a message. A worker has done so already.
    fn answer(&self, got: &Got, text: &str) {
        match self {
            Self::Mailbox { hub, agent } | Self::Elsewhere { hub, agent, .. } => {
                hub.send(agent, &[&got.from, text, "--reply-to", &got.id]);
            }
            Self::Session { client } => {
                let letter = json!({
                    "recipient": got.from, "action": "submit_result", "payload": text, "replyTo": got.id,
                });
                client.borrow_mut().ok("send_message", letter);
            }
            Self::Channel { hub, agent } => {
                let post = ["channel", "post", "--agent", agent, "--channel", CHANNEL, "--text", text];
                hub.sandbox.ok(post.into_iter().chain(["--to", &got.from, "--in-reply-to", &got.id]));
            }
            Self::Worker { .. } => {}
        }
    }
}

fn session(sandbox: &Sandbox) -> Client {
    Client::stdio(Running::start_listening(&mut sandbox.command(["mcp"]))).registered("claude")
}

fn worker(hub: &Linked) -> String {
    let launch = ["worker", "launch", "--agent", "command", "--name", "teller"];
    let program = ["--env", &format!("SWITCHBOARD={}", crate::BINARY), "--", "sh", "-c", WORKER];
    let launched = hub.sandbox.ok(["--json"].into_iter().chain(launch).chain(program));
    let launched: Value = serde_json::from_str(&launched).unwrap();
    launched["job_id"].as_str().unwrap().to_owned()
}

#[test]
fn grid_every_door_to_every_door() {
    let Some(server) = server("grid_every_door_to_every_door", Release::Newest, "") else { return };
    let lab = Linked::start("lab", &server.url(), &["codex", "claude"], json!({}));
    let office = Linked::start("office", &server.url(), &["qc-1"], json!({}));
    lab.wait_for("qc-1@office");
    lab.sandbox.ok(["channel", "post", "--agent", "dana", "--channel", CHANNEL, "--text", "I am here"]);
    let parties = [
        ("mailbox", Party::Mailbox { hub: &lab, agent: "codex" }),
        ("session", Party::Session { client: RefCell::new(session(&lab.sandbox)) }),
        ("channel", Party::Channel { hub: &lab, agent: "dana" }),
        ("worker", Party::Worker { hub: &lab, job: worker(&lab) }),
        ("hub", Party::Elsewhere { hub: &office, agent: "qc-1", address: "qc-1@office", back: "@lab" }),
    ];
    for local in ["codex@lab", "claude@lab", "dana@lab", "teller@lab"] {
        office.wait_for(local);
    }
    for (from, sender) in &parties {
        for (to, recipient) in parties.iter().filter(|(name, _)| name != from) {
            let (text, answer) = (format!("from {from} to {to}"), format!("re: from {from} to {to}"));
            sender.send(recipient, &text);
            let got = recipient.get(&text);
            recipient.answer(&got, &answer);
            sender.get(&answer);
            // One conversation, whichever way its messages went.
            let first = poll::until(&text, || {
                let found = lab.sandbox.json(["search", &text]);
                found.into_iter().find(|message| message["body"] == text)
            });
            let id = first["id"].as_str().unwrap();
            let thread = poll::until("both in one conversation", || {
                let thread = lab.sandbox.json(["thread", id]);
                (thread.len() >= 2).then_some(thread)
            });
            let bodies: Vec<&str> = thread.iter().filter_map(|message| message["body"].as_str()).collect();
            assert_eq!(bodies, [&text, &answer], "{thread:?}");
            assert_eq!(thread[1]["in_reply_to"], thread[0]["id"], "{thread:?}");
        }
    }
}
