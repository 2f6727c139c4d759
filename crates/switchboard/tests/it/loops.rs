//! Agents that answer each other stop within the limits, over any doors; sender, recipient and person are notified, and
//! the person can resume them.

use serde_json::{Value, json};
use test_support::ca::{PrivateCa, Validity};
use test_support::{Running, Sandbox, poll, ports};

use crate::BINARY;

/// Longest chain of replies between agents, by default.
const HOPS: usize = 8;

/// Starts a watcher of `general` that answers everything with the same text.
fn watch(sandbox: &Sandbox, agent: &str, answer: &str) -> Running {
    let program = format!("cat > /dev/null; echo '{answer}'");
    let watch =
        sandbox.start(["watch", "--agent", agent, "--channel", "general", "--", "sh", "-c", &program]);
    watch.line();
    watch
}

/// Waits until a message is stopped that is not in `before`; returns all stopped ones.
fn wait_for_stop(sandbox: &Sandbox, before: &[Value]) -> Vec<Value> {
    poll::until("something to be stopped", || {
        let stopped = sandbox.json(["resume"]);
        let is_new = |stop: &Value| !before.iter().any(|known| known["id"] == stop["id"]);
        stopped.iter().any(is_new).then_some(stopped)
    })
}

/// Returns the messages of agents, without those of the hub itself and of the person.
fn of_agents(sandbox: &Sandbox) -> Vec<Value> {
    let all = sandbox.json(["tail", "-n", "1000"]);
    all.into_iter().filter(|message| message["from"] != "switchboard" && message["from"] != "human").collect()
}

/// Checks that agents are quiet: a message to another watcher is answered, and nothing else has arrived.
fn is_quiet(sandbox: &Sandbox, count: usize) {
    let marker = watch(sandbox, "marker", "marked");
    let output = sandbox.json(["send", "marker", "are they quiet?"]);
    let id = output[0]["id"].as_str().unwrap();
    poll::until("the marker to answer", || (sandbox.json(["thread", id]).len() == 2).then_some(()));
    drop(marker);
    let now = of_agents(sandbox);
    let others = now.iter().filter(|message| message["from"] != "marker").count();
    assert_eq!(others, count, "{now:#?}");
}

#[test]
fn mutual_mentions_of_watchers_stop() {
    let sandbox = Sandbox::with_agents(BINARY, &["codex"]);
    let _serve = sandbox.serve();
    let watchers = [
        watch(&sandbox, "qc-1", "@qc-2 what do you think?"),
        watch(&sandbox, "qc-2", "@qc-1 what do you think?"),
    ];
    sandbox.ok(["channel", "post", "--agent", "codex", "--channel", "general", "--text", "@qc-1 begin"]);
    let stopped = wait_for_stop(&sandbox, &[]);
    // The first message, its chain of answers, and the stopped one.
    let count = of_agents(&sandbox).len();
    assert!(count <= HOPS + 2, "{count}: {stopped:?}");
    is_quiet(&sandbox, count);
    // The person gets one notice, and the stopped agent gets one where it reads.
    let writer = stopped[0]["from"].as_str().unwrap().to_owned();
    let inbox = sandbox.json(["inbox"]);
    let notices: Vec<&Value> = inbox.iter().filter(|message| message["from"] == "switchboard").collect();
    assert_eq!(notices.len(), 1, "{inbox:?}");
    assert!(notices[0]["body"].as_str().unwrap().contains("switchboard resume"), "{notices:?}");
    let posts = sandbox.json(["channel", "read", "--channel", "general", "--all"]);
    let word = |post: &&Value| post["from"] == "switchboard" && post["to"] == writer.as_str();
    assert_eq!(posts.iter().filter(word).count(), 1, "{posts:#?}");
    // The person resumes the loop, and it stops at the limit a second time.
    sandbox.ok(["resume", "--all", "--yes"]);
    wait_for_stop(&sandbox, &stopped);
    let more = of_agents(&sandbox).iter().filter(|message| message["from"] != "marker").count();
    assert!(more > count && more <= count + HOPS + 2, "{count} and then {more}");
    drop(watchers);
}

