//! `switchboard router --listen` on the machine's own network.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use serde_json::{Value, json};
use test_support::files;

use super::schema;
use crate::workspace;

/// A client on a socket.
struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    fn to(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(test_support::poll::TIMEOUT)).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    /// Sends a request and returns the answer; `None` if the router hung up.
    fn request(&mut self, id: &str, command: &str, payload: &Value) -> Option<Value> {
        writeln!(self.stream.get_mut(), "{}", schema::command(id, command, payload)).ok()?;
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            let event = schema::event(&line);
            if event["data"]["request_id"] == id {
                return Some(event);
            }
        }
    }
}

#[test]
fn each_token_opens_its_owner_jobs() {
    let sandbox = workspace();
    let (alice, bob) = ("a".repeat(43), "b".repeat(43));
    let tokens = sandbox.path().join("tokens");
    files::put(&tokens, format!("alice {alice}\nbob {bob}\n"));
    let args = ["router", "--listen", "127.0.0.1:0", "--tokens", tokens.to_str().unwrap()];
    let mut router = sandbox.start(args);
    let line = router.line();
    assert!(line.starts_with("Listening on 127.0.0.1:"), "{line}");
    let signpost: Value =
        serde_json::from_str(&std::fs::read_to_string(sandbox.file("router.json")).unwrap()).unwrap();
    let address = signpost["listen"].as_str().unwrap();
    let mut stranger = Client::to(address);
    let refused = stranger.request("1", "jobs_list", &json!({})).unwrap();
    assert_eq!(refused["data"]["code"], "not_allowed");
    let mut wrong = Client::to(address);
    let refused = wrong.request("1", "hello", &json!({ "token": "c".repeat(43) })).unwrap();
    assert_eq!(refused["data"]["code"], "not_allowed");
    let hello = |token: &str| {
        let mut client = Client::to(address);
        assert_eq!(client.request("1", "hello", &json!({ "token": token })).unwrap()["event"], "hello");
        client
    };
    let (mut first, mut second) = (hello(&alice), hello(&bob));
    let launched = first.request("2", "launch", &json!({ "agent": "echo", "job_id": "hers" })).unwrap();
    assert_eq!(launched["data"]["owner"], "alice");
    assert_eq!(second.request("2", "jobs_list", &json!({})).unwrap()["data"]["jobs"], json!([]));
    let refused = second.request("3", "job_status", &json!({ "job_id": "hers" })).unwrap();
    assert_eq!(refused["data"]["code"], "not_allowed");
    // The command line finds the address and its own token.
    assert_eq!(sandbox.json(["worker", "list"])[0]["job_id"], "hers");
    assert!(router.terminate().success());
    assert!(!sandbox.file("router.json").exists());
}
