//! Whose mail a session may read, and as which agent it may write.

use serde_json::{Value, json};
use test_support::http::Request;
use test_support::mcp::{Client, REVISION};
use test_support::{Running, Sandbox, TestServer, poll};

use super::{connect_each, payloads, stdio, task};
use crate::BINARY;

const BOB: &str = "switchboard://inbox/bob";

/// Creates a workspace in which `carol` has written to `bob`, whose session is open; returns the id of the message too.
fn with_mail_for_bob() -> (Sandbox, TestServer, Client, String) {
    let sandbox = Sandbox::with_agents(BINARY, &["carol"]);
    let served = TestServer::start(&sandbox);
    let bob = Client::sse(&served, None).registered("bob");
    let id = sandbox.send("carol", "bob", "for the eyes of bob: xylophone");
    (sandbox, served, bob, id)
}

#[test]
fn agent_cannot_read_foreign_mail() {
    let (sandbox, served, mut bob, id) = with_mail_for_bob();
    for (name, client) in connect_each(&sandbox, &served) {
        let mut alice = client.registered(&format!("alice {name}"));
        for (tool, arguments) in [
            ("check_inbox", json!({ "agent": "bob" })),
            ("check_inbox", json!({ "agent": "BOB" })),
            ("check_inbox", json!({ "id": id })),
            ("wait_for_message", json!({ "agent": "bob", "timeout": 1 })),
            ("ack_message", json!({ "ids": [id] })),
            ("ack_message", json!({ "ids": [id], "agent": "bob" })),
            ("get_receipt", json!({ "id": id })),
            ("set_agent_status", json!({ "name": "bob", "status": "away" })),
            ("register_chat_agent", json!({ "name": "bob" })),
            (
                "send_message",
                json!({ "sender": "bob", "recipient": "carol", "action": "delegate_task", "payload": "as bob" }),
            ),
            ("register_terminal", json!({ "name": "bob", "pid": std::process::id(), "purpose": "coding" })),
        ] {
            let refusal = alice.refused(tool, arguments.clone());
            assert!(!refusal.contains("xylophone"), "{name}: {tool} {arguments}: {refusal}");
        }
        let found = alice.ok("search_messages", json!({ "query": "xylophone" }));
        assert_eq!(found["messages"], json!([]), "{name}");
        for method in ["resources/read", "resources/subscribe"] {
            let error = alice.request(method, json!({ "uri": BOB })).unwrap_err();
            assert!(error["message"].as_str().unwrap().contains("its own inbox only"), "{name}: {error}");
        }
        let listed = alice.request("resources/list", json!({})).unwrap().to_string();
        assert!(!listed.contains(BOB), "{name}: {listed}");
        assert_eq!(alice.ok("check_inbox", json!({}))["messages"], json!([]), "{name}");
    }
    let mail = bob.ok("check_inbox", json!({}));
    assert_eq!(payloads(&mail), ["for the eyes of bob: xylophone"]);
    assert_eq!(mail["messages"][0]["state"], "delivered", "nobody has seen it before");
    let found = bob.ok("search_messages", json!({ "query": "xylophone" }));
    assert_eq!(payloads(&found).len(), 1);
}

#[test]
fn foreign_cursor_or_id_opens_nothing() {
    let (sandbox, served, mut bob, _) = with_mail_for_bob();
    sandbox.send("carol", "bob", "the second for bob");
    let page = bob.ok("check_inbox", json!({ "limit": 1 }));
    let cursor = &page["cursor"];
    assert!(cursor.is_string(), "{page}");
    let mut alice = Client::streamable(&served, None).registered("alice");
    sandbox.send("carol", "alice", "for alice");
    let mail = alice.ok("check_inbox", json!({ "cursor": cursor }));
    assert!(payloads(&mail).iter().all(|payload| *payload == "for alice"), "{mail}");
    let mail = alice.ok("check_inbox", json!({ "since": page["messages"][0]["id"] }));
    assert_eq!(payloads(&mail), ["for alice"]);
}

