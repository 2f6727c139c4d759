//! Processes that run while the grid is measured, and the measurement of one message.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Map, Value, json};
use test_support::ca::{PrivateCa, Validity};
use test_support::mcp::Client;
use test_support::nats::{NatsServer, Release};
use test_support::{Running, Sandbox, poll, ports};

use super::door::{Source, Target};
use crate::run_folder::RunFolder;

const CHANNEL: &str = "general";

/// Timeout: longer than any operation that is not stuck.
const TOO_LONG: Duration = Duration::from_mins(1);

/// Agents of the hub that are members of the swarm, each with the agent to which it forwards its messages.
const MEMBERS: [(&str, Option<&str>); 5] = [
    ("codex", None),
    ("claude", None),
    ("to-dana", Some("dana")),
    ("to-parrot", Some("parrot")),
    ("to-qc-1", Some("qc-1@office")),
];

/// Processes of the benchmark. They end when this is dropped; the servers between them end last.
pub(super) struct Stage {
    /// Waiting sessions, one per hub.
    waiting: Waiting,
    sending: Sending,
    events: Running,
    /// Files of the mailbox and the channel that were already read.
    read: HashSet<PathBuf>,
    _serves: [Running; 3],
    lab: Sandbox,
    _others: [Sandbox; 2],
    _nats: NatsServer,
    _ca: PrivateCa,
}

struct Waiting {
    claude: Client,
    qc: Client,
    bob: Client,
}

struct Sending {
    lab: Client,
    office: Client,
    peer: Client,
}

impl Stage {
    pub(super) fn build(place: &RunFolder, binary: &Path) -> anyhow::Result<Self> {
        let nats = NatsServer::start(Release::Newest, "").map_err(anyhow::Error::msg)?;
        let ca = PrivateCa::new();
        ca.issue_files(&["127.0.0.1"], Validity::Valid);
        let (port, bobs) = (ports::free_port(), ports::free_port());
        let peer = sandbox(place, binary, &["sender"]);
        peer.configure_user(&json!({ "swarm": swarm(&ca, bobs), "hub": quiet() }).to_string());
        peer.ok(["swarm", "init", "--agent", "bob", "--endpoint", &endpoint(bobs, "swarm")]);

        let lab = sandbox(place, binary, &["codex", "claude", "sender", "bobs-desk"]);
        let forwards =
            MEMBERS.iter().filter_map(|(member, end)| Some(((*member).to_owned(), Value::from((*end)?))));
        let mut forwards: Map<String, Value> = forwards.collect();
        forwards.insert("bobs-desk".to_owned(), "bob@research".into());
        let settings = json!({
            "nats": { "url": nats.url(), "hub": "lab" }, "swarm": swarm(&ca, port), "hub": quiet(),
            "links": { "forwards": forwards },
        });
        lab.configure_user(&settings.to_string());
        for (member, _) in MEMBERS {
            lab.ok(["swarm", "init", "--agent", member, "--endpoint", &endpoint(port, member)]);
        }
        let office = sandbox(place, binary, &["qc-1", "sender"]);
        let settings = json!({ "nats": { "url": nats.url(), "hub": "office" }, "hub": quiet() });
        office.configure_user(&settings.to_string());
        let serves = [lab.serve(), office.serve(), peer.serve()];

        peer.ok(["swarm", "create", "Research"]);
        let link = peer.ok(["swarm", "invite"]);
        for (member, _) in MEMBERS {
            let realm = if member == "codex" { "research" } else { member };
            lab.ok(["swarm", "join", &link, "--as", realm, "--agent", member]);
        }
        lab.ok(["channel", "post", "--agent", "dana", "--channel", CHANNEL, "--text", "I am here"]);
        let launched = lab.ok(["--json", "worker", "launch", "--agent", "echo", "--name", "parrot"]);
        let launched: Value = serde_json::from_str(&launched)?;
        let job = launched["job_id"].as_str().context("a job without an id")?;
        let events = lab.start(["--json", "worker", "attach", job]);
        wait_for(&lab, "qc-1@office");
        for agent in ["codex@lab", "dana@lab", "parrot@lab", "bobs-desk@lab"] {
            wait_for(&office, agent);
        }
        let waiting = Waiting {
            claude: session(&lab, "claude"),
            qc: session(&office, "qc-1"),
            bob: session(&peer, "bob"),
        };
        let sending = Sending {
            lab: session(&lab, "sender"),
            office: session(&office, "sender"),
            peer: session(&peer, "sender"),
        };
        Ok(Self {
            waiting,
            sending,
            events,
            read: HashSet::new(),
            _serves: serves,
            _others: [office, peer],
            lab,
            _nats: nats,
            _ca: ca,
        })
    }