/// A mailbox forwarded to a worker, the worker, and a watcher in a channel form the loop.
#[test]
fn loop_over_three_doors_stops() {
    let sandbox = Sandbox::with_agents(BINARY, &["claude"]);
    sandbox.configure_user(&json!({ "links": { "forwards": { "claude": "parrot" } } }).to_string());
    let _serve = sandbox.serve();
    sandbox.ok(["worker", "launch", "--agent", "echo", "--name", "parrot"]);
    let watcher = watch(&sandbox, "qc-1", "and you?");
    sandbox.run_as("claude", ["send", "qc-1", "begin"]).ok();
    let stopped = wait_for_stop(&sandbox, &[]);
    let messages = of_agents(&sandbox);
    assert!(messages.len() <= HOPS + 2, "{messages:#?}");
    let doors = |door: &str| messages.iter().filter(|message| message["door"] == door).count();
    assert!(doors("workspace") == 1 && doors("channels") > 1 && doors("workers") > 1, "{messages:#?}");
    is_quiet(&sandbox, messages.len());
    let inbox = sandbox.ok(["inbox"]);
    assert!(inbox.contains("Stopped a message from") && inbox.contains("switchboard resume"), "{inbox}");
    sandbox.ok(["resume", "--all", "--yes"]);
    wait_for_stop(&sandbox, &stopped);
    drop(watcher);
}

/// Both sides join their channels to a swarm, and both forward mail to each other.
#[test]
fn bridge_loop_stops_at_first_repeat() {
    let ca = PrivateCa::new();
    ca.issue_files(&["127.0.0.1"], Validity::Valid);
    let (mut alice, mut bob) = (Owner::new(&ca, "alice"), Owner::new(&ca, "bob"));
    alice.sandbox.ok(["swarm", "create", "Research"]);
    let link = alice.sandbox.ok(["swarm", "invite"]);
    bob.sandbox.ok(["swarm", "join", &link]);
    for (owner, peer) in [(&alice, "bob@research"), (&bob, "alice@research")] {
        poll::until("the other one to be known", || {
            owner.sandbox.json(["agents"]).iter().any(|agent| agent["name"] == peer).then_some(())
        });
        owner.sandbox.ok([
            "channel",
            "post",
            "--agent",
            "dana",
            "--channel",
            "general",
            "--text",
            "here I am",
        ]);
    }
    // A post is relayed to the other side once, and does not come back.
    let text = "said in the channel";
    alice.sandbox.ok(["channel", "post", "--agent", "dana", "--channel", "general", "--text", text]);
    let times = |owner: &Owner| {
        owner.sandbox.json(["tail", "-n", "1000"]).iter().filter(|message| message["body"] == text).count()
    };
    poll::until("the post to reach the other side", || (times(&bob) > 0).then_some(()));
    // Mail for each agent is forwarded to the other one: a returning copy is rejected.
    alice.send_on("alice", "bob@research");
    bob.send_on("bob", "alice@research");
    for text in ["round and round", "and round again"] {
        let sent = alice.sandbox.json(["--from", "codex", "send", "alice", text]);
        let id = sent[0]["id"].as_str().unwrap();
        let receipt = poll::until("an end", || {
            let receipt = alice.sandbox.json(["receipt", id]).remove(0);
            let is_over = |delivery: &Value| delivery["state"] == "refused";
            receipt["deliveries"].as_array().unwrap().iter().all(is_over).then_some(receipt)
        });
        let note = receipt["deliveries"][0]["note"].as_str().unwrap();
        assert!(note.contains("the only route") && note.contains("came by"), "{receipt}");
        let rounds = alice.sandbox.json(["search", text]);
        assert_eq!(rounds.iter().filter(|message| message["from"] != "switchboard").count(), 1, "{rounds:?}");
    }
    // The sender has receipts. The person gets one notice that names what to check.
    let inbox = alice.sandbox.json(["inbox"]);
    let notices: Vec<&Value> = inbox.iter().filter(|message| message["from"] == "switchboard").collect();
    assert_eq!(notices.len(), 1, "{inbox:?}");
    let body = notices[0]["body"].as_str().unwrap();
    assert!(body.contains("forwarded to bob@research") && body.contains("switchboard route alice"), "{body}");
    assert_eq!((times(&alice), times(&bob)), (1, 1));
}