#[test]
fn name_in_use_is_refused() {
    let (sandbox, served, bob, _) = with_mail_for_bob();
    let register = |client: &mut Client| client.refused("register_chat_agent", json!({ "name": "Bob" }));
    for mut client in [Client::streamable(&served, None), Client::sse(&served, None)] {
        let answer = register(&mut client);
        assert!(answer.contains("'bob' is in use by another session"), "{answer}");
        // The session still has no agent, and may register another one.
        client.ok("register_chat_agent", json!({ "name": "dave" }));
        drop(client);
        let mut free = Client::streamable(&served, None);
        poll::until("the name to be free again", || {
            (!free.call("register_chat_agent", json!({ "name": "dave" })).failed).then_some(())
        });
    }
    let alone = || Client::stdio(Running::start_with_stdin(&mut sandbox.command(["mcp", "--alone"])));
    let answer = register(&mut alone());
    let holder = format!("process {} on ", served.running.id());
    assert!(answer.contains("'bob' is in use by ") && answer.contains(&holder), "{answer}");
    // After his session has ended, any session may be bob: one user, one machine.
    drop(bob);
    let mut next = alone();
    poll::until("the name to be free", || {
        (!next.call("register_chat_agent", json!({ "name": "bob" })).failed).then_some(())
    });
    let answer = register(&mut Client::sse(&served, None));
    assert!(answer.contains(&format!("process {} on ", next.process().id())), "{answer}");
    assert_eq!(next.ok("check_inbox", json!({}))["messages"].as_array().unwrap().len(), 1);
}

#[test]
fn identity_is_the_configured_one() {
    let sandbox = Sandbox::with_agents(BINARY, &["carol"]);
    let served = TestServer::start(&sandbox);
    let id = sandbox.run_as("carol", ["send", "carol", "a note to myself"]).ok();
    let configured = [
        ("stdio", stdio(&sandbox, Some("eve"))),
        ("streamable", Client::streamable(&served, Some("eve"))),
        ("sse", Client::sse(&served, Some("eve"))),
    ];
    for (name, mut client) in configured {
        let payload = format!("by {name}");
        client.ok("send_message", task("carol", &payload));
        // An accepted message may not be delivered yet.
        let arrived = poll::until("the message", || {
            sandbox.json(["inbox", "carol"]).pop().filter(|last| last["body"] == json!(payload))
        });
        assert_eq!(arrived["from"], json!("eve"), "{name}");
        let refusal = client.refused("register_chat_agent", json!({ "name": "carol" }));
        assert!(refusal.contains("speaks for 'eve' and cannot become 'carol'"), "{name}: {refusal}");
        let refusal = client.refused("ack_message", json!({ "ids": [id] }));
        assert!(refusal.contains("no message"), "{name}: {refusal}");
        // Registering the same name twice is no conflict.
        client.ok("register_chat_agent", json!({ "name": "eve" }));
    }
    let refusal = sandbox.run_as("human", ["mcp"]);
    assert_eq!((refusal.code, refusal.stdout.as_str()), (Some(4), ""), "{}", refusal.stderr);
}

#[test]
fn unnamed_session_sends_and_reads_nothing() {
    let sandbox = Sandbox::with_agents(BINARY, &["carol"]);
    let served = TestServer::start(&sandbox);
    for (name, mut client) in connect_each(&sandbox, &served) {
        for (tool, arguments) in [
            ("send_message", task("carol", "anonymous")),
            ("check_inbox", json!({ "agent": "carol" })),
            ("wait_for_message", json!({})),
            ("create_team", json!({ "id": "crew" })),
            ("run_in_terminal", json!({ "name": "carol", "input": "ls" })),
        ] {
            let refusal = client.refused(tool, arguments);
            assert!(refusal.contains("register_chat_agent"), "{name}: {tool}: {refusal}");
        }
        let refusal = client.refused("register_chat_agent", json!({ "name": "human" }));
        assert!(refusal.contains("the person"), "{name}: {refusal}");
    }
    assert_eq!(sandbox.json(["inbox", "carol"]), Vec::<Value>::new());
}

