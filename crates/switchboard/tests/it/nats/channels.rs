//! Channels and watchers between linked hubs, with one folder each and with a shared one.

use serde_json::{Value, json};
use test_support::nats::Release;
use test_support::{files, poll};

use super::hub::Linked;
use super::server;
use crate::channels::Program;

fn post(hub: &Linked, agent: &str, text: &str) {
    hub.sandbox.ok(["channel", "post", "--agent", agent, "--channel", "general", "--text", text]);
}

fn posts(hub: &Linked) -> Vec<Value> {
    hub.sandbox.json(["channel", "read", "--channel", "general", "--all"])
}

fn wait_for_post(hub: &Linked, text: &str) -> Value {
    poll::until(&format!("'{text}' in the channel at {}; {}", hub.name, hub.errors()), || {
        posts(hub).into_iter().find(|post| post["content"]["text"] == text)
    })
}

#[test]
fn mention_is_answered_by_remote_watcher() {
    let test = "mention_is_answered_by_remote_watcher";
    let Some(server) = server(test, Release::Newest, "") else { return };
    let lab = Linked::start("lab", &server.url(), &["codex"], json!({}));
    let office = Linked::start("office", &server.url(), &[], json!({}));
    let program = Program::new(&office.sandbox, "program", "echo 42");
    let watch =
        office.sandbox.start(["watch", "--agent", "qc-1", "--channel", "general", "--", program.path()]);
    watch.line();
    post(&lab, "codex", "I am here");
    for (hub, agent) in [(&lab, "qc-1@office"), (&office, "codex@lab")] {
        hub.wait_for(agent);
        poll::until(&format!("{} to know where {agent} reads", hub.name), || {
            (hub.sandbox.json(["who", agent])[0]["channel"] == "general").then_some(())
        });
    }
    post(&lab, "codex", "@qc-1 what is it?");
    let answer = wait_for_post(&lab, "42");
    assert_eq!(answer["from"], "qc-1@office");
    assert_eq!(program.runs(), 1);
}

/// Each of two linked hubs receives the other's posts twice: as a file, and by the link.
#[test]
fn shared_folder_has_each_post_once() {
    let test = "shared_folder_has_each_post_once";
    let Some(server) = server(test, Release::Newest, "") else { return };
    let folder = tempfile::tempdir().unwrap();
    let shared = || json!({ "channels": { "root": folder.path() } });
    let lab = Linked::start_with("lab", &server.url(), &["claude"], json!({}), shared());
    let office = Linked::start_with("office", &server.url(), &["qc-1"], json!({}), shared());
    lab.wait_for("qc-1@office");
    office.wait_for("claude@lab");
    let program = Program::new(&office.sandbox, "program", "echo 42");
    let watch =
        office.sandbox.start(["watch", "--agent", "bob", "--channel", "general", "--", program.path()]);
    watch.line();
    post(&lab, "ann", "hello");
    post(&office, "cat", "hi there");
    lab.send("claude", &["#general", "news"]);
    post(&lab, "ann", "@bob what is it?");
    wait_for_post(&office, "42");
    // Messages to groups arrive in the order in which they were sent, so all others have arrived before this one.
    for (from, agent, to, reader) in [(&lab, "claude", &office, "qc-1"), (&office, "qc-1", &lab, "claude")] {
        from.send(agent, &["all", "that is all"]);
        to.wait_for_mail(reader, "that is all");
    }
    let text = |post: &Value| post["content"]["text"].as_str().unwrap().to_owned();
    let mut texts: Vec<String> = posts(&lab).iter().map(text).collect();
    // That message is in the channel as well, for agents without a mailbox.
    texts.retain(|text| text != "that is all");
    texts.sort();
    assert_eq!(texts, ["42", "@bob what is it?", "hello", "hi there", "news"]);
    assert_eq!(program.runs(), 1);
    for hub in [&lab, &office] {
        for text in &texts {
            let journal = hub.sandbox.json(["tail", "-n", "100"]);
            let times = journal.iter().filter(|message| message["body"] == text.as_str()).count();
            assert_eq!(times, 1, "'{text}' at {}", hub.name);
        }
        let doctor = hub.sandbox.run(["doctor"]);
        assert!(doctor.stdout.contains("files and journal agree"), "{}", doctor.stdout);
    }
}

