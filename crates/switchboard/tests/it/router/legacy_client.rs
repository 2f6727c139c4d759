//! Clients of the older router: a TCP connection, no token, and the legacy protocol.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;

use serde_json::{Value, json};
use test_support::{RunOutput, Running, Sandbox, files, poll, ports};

use super::schema;
use super::verbs::ASKING;
use crate::workspace;

const SETTING: &str = r#"{ "router": { "legacyClients": true } }"#;

/// Sends a command of the older router and prints the events with its id up to one of these kinds.
const SCRIPT: &str = r#"
import json, os, socket, sys
if len(sys.argv) > 4: os.setuid(int(sys.argv[4]))
host, port = sys.argv[1].rsplit(":", 1)
client = socket.socket()
client.connect((host.encode(), int(port)))
events = client.makefile()
line = {"protocol": "codeswarm.router.v1", "type": "command", "command": sys.argv[2], "request_id": "r",
        "payload": json.loads(sys.argv[3])}
try:
    client.sendall((json.dumps(line, separators=(",", ":")) + "\n").encode())
    for event in events:
        event = json.loads(event)
        if event["event"] == "cut_off" or event["data"].get("request_id") == "r":
            print(json.dumps(event))
            break
except ConnectionError:
    pass
"#;

/// A connection of an older client, which sends lines as JavaScript writes them.
struct Older {
    stream: BufReader<TcpStream>,
}

impl Older {
    fn to(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(poll::TIMEOUT)).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    fn send(&mut self, id: &str, command: &str, payload: &Value) {
        let line = json!({
            "protocol": "codeswarm.router.v1", "type": "command", "command": command, "request_id": id,
            "payload": payload,
        });
        writeln!(self.stream.get_mut(), "{line}").unwrap();
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        assert_ne!(self.stream.read_line(&mut line).unwrap(), 0, "it was hung up on");
        schema::event(&line)
    }

    fn next_of(&mut self, kind: &str) -> Value {
        loop {
            let event = self.next();
            if event["event"] == kind {
                return event["data"].clone();
            }
        }
    }

    /// Sends a request and returns the one event with its id.
    fn request(&mut self, id: &str, command: &str, payload: &Value) -> Value {
        self.send(id, command, payload);
        loop {
            let event = self.next();
            if event["data"]["request_id"] == id {
                return event;
            }
        }
    }
}

fn python() -> Command {
    test_support::process::command("python3")
}

/// Starts a router on the machine's network; returns it with its address.
fn listening(sandbox: &Sandbox) -> (Running, String) {
    let router = sandbox.start(["router", "--listen", "127.0.0.1:0"]);
    let line = router.line();
    let address = line.strip_prefix("Listening on ").unwrap().split(". ").next().unwrap().to_owned();
    (router, address)
}

#[test]
fn workspace_settings_admit_no_older_client() {
    let sandbox = workspace();
    files::put(sandbox.path().join("switchboard.config.json"), SETTING);
    let (router, address) = listening(&sandbox);
    let refused = Older::to(&address).request("1", "swarm_list", &json!({}));
    assert_eq!(
        (&refused["event"], &refused["data"]["code"]),
        (&json!("command_rejected"), &json!("not_allowed"))
    );
    assert!(
        router.errors().contains("'router.legacyClients' counts only in your own"),
        "{}",
        router.errors()
    );
}

#[test]
fn older_client_drives_workers_of_serve() {
    let sandbox = workspace();
    let port = ports::free_port();
    sandbox.configure_user(&json!({ "router": { "legacyClients": true, "legacyPort": port } }).to_string());
    let serve = sandbox.serve();
    let address = format!("127.0.0.1:{port}");
    let errors = serve.errors();
    assert!(
        errors.contains("router.legacyClients: every program of yours") && errors.contains(&address),
        "{errors}"
    );

    let mut launching = Older::to(&address);
    let params = json!({ "worker_mode": "mock" });
    let launch = json!({ "nodes": 2, "system_prompt": "begin", "provider_params": params });
    let launched = launching.request("1", "swarm_launch", &launch);
    assert_eq!((&launched["event"], &launched["data"]["node_count"]), (&json!("swarm_launched"), &json!(2)));
    let swarm = launched["data"]["swarm_id"].as_str().unwrap().to_owned();
    for _ in 0..2 {
        assert_eq!(launching.next_of("assistant")["content"], "begin");
    }
    let mut attached = Older::to(&address);
    let status = attached.request("2", "swarm_status", &json!({ "swarm_id": swarm }));
    assert_eq!((&status["event"], &status["data"]["node_count"]), (&json!("swarm_status"), &json!(2)));
    launching.send("6", "inject", &json!({ "swarm_id": swarm, "nodes": 1, "content": "more" }));
    let heard = attached.next_of("assistant");
    assert_eq!(
        (&heard["swarm_id"], &heard["node_id"], &heard["content"]),
        (&json!(swarm), &json!(1), &json!("more"))
    );

    for id in ["3", "4"] {
        let terminated = Older::to(&address).request(id, "swarm_terminate", &json!({ "swarm_id": swarm }));
        assert_eq!(
            (&terminated["event"], &terminated["data"]["swarm_id"]),
            (&json!("swarm_terminated"), &json!(swarm))
        );
    }
    let list = Older::to(&address).request("5", "swarm_list", &json!({}));
    // Commands of a program that is connected to `serve` would count as an agent's.
    drop((launching, attached));
    assert_eq!(sandbox.json(["worker", "status", &swarm])[0]["status"], "terminated");
    assert_eq!(list["data"]["swarms"], json!({}), "the older router forgets a terminated swarm");
}