#[test]
fn foreign_session_cannot_be_used() {
    let sandbox = Sandbox::with_agents(BINARY, &[]);
    let served = TestServer::start(&sandbox);
    let streamable = Client::streamable(&served, Some("bob"));
    let sse = Client::sse(&served, Some("bob"));
    let post = |path: &str, session: Option<&str>, agent: Option<&str>| {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
        let request = served.authorize(Request::post(path, &body), agent);
        let request = match session {
            Some(session) => {
                request.header("Mcp-Session-Id", session).header("MCP-Protocol-Version", REVISION)
            }
            None => request,
        };
        let response = request.send(served.port).unwrap();
        (response.status, response.text().unwrap())
    };
    let guessed = |session: &str| {
        let last = if session.ends_with('0') { "1" } else { "0" };
        format!("{}{last}", &session[..session.len() - 1])
    };
    let (one, other) = (streamable.session(), sse.session());
    assert!(one.len() >= 32 && other.len() >= 32, "128 bits and more: {one} {other}");
    let messages = |session: &str| format!("/messages?sessionId={session}");
    for (status, answer) in
        [post("/mcp", Some(one), Some("alice")), post(&messages(other), None, Some("alice"))]
    {
        assert_eq!(status, 403, "{answer}");
    }
    for (status, answer) in [
        post("/mcp", Some(&guessed(one)), Some("alice")),
        post(&messages(&guessed(other)), None, Some("alice")),
        // A session id of one transport is invalid on the other.
        post("/mcp", Some(other), Some("bob")),
        post(&messages(one), None, Some("bob")),
    ] {
        assert_eq!(status, 404, "{answer}");
    }
    assert_eq!(post("/mcp", Some(one), Some("bob")).0, 200);
    assert_eq!(post(&messages(other), None, Some("bob")).0, 202);
}

#[test]
fn configured_name_cannot_be_registered_by_others() {
    let sandbox = Sandbox::with_agents(BINARY, &["carol"]);
    let served = TestServer::start(&sandbox);
    let mut by_env = stdio(&sandbox, Some("eve"));
    by_env.ok("check_inbox", json!({}));
    let mut by_header = Client::streamable(&served, Some("frank"));
    by_header.ok("check_inbox", json!({}));
    // A second client of the same agent is its owner's decision.
    stdio(&sandbox, Some("eve")).ok("check_inbox", json!({}));
    Client::sse(&served, Some("frank")).ok("check_inbox", json!({}));
    for (name, mut thief) in connect_each(&sandbox, &served) {
        for victim in ["eve", "frank"] {
            let refusal = thief.refused("register_chat_agent", json!({ "name": victim }));
            assert!(refusal.contains(&format!("'{victim}' is in use by")), "{name}: {refusal}");
        }
    }
    drop(by_env);
    poll::until("its name to be free", || {
        let refusal = stdio(&sandbox, None).call("register_chat_agent", json!({ "name": "eve" }));
        (!refusal.failed).then_some(())
    });
}

#[test]
fn message_id_resolves_in_own_mailbox() {
    let sandbox = Sandbox::with_agents(BINARY, &["carol", "q", "q2"]);
    let served = TestServer::start(&sandbox);
    for mailbox in ["q", "q2"] {
        sandbox.drop_file("msg_5_zz", "carol", mailbox, &format!("for {mailbox}"));
        sandbox.ok(["inbox", mailbox]);
    }
    // The sender's own idempotency key is no message id, although it looks like one.
    let mut carol = Client::streamable(&served, Some("carol"));
    let mut forged = task("q2", "under a word that looks like an id");
    forged["idempotencyKey"] = "msg_5_zz".into();
    carol.ok("send_message", forged);
    let mut q = Client::streamable(&served, Some("q"));
    let mut answer = task("carol", "an answer");
    answer["replyTo"] = "msg_5_zz".into();
    let answer = q.ok("send_message", answer);
    let thread = sandbox.ok(["thread", answer["id"].as_str().unwrap()]);
    assert!(thread.contains("for q") && !thread.contains("for q2"), "{thread}");
    let shown = q.ok("check_inbox", json!({ "id": "msg_5_zz" }));
    assert_eq!(payloads(&shown), ["for q"]);
    q.ok("ack_message", json!({ "ids": ["msg_5_zz"] }));
    sandbox.run_as("q2", ["ack", "msg_5_zz"]).ok();
    let mut q2 = Client::streamable(&served, Some("q2"));
    let left = q2.ok("check_inbox", json!({}));
    assert_eq!(payloads(&left), ["under a word that looks like an id"]);
}

#[test]
fn failed_registration_sets_no_identity() {
    let sandbox = Sandbox::with_agents(BINARY, &["codex"]);
    let served = TestServer::start(&sandbox);
    for (name, mut client) in connect_each(&sandbox, &served) {
        let long = "x".repeat(600);
        client.refused("register_chat_agent", json!({ "name": "carl", "interface": long }));
        let refusal = client.refused("send_message", task("codex", "as whom?"));
        assert!(refusal.contains("speaks for no agent"), "{name}: {refusal}");
        assert_eq!(refusal.contains("switchboard-agent"), name != "stdio", "{name}: {refusal}");
    }
}