/// Either the file or the copy of the link arrives first, by chance: a question to an agent of the other hub, its
/// answer and messages to all must arrive in both cases.
#[test]
fn shared_folder_question_has_one_answer() {
    const ROUNDS: usize = 30;
    let test = "shared_folder_question_has_one_answer";
    let Some(server) = server(test, Release::Newest, "") else { return };
    let folder = tempfile::tempdir().unwrap();
    let shared = || json!({ "channels": { "root": folder.path() } });
    let lab = Linked::start_with("lab", &server.url(), &["claude"], json!({}), shared());
    let office = Linked::start_with("office", &server.url(), &["qc-1"], json!({}), shared());
    lab.wait_for("qc-1@office");
    office.wait_for("claude@lab");
    let program = Program::new(&office.sandbox, "program", "echo 42");
    let watch =
        office.sandbox.start(["watch", "--agent", "bob", "--channel", "general", "--", program.path()]);
    watch.line();
    // To all: answering the sender by name each time would be stopped as a reply loop.
    let answers = |hub: &Linked, question: &str| {
        let is_answer = |post: &Value| post["metadata"]["in_reply_to"] == question && post["to"] == "all";
        posts(hub).into_iter().filter(is_answer).count()
    };
    let mut questions = Vec::new();
    for round in 0..ROUNDS {
        if round == ROUNDS / 2 {
            let is_bob = |agent: &Value| agent["name"] == "bob";
            assert!(!lab.sandbox.json(["agents"]).iter().any(is_bob), "nobody of that name has been at lab");
            // From now on there is one on each hub, and in the folder they are one.
            post(&lab, "bob", "I write from here as well");
        }
        let text = format!("question {round}");
        let post =
            ["channel", "post", "--agent", "ann", "--channel", "general", "--to", "bob", "--text", &text];
        let question = lab.sandbox.ok(post);
        poll::until(&format!("an answer to {question}, the {text}; {}", office.errors()), || {
            (answers(&lab, &question) > 0).then_some(())
        });
        questions.push(question);
        let (from, agent, to, reader) = if round % 2 == 0 {
            (&lab, "claude", &office, "qc-1")
        } else {
            (&office, "qc-1", &lab, "claude")
        };
        let news = format!("news {round}");
        from.send(agent, &["all", &news]);
        to.wait_for_mail(reader, &news);
    }
    for hub in [&lab, &office] {
        for question in &questions {
            assert_eq!(answers(hub, question), 1, "{question} at {}", hub.name);
        }
        let doctor = hub.sandbox.run(["doctor"]);
        assert!(doctor.stdout.contains("files and journal agree"), "{}", doctor.stdout);
    }
    assert_eq!(program.runs(), ROUNDS);
}

#[test]
fn hub_notice_reaches_remote_sender() {
    let test = "hub_notice_reaches_remote_sender";
    let Some(server) = server(test, Release::Newest, "") else { return };
    let lab = Linked::start("lab", &server.url(), &["codex"], json!({}));
    let impatient = json!({ "hub": { "unseenSeconds": 1 } });
    let office = Linked::start_with("office", &server.url(), &["qc-1"], json!({}), impatient);
    lab.wait_for("qc-1@office");
    office.wait_for("codex@lab");
    let sent = lab.send("codex", &["qc-1", "please look"]);
    let notice = poll::until("the notice", || {
        let mail = lab.sandbox.json(["inbox", "codex"]);
        mail.into_iter().find(|message| message["from"] == "switchboard@office")
    });
    assert!(notice["body"].as_str().unwrap().starts_with("Not seen yet after 1 s"), "{notice}");
    assert_eq!(notice["in_reply_to"], sent["id"]);
}

#[test]
fn post_to_remote_agent_shows_waiting() {
    let test = "post_to_remote_agent_shows_waiting";
    let Some(mut server) = server(test, Release::Newest, "") else { return };
    let lab = Linked::start("lab", &server.url(), &["codex"], json!({}));
    let _office = Linked::start("office", &server.url(), &["qc-1"], json!({}));
    lab.wait_for("qc-1@office");
    server.kill();
    let ran = lab.sandbox.run([
        "channel",
        "post",
        "--agent",
        "codex",
        "--channel",
        "general",
        "--to",
        "qc-1",
        "--text",
        "look",
    ]);
    assert!(ran.stderr.contains("qc-1@office: queued"), "{ran:?}");
    let doctor = lab.sandbox.run(["doctor"]);
    assert!(doctor.stdout.contains("files and journal agree"), "{}", doctor.stdout);
}

