//! The hubs of the grid: two linked hubs of one owner, and the hub of another.

use serde_json::{Value, json};
use test_support::ca::{PrivateCa, Validity};
use test_support::nats::{NatsServer, Release};
use test_support::{Running, Sandbox, ports};

use super::party::WORKER;
use crate::BINARY;
use crate::nats::hub::Linked;
use crate::nats::server;

/// The channel of the lab.
pub(super) const CHANNEL: &str = "general";

/// Agents of the lab that are members of the swarm, and the agent that each forwards to.
const MEMBERS: [(&str, Option<&str>); 7] = [
    ("codex", None),
    ("claude", None),
    ("to-filer", Some("filer")),
    ("to-dana", Some("dana")),
    ("to-teller", Some("teller")),
    ("to-eve", Some("eve")),
    ("to-qc-1", Some("qc-1@office")),
];

/// All processes and workspaces.
pub(super) struct GridHubs {
    pub(super) lab: Linked,
    pub(super) office: Linked,
    pub(super) bob: Sandbox,
    /// The job of the lab's worker.
    pub(super) job: String,
    _bob_serves: Running,
    _nats: NatsServer,
    _ca: PrivateCa,
}

impl GridHubs {
    /// Starts all of it, or prints why it cannot.
    pub(super) fn start(test: &str) -> Option<Self> {
        let nats = server(test, Release::Newest, "")?;
        let ca = PrivateCa::new();
        ca.issue_files(&["127.0.0.1"], Validity::Valid);
        let (port, bobs) = (ports::free_port(), ports::free_port());
        let bob = Sandbox::with_agents(BINARY, &[]);
        bob.configure_user(&json!({ "swarm": swarm(&ca, bobs) }).to_string());
        bob.ok(["swarm", "init", "--agent", "bob", "--endpoint", &endpoint(bobs, "swarm")]);
        let bob_serves = bob.serve();

        let sandbox =
            Sandbox::with_agents(BINARY, &["codex", "claude", "filer", "bobs-desk", "bobs-answers"]);
        let mut forwards: serde_json::Map<String, Value> = MEMBERS
            .iter()
            .filter_map(|(member, end)| Some(((*member).to_owned(), Value::from((*end)?))))
            .collect();
        forwards.insert("bobs-desk".into(), "bob@research".into());
        forwards.insert("bobs-answers".into(), "bob@to-filer".into());
        let settings = json!({
            "nats": { "url": nats.url(), "hub": "lab", "presenceSeconds": 4 },
            "swarm": swarm(&ca, port),
            "links": { "forwards": forwards },
        });
        sandbox.configure_user(&settings.to_string());
        for (member, _) in MEMBERS {
            sandbox.ok(["swarm", "init", "--agent", member, "--endpoint", &endpoint(port, member)]);
        }
        let serve = Some(sandbox.serve());
        let lab = Linked { name: "lab", sandbox, serve };
        let office = Linked::start("office", &nats.url(), &["qc-1"], json!({}));

        // The other owner leads the swarm, and every agent that it writes to is a member.
        bob.ok(["swarm", "create", "Research"]);
        let link = bob.ok(["swarm", "invite"]);
        for (member, _) in MEMBERS {
            let realm = if member == "codex" { "research" } else { member };
            lab.sandbox.ok(["swarm", "join", &link, "--as", realm, "--agent", member]);
        }
        lab.sandbox.ok(["channel", "post", "--agent", "dana", "--channel", CHANNEL, "--text", "I am here"]);
        let job = worker(&lab);
        lab.wait_for("qc-1@office");
        for known in ["codex@lab", "claude@lab", "filer@lab", "dana@lab", "teller@lab", "bobs-desk@lab"] {
            office.wait_for(known);
        }
        Some(Self { lab, office, bob, job, _bob_serves: bob_serves, _nats: nats, _ca: ca })
    }
}

fn swarm(ca: &PrivateCa, port: u16) -> Value {
    let folder = ca.file().parent().unwrap().to_owned();
    json!({
        "listen": format!("127.0.0.1:{port}"), "cert": folder.join("cert.pem"), "key": folder.join("key.pem"),
        "ca": ca.file(), "allow": ["127.0.0.0/8"],
    })
}

fn endpoint(port: u16, path: &str) -> String {
    format!("https://127.0.0.1:{port}/{path}")
}

fn worker(hub: &Linked) -> String {
    let launch = ["worker", "launch", "--agent", "command", "--name", "teller"];
    let prompts = hub.sandbox.path().join("prompts");
    let (binary, prompts) = (format!("SWITCHBOARD={BINARY}"), format!("PROMPTS={}", prompts.display()));
    let program = ["--env", &binary, "--env", &prompts, "--", "sh", "-c", WORKER];
    let launched = hub.sandbox.ok(["--json"].into_iter().chain(launch).chain(program));
    let launched: Value = serde_json::from_str(&launched).unwrap();
    launched["job_id"].as_str().unwrap().to_owned()
}
