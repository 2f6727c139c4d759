//! `switchboard serve`, and the files in the workspace by which clients find it.

use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;
use serde_json::{Value, json};
use test_support::http::Request;
use test_support::process::command;
use test_support::{RunOutput, Running, Sandbox, TestServer, files, poll, tools};

use super::{stdio, task};
use crate::{BINARY, workspace};

fn server_info(sandbox: &Sandbox) -> Option<Value> {
    files::read_json_object(&sandbox.file("server_info.json"))
}

fn health(served: &TestServer) -> Value {
    let response = Request::new("GET", "/health").send(served.port).unwrap();
    assert_eq!(response.status, 200);
    serde_json::from_str(&response.text().unwrap()).unwrap()
}

#[test]
fn server_info_is_announced_and_withdrawn() {
    let sandbox = workspace();
    let mut served = TestServer::start(&sandbox);
    let info = server_info(&sandbox).unwrap();
    let started = info["startedAt"].as_str().unwrap();
    assert_eq!(
        info,
        json!({
            "port": served.port,
            "host": "127.0.0.1",
            "transport": "sse",
            "sseEndpoint": "/sse",
            "messagesEndpoint": "/messages",
            "healthEndpoint": "/health",
            "pid": served.running.id(),
            "startedAt": started,
        })
    );
    let shape: String = started.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(shape, "0000-00-00T00:00:00.000Z");
    let healthy = health(&served);
    assert_eq!((&healthy["status"], &healthy["pid"]), (&json!("ok"), &json!(served.running.id())));
    assert!(!healthy.to_string().contains(&served.token));
    served.running.signal(Signal::TERM);
    assert_eq!(served.running.wait().code(), Some(0));
    assert_eq!(served.running.errors(), "");
    assert_eq!(server_info(&sandbox), None);
}

#[test]
fn stale_server_info_is_replaced() {
    let sandbox = workspace();
    let mut killed = TestServer::start(&sandbox);
    killed.running.kill();
    let left = server_info(&sandbox).expect("nobody was there to remove it");
    assert_eq!(left["pid"], killed.running.id());
    let mut next = TestServer::start(&sandbox);
    let info = server_info(&sandbox).unwrap();
    assert_eq!((&info["pid"], &info["port"]), (&json!(next.running.id()), &json!(next.port)));
    assert_ne!(next.token, killed.token);
    assert_eq!(next.running.terminate().code(), Some(0));
    assert_eq!(server_info(&sandbox), None);
}

#[test]
fn doctor_reports_killed_server() {
    let sandbox = workspace();
    let mut killed = TestServer::start(&sandbox);
    let doctor_report = || sandbox.ok(["doctor"]);
    assert!(!doctor_report().contains("server_info.json"), "it serves");
    killed.running.kill();
    let expected = format!("server_info.json names process {}, which has ended", killed.running.id());
    assert!(doctor_report().contains(&expected), "{}", doctor_report());
    assert!(server_info(&sandbox).is_some(), "it only looked");
    let fixed = sandbox.ok(["doctor", "--fix"]);
    assert!(fixed.contains(&format!("fixed server: {expected}")), "{fixed}");
    assert_eq!(server_info(&sandbox), None);
}

#[test]
fn second_server_names_the_first() {
    let sandbox = workspace();
    let mut served = TestServer::start(&sandbox);
    let (info, token) = (server_info(&sandbox), std::fs::read(sandbox.file("auth_token")).unwrap());
    for args in [&["serve"][..], &["serve", "--port", "0"], &["serve", "--port", "0", "--keep-token"]] {
        let ran = sandbox.run(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(3), ""));
        assert!(ran.stderr.contains(&format!("process {} on", served.running.id())), "{}", ran.stderr);
    }
    assert_eq!((server_info(&sandbox), std::fs::read(sandbox.file("auth_token")).unwrap()), (info, token));
    assert_eq!(health(&served)["status"], "ok");
    // Sessions over pipes need no server, and work next to one.
    stdio(&sandbox, None).registered("claude").ok("send_message", task("codex", "beside it"));
    assert_eq!(served.running.terminate().code(), Some(0));
}

#[test]
fn token_is_regenerated_unless_configured() {
    let sandbox = workspace();
    let mode = || sandbox.file("auth_token").metadata().unwrap().permissions().mode() & 0o777;
    let list = |served: &TestServer, token: &str| {
        let request = Request::new("GET", "/sse").header("Authorization", &format!("Bearer {token}"));
        request.send(served.port).unwrap().status
    };
    let mut tokens: Vec<String> = Vec::new();
    for args in [&[][..], &[], &["--keep-token"], &[]] {
        let mut served = TestServer::with(&sandbox, args);
        assert_eq!(mode(), 0o600);
        assert_eq!(list(&served, &served.token), 200);
        if let Some(before) = tokens.last() {
            let is_kept = !args.is_empty();
            assert_eq!(list(&served, before), if is_kept { 200 } else { 401 });
        }
        tokens.push(served.token.clone());
        assert_eq!(served.running.terminate().code(), Some(0));
    }
    assert_eq!(tokens[1], tokens[2]);
    assert!(tokens[0] != tokens[1] && tokens[2] != tokens[3]);
    assert!(tokens.iter().all(|token| token.len() >= 43));
    // A token file that other users can read is not trusted and is rewritten.
    files::chmod(sandbox.file("auth_token"), 0o644);
    let _served = TestServer::with(&sandbox, &["--keep-token"]);
    assert_eq!(mode(), 0o600);
}