/// Two linked hubs of one owner each have a channel that the same swarm reads. A post crosses both bridges and reaches
/// every reader once.
#[test]
fn post_over_both_bridges_arrives_once() {
    let test = "post_over_both_bridges_arrives_once";
    let Some(nats) = crate::nats::server(test, test_support::nats::Release::Newest, "") else { return };
    let ca = PrivateCa::new();
    ca.issue_files(&["127.0.0.1"], Validity::Valid);
    let linked = |hub: &str| json!({ "url": nats.url(), "hub": hub, "presenceSeconds": 4 });
    let bob = Owner::new(&ca, "bob");
    let lab = Owner::linked(&ca, "alice", linked("lab"));
    let office = Owner::linked(&ca, "olga", linked("office"));
    bob.sandbox.ok(["swarm", "create", "Research"]);
    let link = bob.sandbox.ok(["swarm", "invite"]);
    let owners = [(&bob, "bob"), (&lab, "alice"), (&office, "olga")];
    for (owner, agent) in owners {
        if agent != "bob" {
            owner.sandbox.ok(["swarm", "join", &link]);
        }
        let here = ["channel", "post", "--agent", agent, "--channel", "general", "--text", "here I am"];
        owner.sandbox.ok(here);
    }
    for (owner, known) in [
        (&bob, "olga@research"),
        (&lab, "olga@research"),
        (&lab, "olga@office"),
        (&office, "bob@research"),
        (&office, "alice@lab"),
    ] {
        let is_reader = |agent: &Value| agent["name"] == known;
        poll::until(known, || owner.sandbox.json(["agents"]).iter().any(is_reader).then_some(()));
    }
    // Interest in channels is announced a moment after presence.
    poll::until("both hubs to know each other's readers", || {
        let leads = |owner: &Owner, to: &str| owner.sandbox.ok(["route", "#general"]).contains(to);
        (leads(&lab, "olga@office") && leads(&office, "alice@lab")).then_some(())
    });
    let text = "said once";
    lab.sandbox.ok(["channel", "post", "--agent", "alice", "--channel", "general", "--text", text]);
    let posts = |owner: &Owner| -> Vec<Value> {
        let all = owner.sandbox.json(["tail", "-n", "1000"]);
        all.into_iter().filter(|message| message["body"] == text).collect()
    };
    // The office is done with the post when its delivery to the lab, over the swarm, is done.
    let post = poll::until("the post over the link", || {
        posts(&office).into_iter().find(|message| message["door"] == "nats")
    });
    let receipt = poll::until("the office to finish it", || {
        let receipt = office.sandbox.json(["receipt", post["id"].as_str().unwrap()]).remove(0);
        let is_done = |delivery: &Value| delivery["state"] != "queued" && delivery["state"] != "in_flight";
        receipt["deliveries"].as_array().unwrap().iter().all(is_done).then_some(receipt)
    });
    let got: Vec<&str> =
        receipt["deliveries"].as_array().unwrap().iter().filter_map(|d| d["agent"].as_str()).collect();
    assert_eq!(got, ["alice@research", "olga"], "bob has it from the lab: {receipt}");
    poll::until("bob to have it", || (!posts(&bob).is_empty()).then_some(()));
    assert_eq!((posts(&bob).len(), posts(&lab).len()), (1, 1), "{:?} {:?}", posts(&bob), posts(&lab));
    // Whichever bridge is quicker: the copy from the swarm is a duplicate of the one from the link.
    let at_office = posts(&office);
    assert!(at_office.len() == 1 || at_office[0]["door"] == "swarm", "{at_office:?}");
}

/// An owner whose channel a swarm reads.
struct Owner {
    sandbox: Sandbox,
    settings: Value,
    serve: Running,
}

impl Owner {
    fn new(ca: &PrivateCa, agent: &str) -> Self {
        Self::start(ca, agent, None)
    }

    /// Creates an owner whose hub is linked with others.
    fn linked(ca: &PrivateCa, agent: &str, nats: Value) -> Self {
        Self::start(ca, agent, Some(nats))
    }