/// A detached launch hangs up as soon as it has read the job's id.
#[test]
fn first_prompt_of_client_that_hung_up_runs() {
    let sandbox = workspace();
    sandbox.configure_user(SETTING);
    let (_router, address) = listening(&sandbox);
    let params = json!({ "worker_mode": "mock" });
    let launch = json!({ "nodes": 4, "system_prompt": "begin", "provider_params": params });
    for _ in 0..10 {
        Older::to(&address).request("1", "swarm_launch", &launch);
    }
    poll::until("all first turns", || {
        let jobs = sandbox.json(["worker", "list"]);
        let nodes = jobs.iter().flat_map(|job| job["nodes"].as_array().unwrap());
        (nodes.filter(|node| node["turns"] == 1).count() == 40).then_some(())
    });
}

#[test]
fn web_page_cannot_drive_workers() {
    let sandbox = workspace();
    sandbox.configure_user(SETTING);
    let (_router, address) = listening(&sandbox);
    let body = json!({
        "protocol": "codeswarm.router.v1", "type": "command", "command": "swarm_launch", "request_id": "r",
        "payload": { "nodes": 1, "system_prompt": "x", "provider_params": { "worker_mode": "mock" } },
    });
    let request = format!(
        "POST / HTTP/1.1\r\nHost: {address}\r\nOrigin: https://page.example\r\nContent-Type: text/plain\r\n\
         Content-Length: {}\r\n\r\n{body}\n",
        body.to_string().len() + 1
    );
    let mut page = TcpStream::connect(&address).unwrap();
    page.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    // Unread bytes may turn the close into a reset.
    if let Err(error) = page.read_to_string(&mut answer) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
    assert!(answer.lines().all(|line| schema::event(line)["event"] == "command_rejected"), "{answer}");
    let _ = page.shutdown(Shutdown::Both);
    let list = Older::to(&address).request("1", "swarm_list", &json!({}));
    assert_eq!(list["data"]["swarms"], json!({}));
}

#[test]
fn processes_of_other_users_need_a_token() {
    if !test_support::process::command("sh").args(["-c", "test $(id -u) = 0"]).status().unwrap().success() {
        println!("skipped: another user is needed, and only root can be one");
        return;
    }
    let sandbox = workspace();
    sandbox.configure_user(SETTING);
    let (router, address) = listening(&sandbox);
    let run = |args: &[&str]| RunOutput::of(python().args(["-c", SCRIPT, &address]).args(args)).ok();
    assert!(run(&["swarm_list", "{}"]).contains("\"swarm_list\""));
    assert!(run(&["swarm_list", "{}", "65534"]).contains("say hello with a token first"));
    assert!(router.errors().contains("another user"), "{}", router.errors());
}

#[test]
fn older_client_answers_approvals_as_person_alone() {
    let sandbox = workspace();
    sandbox.configure_user(SETTING);
    let (_router, address) = listening(&sandbox);
    let script = sandbox.path().join("asking.py");
    files::put(&script, ASKING);
    let mut watching = Older::to(&address);
    watching.request("1", "swarm_list", &json!({}));
    let job = sandbox.ok(["worker", "launch", "--agent", "acp", "--", "python3", script.to_str().unwrap()]);
    watching.send("2", "inject", &json!({ "swarm_id": job, "nodes": 0, "content": "tidy up" }));
    let approval_request = watching.next_of("exec_approval_required");
    assert_eq!(
        (&approval_request["swarm_id"], &approval_request["command"]),
        (&json!(job), &json!("rm -r target"))
    );
    let call = approval_request["call_id"].as_str().unwrap();
    let list = watching.request("3", "approvals_list", &json!({}));
    assert_eq!(list["data"]["approvals"][&job]["0"][0]["call_id"], json!(call));

    let answer =
        json!({ "job_id": job, "call_id": call, "node_id": 0, "approved": true, "decision": "accept" });
    let answer = answer.to_string();
    let mut client = python();
    client.args(["-c", SCRIPT, &address, "approve_execution", &answer]);
    let refused = RunOutput::of(client.env("SWITCHBOARD_AGENT_NAME", "claude")).ok();
    assert!(refused.contains("only a person may answer"), "{refused}");
    let resolved = RunOutput::of(client.env_remove("SWITCHBOARD_AGENT_NAME")).ok();
    let resolved = schema::event(&resolved);
    assert_eq!(
        (&resolved["event"], &resolved["data"]["approved"]),
        (&json!("exec_approval_resolved"), &json!(true))
    );
    assert_eq!(watching.next_of("exec_approval_resolved")["call_id"], json!(call));
    watching.next_of("turn_complete");
}
