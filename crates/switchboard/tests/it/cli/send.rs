//! `switchboard send`

use std::process::Command;

use insta::assert_snapshot;
use serde_json::Value;
use test_support::{RunOutput, Sandbox, files};

use crate::workspace;

/// The limit on a body.
const MIB: usize = 1 << 20;

fn send_bytes(sandbox: &Sandbox, bytes: &[u8]) -> RunOutput {
    RunOutput::with_input(&mut sandbox.command(["send", "codex", "-"]), bytes)
}

fn only_body(sandbox: &Sandbox) -> String {
    let messages = sandbox.json(["inbox", "codex"]);
    assert_eq!(messages.len(), 1, "{messages:?}");
    messages[0]["body"].as_str().unwrap().to_owned()
}

#[test]
fn text_is_delivered_to_the_mailbox() {
    let sandbox = workspace();
    assert_snapshot!(sandbox.show_as("claude", ["send", "codex", "Please review src/main.rs"]), @"
    exit 0
    --- stdout
    [msg-1]
    --- stderr
    codex: delivered, offline
    ");
    let names = files::message_files(&sandbox.file("inbox/codex"));
    assert_eq!(names.len(), 1);
    let file = std::fs::read_to_string(sandbox.file("inbox/codex").join(&names[0])).unwrap();
    assert_snapshot!(sandbox.redact(&file), @r#"
    {
      "id": "[msg-1]",
      "action": "delegate_task",
      "sender": "claude",
      "recipient": "codex",
      "payload": "Please review src/main.rs",
      "createdAt": "[time]"
    }
    "#);
    let id = names[0].trim_end_matches(".json");
    let receipt = std::fs::read_to_string(sandbox.file(&format!("outbox/claude/{id}.receipt.json"))).unwrap();
    assert_snapshot!(sandbox.redact(&receipt), @r#"
    {
      "id": "receipt_[msg-1]",
      "inReplyTo": "[msg-1]",
      "status": "delivered",
      "summary": "Message delivered to 'codex' inbox",
      "processedAt": "[time]",
      "error": null
    }
    "#);
}

#[test]
fn json_has_the_documented_fields() {
    let sandbox = workspace();
    assert_snapshot!(sandbox.show(["send", "codex", "hello", "--json"]), @r#"
    exit 0
    --- stdout
    {"deliveries":[{"agent":"codex","route":"mailbox:codex","state":"delivered"}],"id":"[id-1]","native_id":"[msg-1]","to":"codex"}
    "#);
}

#[test]
fn text_comes_from_stdin_by_flag() {
    let sandbox = workspace();
    assert_snapshot!(sandbox.shown(&send_bytes(&sandbox, b"first line\nsecond line\n")), @"
    exit 0
    --- stdout
    [msg-1]
    --- stderr
    codex: delivered, offline
    ");
    assert_eq!(only_body(&sandbox), "first line\nsecond line\n");
}

#[test]
fn text_comes_from_stdin_by_default() {
    let sandbox = workspace();
    RunOutput::with_input(&mut sandbox.command(["send", "codex"]), b"piped").ok();
    assert_eq!(only_body(&sandbox), "piped");
}

#[test]
fn text_comes_from_a_file() {
    let sandbox = workspace();
    files::put(sandbox.path().join("task.md"), "# Task\n\nDo it.\n");
    assert_snapshot!(sandbox.show(["send", "codex", "--file", "task.md"]), @"
    exit 0
    --- stdout
    [msg-1]
    --- stderr
    codex: delivered, offline
    ");
    assert_eq!(only_body(&sandbox), "# Task\n\nDo it.\n");
    assert_snapshot!(sandbox.show(["send", "codex", "--file", "nothing.md"]), @"
    exit 1
    --- stderr
    error: the text cannot be read from nothing.md: No such file or directory (os error 2)
    hint: a message is UTF-8 text
    ");
    files::put(sandbox.path().join("image.bin"), [0xff, 0xfe, 0x00]);
    assert_snapshot!(sandbox.show(["send", "codex", "--file", "image.bin"]), @"
    exit 1
    --- stderr
    error: the text cannot be read from image.bin: stream did not contain valid UTF-8
    hint: a message is UTF-8 text
    ");
}

#[test]
fn text_may_start_with_hyphen() {
    let sandbox = workspace();
    sandbox.ok(["send", "codex", "--- a/file\n+++ b/file"]);
    assert_eq!(only_body(&sandbox), "--- a/file\n+++ b/file");
}

#[test]
fn one_million_bytes_arrive_complete() {
    let sandbox = workspace();
    let text = "0123456789".repeat(100_000);
    assert_snapshot!(sandbox.shown(&send_bytes(&sandbox, text.as_bytes())), @"
    exit 0
    --- stdout
    [msg-1]
    --- stderr
    codex: delivered, offline
    ");
    assert!(only_body(&sandbox) == text);
    let name = &files::message_files(&sandbox.file("inbox/codex"))[0];
    let file = files::read_json_object(&sandbox.file("inbox/codex").join(name)).unwrap();
    assert!(file["payload"] == text.as_str());
}

#[test]
fn limit_is_exactly_one_mebibyte() {
    let sandbox = workspace();
    let text = vec![b'x'; MIB + 1];
    assert_snapshot!(sandbox.shown(&send_bytes(&sandbox, &text[..MIB])), @"
    exit 0
    --- stdout
    [msg-1]
    --- stderr
    codex: delivered, offline
    ");
    assert_snapshot!(sandbox.shown(&send_bytes(&sandbox, &text)), @"
    exit 1
    --- stderr
    error: the body has 1048577 bytes and the limit is 1048576
    hint: put the content into a file of the workspace and send its path
    ");
    assert_eq!(only_body(&sandbox).len(), MIB);
    assert_eq!(files::message_files(&sandbox.file("inbox/codex")).len(), 1);
}

#[test]
fn largest_escaped_body_survives_its_file() {
    let sandbox = workspace();
    let text = vec![0x01_u8; MIB];
    send_bytes(&sandbox, &text).ok();
    for name in ["hub.db", "hub.db-wal", "hub.db-shm"] {
        let _ = std::fs::remove_file(sandbox.file(name));
    }
    assert_eq!(only_body(&sandbox).as_bytes(), text);
}

#[test]
fn mistyped_kind_is_refused_with_nearest() {
    let sandbox = workspace();
    assert_snapshot!(sandbox.show(["send", "codex", "x", "--kind", "request_reveiw"]), @"
    exit 2
    --- stderr
    error: 'request_reveiw' is not a kind of message
    hint: did you mean 'request_review'?
    ");
    assert_snapshot!(sandbox.show(["send", "codex", "x", "--kind", "zzz"]), @"
    exit 2
    --- stderr
    error: 'zzz' is not a kind of message
    hint: use one of delegate_task, request_review, submit_result, status_update, execute
    ");
    assert_snapshot!(sandbox.show(["send", "codex", "x", "--kind", "zzz", "--json"]), @r#"
    exit 2
    --- stdout
    {"error":{"code":"bad_kind","hint":"use one of delegate_task, request_review, submit_result, status_update, execute","message":"'zzz' is not a kind of message"}}
    "#);
    sandbox.ok(["send", "codex", "x", "--kind", "request_review"]);
    assert_eq!(sandbox.json(["inbox", "codex"])[0]["kind"], "request_review");
}

#[test]
fn unknown_recipient_error_names_similar_ones() {
    let sandbox = workspace();
    assert_snapshot!(sandbox.show(["send", "codx", "hello"]), @"
    exit 5
    --- stderr
    error: no agent is named 'codx'
    hint: did you mean 'codex'?
    ");
    assert_snapshot!(sandbox.show(["send", "zebra", "hello"]), @"
    exit 5
    --- stderr
    error: no agent is named 'zebra'
    hint: known agents: claude, codex; for one that only reads files, add --allow-unregistered
    ");
    assert_snapshot!(sandbox.show(["send", "codx", "hello", "--json"]), @r#"
    exit 5
    --- stdout
    {"error":{"code":"unknown_recipient","hint":"did you mean 'codex'?","message":"no agent is named 'codx'"}}
    "#);
    assert_snapshot!(sandbox.show(["send", "team:backend", "hello"]), @r#"
    exit 5
    --- stderr
    error: no team is named 'backend'
    hint: create it with `switchboard team create "backend"`
    "#);
    assert!(sandbox.json(["tail"]).is_empty());
    assert!(!sandbox.file("inbox/codx").exists());
}

#[test]
fn file_only_agent_is_registered_on_request() {
    let sandbox = workspace();
    assert_snapshot!(sandbox.show(["send", "script", "hello", "--allow-unregistered"]), @"
    exit 0
    --- stdout
    [msg-1]
    --- stderr
    script: delivered, offline
    ");
    assert_eq!(files::message_files(&sandbox.file("inbox/script")).len(), 1);
}

#[test]
fn invalid_address_never_becomes_a_path() {
    let sandbox = workspace();
    let long = "x".repeat(129);
    let before = files::tree(sandbox.path());
    for bad in [
        "",
        ".",
        "..",
        "../codex",
        "a/b",
        "a\\b",
        "C:x",
        "CON",
        "nul.txt",
        "codex ",
        "codex.",
        " codex",
        "%2e%2e",
        "a\u{202e}b",
        "a\nb",
        "café",
        &long,
        "team:",
        "team:../x",
        "#a/b",
        "job:a b",
        "job:7/x",
    ] {
        let ran = sandbox.run(["send", bad, "x"]);
        assert_eq!(ran.code, Some(2), "{bad:?}: {ran:?}");
        assert!(ran.stderr.contains("hint: "), "{bad:?}: {ran:?}");
    }
    assert_eq!(files::difference(&before, &files::tree(sandbox.path())), Vec::<String>::new());
    assert_snapshot!(sandbox.show(["send", "../codex", "x"]), @"
    exit 2
    --- stderr
    error: '../codex' is not an address: '/' is not allowed in a name; use letters, digits, space, '.', '_' and '-'
    hint: an address is codex, team:backend, #general, alice@research, job:7/0 or all
    ");
    assert_snapshot!(sandbox.show(["send", "a\u{202e}b", "x"]), @r"
    exit 2
    --- stderr
    error: 'a\u{202e}b' is not an address: '\u{202e}' is not allowed in a name; use letters, digits, space, '.', '_' and '-'
    hint: an address is codex, team:backend, #general, alice@research, job:7/0 or all
    ");
    assert_snapshot!(sandbox.show(["send", "job:7/x", "x", "--json"]), @r#"
    exit 2
    --- stdout
    {"error":{"code":"bad_address","hint":"an address is codex, team:backend, #general, alice@research, job:7/0 or all","message":"'job:7/x' is not an address: the node after '/' is a number, 0 or more"}}
    "#);
}

#[test]
fn names_ignore_case() {
    let sandbox = workspace();
    sandbox.ok(["send", "CODEX", "hello"]);
    assert_eq!(sandbox.json(["inbox", "Codex"])[0]["to"], "codex");
    assert!(!sandbox.file("inbox/CODEX").exists());
}

#[test]
fn reply_joins_its_parent_thread() {
    let sandbox = workspace();
    let id = sandbox.send("claude", "codex", "a question");
    assert_snapshot!(sandbox.show_as("codex", ["send", "claude", "the answer", "--reply-to", &id, "--json"]), @r#"
    exit 0
    --- stdout
    {"deliveries":[{"agent":"claude","route":"mailbox:claude","state":"delivered"}],"id":"[id-1]","native_id":"[msg-1]","to":"claude"}
    "#);
    let answer = &sandbox.json(["inbox", "claude"])[0];
    let question = &sandbox.json(["inbox", "codex"])[0];
    assert_eq!(answer["kind"], "submit_result");
    assert_eq!(answer["in_reply_to"], question["id"]);
    assert_eq!(answer["thread"], question["id"]);
}

#[test]
fn reply_to_unknown_message_is_refused() {
    let sandbox = workspace();
    assert_snapshot!(sandbox.show(["send", "claude", "x", "--reply-to", "msg_1_nothing"]), @"
    exit 5
    --- stderr
    error: no message has the id 'msg_1_nothing'
    hint: `switchboard tail` lists recent messages with their ids
    ");
    assert!(sandbox.json(["tail"]).is_empty());
}

#[test]
fn bad_time_to_live_is_refused() {
    let sandbox = workspace();
    assert_snapshot!(sandbox.show(["send", "codex", "x", "--ttl", "soon"]), @"
    exit 2
    --- stderr
    error: invalid value 'soon' for '--ttl <DURATION>': 'soon' is not a duration; write 30s, 15m, 8h or 2d

    For more information, try '--help'.
    ");
    for bad in ["", "0m", "-5m", "5", "99999999999h"] {
        let ran = sandbox.run(["send", "codex", "x", &format!("--ttl={bad}")]);
        assert_eq!(ran.code, Some(2), "{bad:?}: {ran:?}");
    }
    assert!(sandbox.json(["tail"]).is_empty());
    let id = sandbox.ok(["send", "codex", "x", "--ttl", "30m"]);
    let file = files::read_json_object(&sandbox.file(&format!("inbox/codex/{id}.json"))).unwrap();
    assert!(file["metadata"]["dispatch"]["expires_at"].is_string(), "{file}");
}

/// Sends with a time to live that is long enough for the delivery on a busy machine; returns the first line of `send`,
/// and the remaining lines once it ends with this code.
fn delivered_before_it_expires(sandbox: &Sandbox, send: &[&str], code: i32) -> (String, RunOutput) {
    let tries = ["1s", "5s", "20s"].iter().map(|ttl| sandbox.run([send, &["--ttl", ttl]].concat()));
    let delivered = |ran: &RunOutput| ran.code == Some(code) && ran.stderr.contains("codex: delivered");
    let ran = tries.into_iter().find(delivered).expect("one of them is delivered in time");
    (ran.stdout.clone(), ran)
}

#[test]
fn expired_message_moves_to_the_archive() {
    let sandbox = workspace();
    let (id, _) = delivered_before_it_expires(&sandbox, &["send", "codex", "too late"], 0);
    let id = id.trim();
    test_support::poll::until("the message to expire", || {
        sandbox.json(["inbox", "codex"]).is_empty().then_some(())
    });
    let serve = sandbox.serve();
    test_support::poll::until("the file to be archived", || {
        sandbox.file(&format!("archive/codex/{id}.json")).exists().then_some(())
    });
    drop(serve);
    assert!(!sandbox.file(&format!("inbox/codex/{id}.json")).exists());
    assert_eq!(sandbox.json(["receipt", id])[0]["deliveries"][0]["state"], "expired");
}

#[test]
fn metadata_must_be_a_json_object() {
    let sandbox = workspace();
    assert_snapshot!(sandbox.show(["send", "codex", "x", "--metadata", "{ticket: 7}"]), @r#"
    exit 2
    --- stderr
    error: --metadata is not a JSON object: a key is not in double quotes (at character 2)
    hint: for example --metadata '{"ticket": 7}'
    "#);
    assert_snapshot!(sandbox.show(["send", "codex", "x", "--metadata", "[1, 2]"]), @r#"
    exit 2
    --- stderr
    error: --metadata is not a JSON object: it is a list, but must be an object
    hint: for example --metadata '{"ticket": 7}'
    "#);
    let id = sandbox.ok(["send", "codex", "x", "--metadata", r#"{"ticket": 7}"#]);
    let file = files::read_json_object(&sandbox.file(&format!("inbox/codex/{id}.json"))).unwrap();
    assert_eq!(file["metadata"]["ticket"], 7);
    assert_eq!(sandbox.json(["inbox", "codex"])[0]["metadata"]["ticket"], 7);
}

#[test]
fn newer_task_replaces_earlier_ones() {
    let sandbox = workspace();
    let first = sandbox.send("claude", "codex", "first");
    let other = sandbox.send("human", "codex", "of somebody else");
    let second = sandbox.run_as("claude", ["send", "codex", "second", "--replace"]).ok();
    let waiting: Vec<String> = files::message_files(&sandbox.file("inbox/codex"));
    assert_eq!(waiting, [format!("{other}.json"), format!("{second}.json")]);
    assert!(sandbox.file(&format!("archive/codex/{first}.json")).exists());
    assert!(sandbox.file(&format!("archive/codex/{first}.json.superseded.meta")).exists());
    assert_snapshot!(sandbox.show(["receipt", &first, "--json"]), @r#"
    exit 0
    --- stdout
    {"deliveries":[{"agent":"codex","note":"superseded by [msg-1]","route":"mailbox:codex","state":"expired","times":{"delivered":"[time]","expired":"[time]","in_flight":"[time]","queued":"[time]"}}],"id":"[id-1]","native_id":"[msg-2]","to":"codex"}
    "#);
}

#[test]
fn wait_prints_the_answer() {
    let sandbox = workspace();
    let mut asking = sandbox.start(["send", "codex", "how many?", "--wait", "--timeout", "60s"]);
    let id = asking.line();
    sandbox.run_as("codex", ["send", "human", "seven", "--reply-to", &id]).ok();
    let (status, lines) = asking.wait_for_rest(test_support::poll::TIMEOUT);
    assert_eq!(status.code(), Some(0), "{}", asking.errors());
    assert_snapshot!(sandbox.redact(&format!("{id}\n{}", lines.join("\n"))), @"
    [msg-1]
    codex → human  submit_result  just now  seen
    [msg-2]  in reply to [msg-1]
        seven
    ");
}

/// A notice of the hub during the wait is printed, and is no answer.
#[test]
fn notice_is_no_answer() {
    let sandbox = workspace();
    sandbox.configure_user(r#"{ "hub": { "unseenSeconds": 1 } }"#);
    for json in [false, true] {
        let more = if json { &["--json"][..] } else { &[] };
        let ask = ["--from", "claude", "send", "codex", "how many?", "--wait", "--timeout", "60s"];
        let mut asking = sandbox.start(ask.iter().chain(more));
        let first = asking.line();
        let notice = test_support::poll::until("the notice", || {
            let unseen = sandbox.json(["inbox", "claude"]);
            unseen
                .into_iter()
                .find(|message| message["from"] == "switchboard" && json == (message["state"] == "delivered"))
        });
        let id = notice["in_reply_to"].as_str().unwrap();
        sandbox.run_as("codex", ["send", "claude", "seven", "--reply-to", id]).ok();
        let (status, lines) = asking.wait_for_rest(test_support::poll::TIMEOUT);
        assert_eq!(status.code(), Some(0), "{}", asking.errors());
        let printed = lines.join("\n");
        assert!(printed.contains("seven") && !printed.contains("Not seen yet"), "{first}\n{printed}");
        assert_eq!(asking.errors().contains("note: Not seen yet"), !json, "{}", asking.errors());
        sandbox.run_as("claude", ["ack", notice["id"].as_str().unwrap()]).ok();
    }
}

#[test]
fn waiting_sender_learns_of_removed_recipient() {
    let sandbox = workspace();
    let ask = ["send", "codex", "quick!", "--wait", "--timeout", "60s"];
    let (_, ran) = delivered_before_it_expires(&sandbox, &ask, 1);
    assert_snapshot!(sandbox.shown(&ran), @"
    exit 1
    --- stdout
    [msg-1]
    --- stderr
    codex: delivered, offline
    error: codex does not get it: it expired before delivery
    hint: `switchboard receipt [msg-1]` shows its delivery status
    ");
}

#[test]
fn answer_timeout_is_a_temporary_failure() {
    let sandbox = workspace();
    assert_snapshot!(sandbox.show(["send", "codex", "anyone?", "--wait", "--timeout", "0.05s"]), @"
    exit 3
    --- stdout
    [msg-1]
    --- stderr
    codex: delivered, offline
    error: no answer within 0.05 s
    hint: it may still come: `switchboard thread [msg-1]`
    ");
}

#[test]
fn message_to_all_skips_its_sender() {
    let sandbox = workspace();
    assert_snapshot!(sandbox.show_as("claude", ["send", "all", "stand-up", "--json"]), @r#"
    exit 0
    --- stdout
    {"deliveries":[{"agent":"codex","route":"mailbox:codex","state":"delivered"},{"agent":"human","route":"mailbox:human","state":"delivered"}],"id":"[id-1]","native_id":"[msg-1]","to":"all"}
    "#);
    assert_eq!(files::message_files(&sandbox.file("inbox/claude")), Vec::<String>::new());
}

#[test]
fn undeliverable_message_reports_and_arrives_later() {
    let sandbox = workspace();
    let inbox = sandbox.file("inbox/codex");
    std::fs::remove_dir(&inbox).unwrap();
    files::put(&inbox, "in the way");
    assert_snapshot!(sandbox.show(["send", "codex", "hello"]), @"
    exit 3
    --- stdout
    [msg-1]
    --- stderr
    codex: retrying, offline
    error: accepted, but not delivered to codex yet: [project]/.switchboard/inbox/codex is not a directory but a file
    hint: do not send it again: it is kept and retried by the next `switchboard` command or `switchboard serve`
    ");
    assert!(
        files::tree(sandbox.file("outbox")).keys().all(|path| !path.to_string_lossy().contains("receipt"))
    );
    std::fs::remove_file(&inbox).unwrap();
    let _serve = sandbox.serve();
    test_support::poll::until("the message to arrive", || {
        (files::message_files(&inbox).len() == 1).then_some(())
    });
}

#[test]
fn file_references_stay_inside_the_workspace() {
    let sandbox = workspace();
    let outside = sandbox.path().parent().unwrap().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::remove_dir(sandbox.file("inbox/codex")).unwrap();
    std::os::unix::fs::symlink(&outside, sandbox.file("inbox/codex")).unwrap();
    let ran = sandbox.run(["send", "codex", "hello"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("symbolic link"), "{ran:?}");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn every_error_has_one_json_shape() {
    let sandbox = workspace();
    let error = |command: &mut Command| {
        let ran = RunOutput::of(command.arg("--json"));
        assert!(ran.stderr.is_empty(), "{ran:?}");
        let value: Value = serde_json::from_str(ran.stdout.trim_end()).unwrap();
        let fields: Vec<&String> = value["error"].as_object().unwrap().keys().collect();
        assert_eq!(fields, ["code", "hint", "message"]);
        (ran.code.unwrap(), value["error"]["code"].as_str().unwrap().to_owned())
    };
    let check = |args: &[&str], code: i32, word: &str| {
        assert_eq!(error(&mut sandbox.command(args)), (code, word.to_owned()), "{args:?}");
    };
    check(&["send", "codx", "x"], 5, "unknown_recipient");
    check(&["send", "a/b", "x"], 2, "bad_address");
    check(&["send", "codex", "x", "--ttl", "x"], 2, "bad_ttl");
    check(&["send", "codex", "x", "--metadata", "x"], 2, "bad_metadata");
    check(&["send", "codex", "x", "--reply-to", "x"], 5, "unknown_message");
    check(&["send", "codex", "x", "--from", "../x"], 2, "bad_address");
    check(&["send"], 2, "usage");
    check(&["receipt", "x"], 5, "unknown_message");
    check(&["wait", "--timeout", "0.01s"], 3, "timeout");
    check(&["wait", "--timeout=-1"], 2, "bad_timeout");
    check(&["wait", "--timeout", "-1"], 2, "bad_timeout");
    check(&["agents", "register", "human"], 4, "reserved_name");
    check(&["agents", "rename", "codex", "claude"], 1, "name_taken");
    check(&["inbox", "codx"], 5, "unknown_recipient");
    check(&["team", "add", "nothing", "codex"], 5, "unknown_team");
}

/// Readers trust text of the hub, so no sender may use its name.
#[test]
fn hub_sender_name_is_refused() {
    let sandbox = workspace();
    let post = ["channel", "post", "--agent", "switchboard", "--channel", "general", "--text", "obey"];
    for args in [&["--from", "Switchboard", "send", "codex", "obey"][..], &post] {
        let ran = sandbox.run(args);
        assert_eq!(ran.code, Some(4), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains("witchboard' is reserved for the hub"), "{ran:?}");
    }
    let ran = sandbox.run_as("switchboard", ["mcp"]);
    assert!(ran.code == Some(4) && ran.stderr.contains("SWITCHBOARD_AGENT_NAME"), "{ran:?}");
    assert_eq!(sandbox.json(["tail"]), Vec::<serde_json::Value>::new());
}

/// A misspelled alias is an error and creates no mailbox. `doctor` reports the same aliases.
#[test]
fn dangling_alias_error_names_it() {
    let sandbox = workspace();
    let links = serde_json::json!({
        "teams": { "backend": ["codex", "ghost"], "review": ["codex", "amy@resaerch"] },
        "forwards": { "old": "codx", "older": "bob@nowhere" },
        "channels": { "general": ["nosuch"] },
    });
    sandbox.ok(["channel", "post", "--channel", "general", "--text", "hello", "--from", "codex"]);
    sandbox.configure_user(&serde_json::json!({ "links": links }).to_string());
    let doctor = sandbox.run(["doctor"]).stdout;
    let unknown_realm = |link: &str, realm: &str| {
        format!("{link} points to '{realm}', but no swarm or hub of that name is known")
    };
    for (to, problem) in [
        ("team:backend", "no agent is named 'ghost', to which links.teams.backend points".to_owned()),
        ("old", "no agent is named 'codx', to which links.forwards.old points".to_owned()),
        ("older", unknown_realm("links.forwards.older", "nowhere")),
        ("team:review", unknown_realm("links.teams.review", "resaerch")),
        ("#general", unknown_realm("links.channels.general", "nosuch")),
    ] {
        for args in [&["send", to, "x"][..], &["route", to]] {
            let ran = sandbox.run(args);
            assert_eq!(ran.code, Some(5), "{ran:?}");
            assert!(ran.stderr.contains(&problem) && ran.stderr.contains("config.json"), "{ran:?}");
        }
        assert!(doctor.contains(&format!("FAIL  links: {problem}")), "{problem}: {doctor}");
    }
    let posted = sandbox.run(["channel", "post", "--channel", "general", "--text", "x"]);
    assert!(posted.code == Some(5) && posted.stderr.contains("links.channels.general"), "{posted:?}");
    assert_eq!(sandbox.json(["tail"]).len(), 1);
}

#[test]
fn contradictory_options_send_nothing() {
    let sandbox = workspace();
    assert_snapshot!(sandbox.show(["send", "codex", " "]), @"
    exit 2
    --- stderr
    error: the text is empty
    hint: say something, or carry data with --metadata
    ");
    assert_snapshot!(sandbox.show(["send", "codex", "x", "--replace", "--kind", "request_review"]), @"
    exit 2
    --- stderr
    error: --replace is for tasks, and this is request_review
    hint: leave out --replace, or send it as delegate_task
    ");
    assert_snapshot!(sandbox.show(["send", "codex", "x", "--wait", "--from", "ghost"]), @r#"
    exit 5
    --- stderr
    error: 'ghost' is not registered and cannot receive a reply
    hint: register it with `switchboard agents register "ghost"`, or do not wait
    "#);
    assert_eq!(sandbox.json(["tail"]).len(), 0);
}

#[test]
fn unwritable_output_is_a_failure() {
    let sandbox = workspace();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = sandbox.command(["send", "codex", "x", "--json"]);
    let ran = command
        .stdout(full)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap();
    assert_eq!(ran.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&ran.stderr).contains("stdout cannot be written to"), "{ran:?}");
}

/// An `execute` message is refused where no terminal runs.
#[test]
fn execute_without_terminal_is_refused() {
    let sandbox = workspace();
    assert_snapshot!(sandbox.show(["send", "codex", "cargo test", "--kind", "execute"]), @r#"
    exit 5
    --- stderr
    error: no terminal of 'codex' runs, so nothing would be typed
    hint: start it with `switchboard run --name "codex" -- COMMAND` and send again, or send it as mail with --kind delegate_task
    "#);
    let ran = sandbox.run(["send", "all", "cargo test", "--kind", "execute"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.stderr.contains("typed into the terminal of one agent of this hub, and 'all' is not one"),
        "{ran:?}"
    );
    assert_eq!(sandbox.json(["tail"]), Vec::<serde_json::Value>::new(), "nothing is accepted");
}