#[test]
fn token_is_never_logged() {
    let sandbox = workspace();
    let mut command = sandbox.command(["serve", "--port", "0", "--json"]);
    let mut served = TestServer::of(&sandbox, Running::start(command.env("SWITCHBOARD_LOG", "trace")));
    let mut client = test_support::mcp::Client::streamable(&served, None).registered("claude");
    client.ok("send_message", task("codex", "a task"));
    let in_query = Request::new("GET", &format!("/sse?token={}", served.token)).send(served.port).unwrap();
    assert_eq!(in_query.status, 200);
    let endpoint = in_query.events().next().unwrap().data;
    assert!(endpoint.contains("token="), "who cannot send a header can post as well: {endpoint}");
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    assert_eq!(
        Request::post(&endpoint, &body).send(served.port).unwrap().status,
        404,
        "its stream is closed"
    );
    for path in ["/mcp", "/nowhere", "/sse"] {
        let wrong = format!("{}0", served.token);
        let path = format!("{path}?token={wrong}");
        assert!(Request::new("GET", &path).send(served.port).unwrap().status >= 400);
    }
    drop(client);
    assert_eq!(served.running.terminate().code(), Some(0));
    let log = served.running.errors();
    assert!(log.contains("TRACE"), "there was something to log");
    assert!(!log.contains(&served.token), "the token is in the log");
}

#[test]
fn missing_token_is_refused_except_for_health() {
    let sandbox = workspace();
    let served = TestServer::start(&sandbox);
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let other = TestServer::start(&workspace());
    for request in [
        Request::post("/mcp", &body),
        Request::new("GET", "/mcp"),
        Request::new("DELETE", "/mcp"),
        Request::new("GET", "/sse"),
        Request::post("/messages?sessionId=0", &body),
    ] {
        let of_others = request.clone().header("Authorization", &format!("Bearer {}", other.token));
        for request in [request, of_others] {
            let response = request.send(served.port).unwrap();
            assert_eq!(response.status, 401, "{request:?}");
            let answer: Value = serde_json::from_str(&response.text().unwrap()).unwrap();
            assert!(answer.to_string().contains("auth_token"), "it says where the token is: {answer}");
        }
    }
    assert_eq!(health(&served)["status"], "ok");
}

/// Serves six workspaces, one after the other, in their own network namespace.
const SIX: &str = r#"
pids=
for n in 1 2 3 4 5 6; do
  (cd "w$n" && exec "$0" serve --json >out 2>err) &
  pids="$pids $!"
  while [ ! -s "w$n/out" ] && kill -0 $!; do sleep 0.05; done
  cp "w$n/.switchboard/server_info.json" "w$n/info"
done
kill $pids
wait
"#;

#[test]
fn first_free_port_is_used_then_any() {
    let probe = tools::run(command("unshare").args(["-rn", "true"]));
    if let Err(reason) = probe {
        return tools::skip("first_free_port_is_used_then_any", &reason);
    }
    let sandbox = Sandbox::bare(BINARY);
    for number in 1..=6 {
        let folder = sandbox.path().join(format!("w{number}"));
        std::fs::create_dir(&folder).unwrap();
        sandbox.ok(["--workspace", folder.to_str().unwrap(), "init"]);
    }
    let mut six = command("unshare");
    six.args(["-rn", "sh", "-c", SIX, BINARY]).current_dir(sandbox.path()).env("HOME", sandbox.home());
    let ran = RunOutput::of(&mut six);
    let ports: Vec<u64> = (1..=6)
        .map(|number| {
            let file = |name: &str| {
                let text = std::fs::read_to_string(sandbox.path().join(format!("w{number}/{name}"))).unwrap();
                serde_json::from_str::<Value>(&text).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
            };
            let port = file("out")["port"].clone();
            assert_eq!(file("info")["port"], port);
            port.as_u64().unwrap()
        })
        .collect();
    assert_eq!(ports[..5], [3100, 3101, 3102, 3103, 3104]);
    assert!(ports[5] != 0 && !ports[..5].contains(&ports[5]), "{ports:?}");
}

#[test]
fn occupied_port_is_named() {
    let sandbox = workspace();
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let ran = sandbox.run(["serve", "--port", &port]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{}", ran.stderr);
    assert!(ran.stderr.contains(&port), "{}", ran.stderr);
    assert!(!sandbox.file("server_info.json").exists());
    drop(taken);
    poll::until("the port to be free", || {
        let mut serve = sandbox.start(["serve", "--port", &port]);
        serve.line_within(poll::TIMEOUT).map(|_| serve.terminate())
    });
}
