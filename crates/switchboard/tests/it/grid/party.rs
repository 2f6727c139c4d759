//! A participant behind a door, driven by a test.

use std::cell::{Cell, RefCell};

use serde_json::{Value, json};
use test_support::mcp::Client;
use test_support::{Running, Sandbox, files, poll};

use super::hubs::{CHANNEL, GridHubs};
use crate::nats::hub::Linked;

/// Script of the worker: sends on instruction, does not reply to an answer, and answers everything else. Text of
/// another agent is quoted below a header, and framed if another owner wrote it.
pub(super) const WORKER: &str = r#"
read -r prompt
case "$prompt" in
  "Message from "*)
    head=$prompt; mark=; read -r prompt
    case "$prompt" in "<untrusted-"*) mark=$prompt; read -r prompt ;; esac
    prompt=${prompt#"> "}
    echo "$head $mark $prompt" >> "$PROMPTS" ;;
esac
case "$prompt" in
  "SEND "*) set -- $prompt; to=$2; shift 2; exec "$SWITCHBOARD" send "$to" "$*" ;;
  "re: "*) ;;
  *) echo "re: $prompt" ;;
esac
"#;

/// A participant.
pub(super) enum Party<'a> {
    /// A mailbox, used by the command line.
    Mailbox { hub: &'a Linked, agent: &'static str },
    /// A program that knows only mailbox folders: it reads its own and drops files into those of others.
    Files { hub: &'a Linked, agent: &'static str, dropped: Cell<u32> },
    /// A session over MCP.
    Session { client: RefCell<Client> },
    /// An agent that reads and writes a channel.
    Channel { hub: &'a Linked, agent: &'static str },
    /// A node of the router.
    Worker { hub: &'a Linked, job: &'a str },
    /// An agent at another hub of the same owner.
    Elsewhere { hub: &'a Linked, agent: &'static str },
    /// An agent of another owner.
    Peer { sandbox: &'a Sandbox, agent: &'static str },
}

/// A message as its recipient sees it.
pub(super) struct Got {
    id: String,
    from: String,
}