/// A channel has the same posts on every hub, for any addressee.
#[test]
fn post_to_agent_appears_in_every_hub() {
    let test = "post_to_agent_appears_in_every_hub";
    let Some(server) = server(test, Release::Oldest, "") else { return };
    let lab = Linked::start("lab", &server.url(), &["codex", "amy"], json!({}));
    // An agent with a mailbox and a watcher: the watcher answers posts in the channel.
    let office = Linked::start("office", &server.url(), &["qc-1"], json!({}));
    let attic = Linked::start("attic", &server.url(), &[], json!({}));
    let program = |hub: &Linked, answer| Program::new(&hub.sandbox, "program", answer);
    let (addressed, mentioned) = (program(&office, "echo looked"), program(&attic, "echo noted"));
    let watch = |hub: &Linked, agent, program: &Program| {
        let watch =
            hub.sandbox.start(["watch", "--agent", agent, "--channel", "general", "--", program.path()]);
        watch.line();
        watch
    };
    let _watchers = [watch(&office, "qc-1", &addressed), watch(&attic, "docs-1", &mentioned)];
    post(&lab, "codex", "I am here");
    let hubs = [(&lab, "codex"), (&office, "qc-1"), (&attic, "docs-1")];
    for (hub, _) in hubs {
        for (other, agent) in hubs.into_iter().filter(|(other, _)| other.name != hub.name) {
            let agent = format!("{agent}@{}", other.name);
            hub.wait_for(&agent);
            poll::until(&format!("{} to know where {agent} reads", hub.name), || {
                (hub.sandbox.json(["who", &agent])[0]["channel"] == "general").then_some(())
            });
        }
    }
    for (to, text) in
        [("qc-1", "please look, and @docs-1 note it"), ("amy", "between us"), ("new-1", "when you come")]
    {
        let args =
            ["channel", "post", "--agent", "codex", "--channel", "general", "--to", to, "--text", text];
        lab.sandbox.ok(args);
    }
    for (hub, _) in hubs {
        for text in ["please look, and @docs-1 note it", "between us", "when you come", "looked", "noted"] {
            wait_for_post(hub, text);
        }
    }
    let looked = wait_for_post(&lab, "looked");
    assert_eq!(looked["from"], "qc-1@office");
    assert_eq!(wait_for_post(&attic, "please look, and @docs-1 note it")["to"], "qc-1@office");
    assert_eq!(wait_for_post(&attic, "between us")["to"], "amy@lab");
    // Messages to groups arrive in the order in which they were sent, so a duplicate would be there before this one.
    for (hub, agent) in hubs {
        post(hub, agent, &format!("that is all from {agent}"));
    }
    for (hub, _) in hubs {
        for (_, agent) in hubs {
            wait_for_post(hub, &format!("that is all from {agent}"));
        }
        let mut texts: Vec<String> =
            posts(hub).iter().map(|post| post["content"]["text"].as_str().unwrap().to_owned()).collect();
        // Posted before it was known that an agent elsewhere reads the channel.
        texts.retain(|text| text != "I am here" && !text.starts_with("that is all"));
        texts.sort();
        let expected = ["between us", "looked", "noted", "please look, and @docs-1 note it", "when you come"];
        assert_eq!(texts, expected, "at {}", hub.name);
        let doctor = hub.sandbox.run(["doctor"]);
        assert!(doctor.stdout.contains("files and journal agree"), "{}", doctor.stdout);
    }
    assert_eq!((addressed.runs(), mentioned.runs()), (1, 1));
    assert_eq!(attic.sandbox.json(["inbox", "docs-1"]).len(), 0, "it was nobody's mail there");
    let question = lab.sandbox.json(["tail", "-n", "100"]);
    let question = question.iter().find(|message| message["to"] == "qc-1@office").unwrap();
    lab.wait_for_state(question["id"].as_str().unwrap(), "qc-1@office", "acknowledged");
}

/// A hub takes old files that it finds for history and relays them to no other hub.
#[test]
fn channel_history_is_not_relayed() {
    let test = "channel_history_is_not_relayed";
    let Some(server) = server(test, Release::Newest, "") else { return };
    let lab = Linked::start("lab", &server.url(), &[], json!({}));
    let office = Linked::start("office", &server.url(), &[], json!({}));
    post(&office, "qc-1", "I am here");
    post(&lab, "codex", "I am here as well");
    lab.wait_for("qc-1@office");
    poll::until("lab to know where qc-1 reads", || {
        (lab.sandbox.json(["who", "qc-1@office"])[0]["channel"] == "general").then_some(())
    });
    let id = "msg-20200111-163315-codex-4c78";
    let old = json!({
        "id": id, "timestamp": "2020-01-11T16:33:15Z", "session_id": "general", "from": "codex", "to": "all",
        "type": "chat", "content": { "text": "long ago" },
    });
    files::put(lab.sandbox.file(&format!("channels/general/{id}.json")), old.to_string());
    poll::until("lab to ingest it", || {
        lab.sandbox
            .json(["tail", "-n", "100"])
            .iter()
            .any(|message| message["body"] == "long ago")
            .then_some(())
    });
    post(&lab, "codex", "and now");
    wait_for_post(&office, "and now");
    let journal = office.sandbox.json(["tail", "-n", "100"]);
    assert!(!journal.iter().any(|message| message["body"] == "long ago"), "{journal:?}");
}