    /// Sends a message and waits until it has reached its reader.
    pub(super) fn measure(&mut self, from: Source, into: Target, text: &str) -> anyhow::Result<Duration> {
        let waiting = match into {
            Target::Session => Some(&mut self.waiting.claude),
            Target::Hub => Some(&mut self.waiting.qc),
            Target::Swarm => Some(&mut self.waiting.bob),
            Target::Mailbox | Target::Channel | Target::Worker => None,
        };
        let call = waiting.map(wait);
        let (to, began) = (into.address(from), Instant::now());
        match from {
            Source::CommandLine => drop(self.lab.ok(["--from", "sender", "send", &to, text])),
            Source::Channel => {
                let post =
                    ["channel", "post", "--agent", "dana", "--channel", CHANNEL, "--to", &to, "--text", text];
                self.lab.ok(post);
            }
            Source::Session => send(&mut self.sending.lab, &to, text),
            Source::Hub => send(&mut self.sending.office, &to, text),
            Source::Swarm => send(&mut self.sending.peer, &to, text),
        }
        match (into, call) {
            (Target::Mailbox, _) => self.arrives(&self.lab.file("inbox/codex"), text)?,
            (Target::Channel, _) => self.arrives(&self.lab.file(&format!("channels/{CHANNEL}")), text)?,
            (Target::Worker, _) => self.await_worker()?,
            (Target::Session, Some(call)) => shows(&mut self.waiting.claude, call, text)?,
            (Target::Hub, Some(call)) => shows(&mut self.waiting.qc, call, text)?,
            (Target::Swarm, Some(call)) => shows(&mut self.waiting.bob, call, text)?,
            (Target::Session | Target::Hub | Target::Swarm, None) => {}
        }
        let taken = began.elapsed();
        // The remaining events of this message are drained before the next measurement.
        while self.events.line_within(Duration::ZERO).is_some() {}
        Ok(taken)
    }

    /// Waits for a file with this text. Reads each file only once.
    fn arrives(&mut self, folder: &Path, text: &str) -> anyhow::Result<()> {
        let began = Instant::now();
        while began.elapsed() < TOO_LONG {
            for file in std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
                let path = file.path();
                if path.extension().is_none_or(|extension| extension != "json") || self.read.contains(&path) {
                    continue;
                }
                let has_it = std::fs::read_to_string(&path).is_ok_and(|file| file.contains(text));
                self.read.insert(path);
                if has_it {
                    return Ok(());
                }
            }
        }
        anyhow::bail!("'{text}' did not come into {}", folder.display())
    }

    /// Waits until the worker has received a message.
    fn await_worker(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        while began.elapsed() < TOO_LONG {
            if self.events.line().contains("\"inject_delivered\"") {
                return Ok(());
            }
        }
        anyhow::bail!("the worker was given nothing")
    }
}

fn sandbox(place: &RunFolder, binary: &Path, agents: &[&str]) -> Sandbox {
    let sandbox = Sandbox::in_folder(binary, place.path());
    sandbox.ok([&["init"], agents].concat());
    sandbox
}

/// Returns settings that disable notices about unread messages and lift the reply limit.
///
/// Some messages of the benchmark are never read.
fn quiet() -> Value {
    json!({ "unseenSeconds": 0, "repliesPerMinute": 1_000_000 })
}

fn swarm(ca: &PrivateCa, port: u16) -> Value {
    let folder = ca.file().parent().map(Path::to_owned).unwrap_or_default();
    json!({
        "listen": format!("127.0.0.1:{port}"), "cert": folder.join("cert.pem"), "key": folder.join("key.pem"),
        "ca": ca.file(), "allow": ["127.0.0.0/8"], "limits": { "perSender": 0, "perSwarm": 0, "perClient": 0 },
    })
}

fn endpoint(port: u16, path: &str) -> String {
    format!("https://127.0.0.1:{port}/{path}")
}

fn session(sandbox: &Sandbox, agent: &str) -> Client {
    Client::stdio(Running::start_with_stdin(&mut sandbox.command(["mcp"]))).registered(agent)
}

fn send(client: &mut Client, to: &str, text: &str) {
    client.ok("send_message", json!({ "recipient": to, "action": "status_update", "payload": text }));
}

/// Calls the tool with which a session waits for messages; returns the request id.
fn wait(client: &mut Client) -> i64 {
    client.start_request("tools/call", json!({ "name": "wait_for_message", "arguments": {} }))
}

/// Waits until a session receives this text.
///
/// Members of a swarm also get notices of new members, which may come first.
fn shows(client: &mut Client, mut call: i64, text: &str) -> anyhow::Result<()> {
    let began = Instant::now();
    while began.elapsed() < TOO_LONG {
        if client.tool_result(call).text.contains(text) {
            return Ok(());
        }
        call = wait(client);
    }
    anyhow::bail!("'{text}' was not shown")
}

fn wait_for(sandbox: &Sandbox, agent: &str) {
    poll::until(&format!("to hear of {agent}"), || {
        sandbox.json(["agents"]).iter().any(|known| known["name"] == agent).then_some(())
    });
}