impl<'a> Party<'a> {
    /// Returns one participant behind each door.
    pub(super) fn all(places: &'a GridHubs) -> [Self; 7] {
        let (lab, office) = (&places.lab, &places.office);
        let mcp = Running::start_with_stdin(&mut lab.sandbox.session(["mcp"]));
        [
            Self::Mailbox { hub: lab, agent: "codex" },
            Self::Files { hub: lab, agent: "filer", dropped: Cell::new(0) },
            Self::Session { client: RefCell::new(Client::stdio(mcp).registered("claude")) },
            Self::Channel { hub: lab, agent: "dana" },
            Self::Worker { hub: lab, job: &places.job },
            Self::Elsewhere { hub: office, agent: "qc-1" },
            Self::Peer { sandbox: &places.bob, agent: "bob" },
        ]
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Mailbox { .. } => "mailbox",
            Self::Files { .. } => "files",
            Self::Session { .. } => "session",
            Self::Channel { .. } => "channel",
            Self::Worker { .. } => "worker",
            Self::Elsewhere { .. } => "hub",
            Self::Peer { .. } => "swarm",
        }
    }

    /// Returns the door by which its messages enter the lab. A worker uses the command line.
    pub(super) fn sends_by(&self) -> &'static str {
        match self {
            Self::Mailbox { .. } | Self::Files { .. } | Self::Session { .. } | Self::Worker { .. } => {
                "workspace"
            }
            Self::Channel { .. } => "channels",
            Self::Elsewhere { .. } => "nats",
            Self::Peer { .. } => "swarm",
        }
    }

    /// Returns the door by which its answers enter the lab.
    pub(super) fn answers_by(&self) -> &'static str {
        if let Self::Worker { .. } = self { "workers" } else { self.sends_by() }
    }

    /// True if its sender is verified, which is not so for a dropped file.
    pub(super) fn is_verified(&self) -> bool {
        !matches!(self, Self::Files { .. })
    }

    /// Returns its session, if it has one.
    pub(super) fn session(&self) -> Option<&RefCell<Client>> {
        match self {
            Self::Session { client } => Some(client),
            _ => None,
        }
    }

    /// Returns its name at the lab.
    fn agent(&self) -> &'static str {
        match self {
            Self::Mailbox { agent, .. } | Self::Files { agent, .. } | Self::Channel { agent, .. } => agent,
            Self::Session { .. } => "claude",
            Self::Worker { .. } => "teller",
            Self::Elsewhere { .. } => "qc-1@office",
            Self::Peer { .. } => "bob@research",
        }
    }

    /// Returns the address by which another participant writes to it.
    fn address(&self, writer: &Party<'_>) -> String {
        match (writer, self) {
            // A hub without a swarm writes through a hub that is in one.
            (Party::Elsewhere { .. }, Self::Peer { .. }) => "bobs-desk@lab".to_owned(),
            (Party::Elsewhere { .. }, _) => format!("{}@lab", self.agent()),
            (Party::Peer { .. }, Self::Mailbox { .. } | Self::Session { .. }) => {
                format!("{}@research", self.agent())
            }
            (Party::Peer { .. }, Self::Elsewhere { agent, .. }) => format!("to-{agent}@research"),
            (Party::Peer { .. }, _) => format!("to-{}@research", self.agent()),
            _ => self.agent().to_owned(),
        }
    }

    pub(super) fn send(&self, to: &Party<'_>, text: &str) {
        let to = to.address(self);
        match self {
            Self::Mailbox { hub, agent } | Self::Elsewhere { hub, agent } => {
                hub.send(agent, &[&to, text]);
            }
            Self::Files { .. } => self.drop_file(&to, text, None),
            Self::Session { client } => {
                let arguments = json!({ "recipient": to, "action": "request_review", "payload": text });
                client.borrow_mut().ok("send_message", arguments);
            }
            Self::Channel { hub, agent } => {
                let post = ["channel", "post", "--agent", agent, "--channel", CHANNEL, "--text", text];
                hub.sandbox.ok(post.into_iter().chain(["--to", &to]));
            }
            Self::Worker { hub, job } => {
                let prompt = format!("SEND {to} {text}");
                hub.sandbox.ok(["worker", "inject", &format!("{job}/0"), &prompt, "--wait"]);
            }
            Self::Peer { sandbox, agent } => drop(sandbox.ok(["--from", agent, "send", &to, text])),
        }
    }

    /// Waits for a message with this text.
    pub(super) fn get(&self, text: &str) -> Got {
        // Each door names the fields differently.
        let of = |message: &Value| Got {
            id: message["id"].as_str().unwrap().to_owned(),
            from: ["from", "sender"].iter().find_map(|key| message[*key].as_str()).unwrap().to_owned(),
        };
        match self {
            Self::Mailbox { hub, agent } | Self::Elsewhere { hub, agent } => {
                of(&hub.wait_for_mail(agent, text))
            }
            Self::Peer { sandbox, agent } => poll::until(text, || {
                let mail = sandbox.json(["inbox", agent, "--limit", "1000"]);
                mail.iter().find(|message| message["body"] == text).map(of)
            }),
            Self::Files { hub, agent, .. } => poll::until(text, || {
                let mailbox =
                    std::fs::read_dir(hub.sandbox.file(&format!("inbox/{agent}"))).into_iter().flatten();
                let files = mailbox.filter_map(|entry| files::read_json_object(&entry.unwrap().path()));
                files.into_iter().find(|file| file["payload"] == text).as_ref().map(of)
            }),
            Self::Session { client } => poll::until(text, || {
                let answer = client.borrow_mut().call("wait_for_message", json!({ "timeout": 60 }));
                let messages = answer.data["messages"].as_array().cloned().unwrap_or_default();
                messages.iter().find(|message| message.to_string().contains(text)).map(of)
            }),
            Self::Channel { hub, .. } => poll::until(text, || {
                let posts = hub.sandbox.json(["channel", "read", "--channel", CHANNEL]);
                posts.iter().find(|post| post["content"]["text"] == text).map(of)
            }),
            // A worker shows nothing: its message is in the history of its hub as delivered.
            Self::Worker { hub, .. } => poll::until(text, || {
                let found = hub.sandbox.json(["search", text]);
                let is_there = |message: &&Value| message["body"] == text && message["state"] != "queued";
                found.iter().find(is_there).map(of)
            }),
        }
    }

    /// Answers a message. A worker has done so already.
    pub(super) fn answer(&self, got: &Got, text: &str) {
        match self {
            Self::Mailbox { hub, agent } | Self::Elsewhere { hub, agent } => {
                hub.send(agent, &[&got.from, text, "--reply-to", &got.id]);
            }
            Self::Peer { sandbox, agent } => {
                sandbox.ok(["--from", agent, "send", &got.from, text, "--reply-to", &got.id]);
            }
            Self::Files { .. } => self.drop_file(&got.from, text, Some(&got.id)),
            Self::Session { client } => {
                let arguments = json!({
                    "recipient": got.from, "action": "submit_result", "payload": text, "replyTo": got.id,
                });
                client.borrow_mut().ok("send_message", arguments);
            }
            Self::Channel { hub, agent } => {
                let post = ["channel", "post", "--agent", agent, "--channel", CHANNEL, "--text", text];
                hub.sandbox.ok(post.into_iter().chain(["--to", &got.from, "--reply-to", &got.id]));
            }
            Self::Worker { .. } => {}
        }
    }

    /// Drops a file into the mailbox of another agent, or of an alias that forwards to it.
    fn drop_file(&self, to: &str, text: &str, reply_to: Option<&str>) {
        let Self::Files { hub, agent, dropped } = self else { return };
        let folder = match to {
            "bob@research" => "bobs-desk",
            // The name by which he wrote: a file names no other realm than that of its folder.
            "bob@to-filer" => "bobs-answers",
            "qc-1@office" => "to-qc-1",
            local => local,
        };
        dropped.set(dropped.get() + 1);
        let id = format!("msg_1763000000000_filer{}", dropped.get());
        let mut file = json!({
            "id": id, "action": "request_review", "sender": agent, "recipient": folder, "payload": text,
        });
        if let Some(parent) = reply_to {
            file["replyTo"] = parent.into();
        }
        let path = hub.sandbox.file(&format!("inbox/{folder}/{id}.json"));
        files::put_by_rename(&path, file.to_string());
    }
}