    fn start(ca: &PrivateCa, agent: &str, nats: Option<Value>) -> Self {
        let port = ports::free_port();
        let sandbox = Sandbox::with_agents(BINARY, &["codex"]);
        let folder = ca.file().parent().unwrap().to_owned();
        let mut settings = json!({
            "swarm": {
                "listen": format!("127.0.0.1:{port}"), "cert": folder.join("cert.pem"),
                "key": folder.join("key.pem"), "ca": ca.file(), "allow": ["127.0.0.0/8"],
            },
            "links": { "channels": { "general": ["research"] } },
        });
        if let Some(nats) = nats {
            settings["nats"] = nats;
        }
        sandbox.configure_user(&settings.to_string());
        let endpoint = format!("https://127.0.0.1:{port}/swarm");
        sandbox.ok(["swarm", "init", "--agent", agent, "--endpoint", &endpoint]);
        let serve = sandbox.serve();
        Self { sandbox, settings, serve }
    }

    /// Forwards mail for an agent to another from now on.
    fn send_on(&mut self, from: &str, to: &str) {
        self.serve.terminate();
        self.settings["links"]["forwards"] = json!({ from: to });
        self.sandbox.configure_user(&self.settings.to_string());
        self.serve = self.sandbox.serve();
    }
}

/// A triangle: an agent with a mailbox writes to a worker, the worker to an agent in a channel, that one to the first.
/// Each answers the message that it received by its door.
#[test]
fn triangle_loop_stops_within_second_round() {
    /// The worker: finds the message below the header of its prompt, and writes the next one.
    const TELLER: &str = r#"
read -r header
read -r step
step=${step#"> "}
id=$("$SWITCHBOARD" --json search "$step" | sed -n 's/^{"id":"\([^"]*\)".*/\1/p')
"$SWITCHBOARD" send dana "step$((${step#step} + 1))" --reply-to "$id" > /dev/null
"#;
    let sandbox = Sandbox::with_agents(BINARY, &["codex"]);
    let _serve = sandbox.serve();
    sandbox.ok(["channel", "post", "--agent", "dana", "--channel", "general", "--text", "here I am"]);
    let binary = format!("SWITCHBOARD={BINARY}");
    let launch = ["worker", "launch", "--agent", "command", "--name", "teller", "--env", &binary];
    sandbox.ok(launch.into_iter().chain(["--", "sh", "-c", TELLER]));
    let named = |step: usize| {
        let text = format!("step{step}");
        poll::until(&text, || sandbox.json(["search", &text]).into_iter().find(|found| found["body"] == text))
    };
    sandbox.run_as("codex", ["send", "teller", "step0"]).ok();
    let mut steps = vec![named(0)];
    let stopped = loop {
        let (step, last) = (steps.len(), steps.last().unwrap());
        let (id, text) = (last["id"].as_str().unwrap(), format!("step{step}"));
        match step % 3 {
            // The worker answers without help.
            1 => {}
            2 => {
                let post = ["channel", "post", "--agent", "dana", "--channel", "general", "--to", "codex"];
                sandbox.run(post.into_iter().chain(["--text", &text, "--reply-to", id]));
            }
            _ => drop(sandbox.run_as("codex", ["send", "teller", &text, "--reply-to", id])),
        }
        steps.push(named(step));
        let stopped = sandbox.json(["resume"]);
        if !stopped.is_empty() {
            break stopped;
        }
        assert!(step < HOPS, "nothing stops it: {steps:#?}");
    };
    let reason = stopped[0]["reason"].as_str().unwrap();
    assert!(reason.contains("form a loop") && steps.len() <= 7, "{reason}: {} steps", steps.len());
    let ways: Vec<String> = steps[..3]
        .iter()
        .map(|step| {
            let receipt = &sandbox.json(["receipt", step["id"].as_str().unwrap()])[0];
            let route = receipt["deliveries"][0]["route"].as_str().unwrap();
            route.split(':').next().unwrap().to_owned()
        })
        .collect();
    assert_eq!(ways, ["worker", "channel", "mailbox"]);
    let told = sandbox.ok(["inbox"]);
    assert!(told.contains("Stopped a message from") && told.contains("switchboard resume"), "{told}");
    is_quiet(&sandbox, of_agents(&sandbox).len());
}
