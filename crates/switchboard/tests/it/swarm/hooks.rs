//! Webhooks in both directions through `serve`: GitHub events arrive, and the owner's URL is called.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use test_support::ca::{PrivateCa, Validity};
use test_support::http::Request;
use test_support::ports::free_port;

use super::owner::{Owner, files};

const SECRET: &str = "sixteen letters, at least";

/// Returns HMAC with SHA-256, RFC 2104, of a key that is shorter than a block.
fn signature(body: &[u8]) -> String {
    let pad = |with: u8| {
        let mut block = [with; 64];
        block.iter_mut().zip(SECRET.bytes()).for_each(|(byte, key)| *byte ^= key);
        block
    };
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(body).finalize();
    let outer = Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize();
    let digits: Vec<String> = outer.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256={}", digits.concat())
}

/// Starts a listener for sequential requests; it yields the headers in lower case, and the body.
fn address() -> (String, mpsc::Receiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/api/wake", listener.local_addr().unwrap());
    // More than the test sends.
    let (notices, calls) = mpsc::sync_channel(16);
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                reader.read_line(&mut head).unwrap();
            }
            let head = head.to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            let mut body = vec![0; length.parse().unwrap()];
            reader.read_exact(&mut body).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
            if notices.send((head, serde_json::from_slice(&body).unwrap())).is_err() {
                return;
            }
        }
    });
    (url, calls)
}

#[test]
fn github_event_reaches_swarm_and_owner() {
    let ca = PrivateCa::new();
    ca.issue_files(&["127.0.0.1"], Validity::Valid);
    let hooks = free_port();
    let alice = Owner::configured("alice", "https://127.0.0.1:PORT/swarm", |port| {
        let mut section = files(&ca, &ca.file(), port);
        section["github"] = json!({ "listen": format!("127.0.0.1:{hooks}"), "behindProxy": "x-forwarded-for",
            "secret": SECRET, "swarm": "research", "repos": ["acme/parser"] });
        json!({ "swarm": section })
    });
    let (url, calls) = address();
    let folder = tempfile::tempdir().unwrap();
    let woken = folder.path().join("woken.json");
    let program = format!("cat > {0}.part && mv {0}.part {0}", woken.display());
    let bob = Owner::configured("bob", "https://127.0.0.1:PORT/swarm", |port| {
        let mut section = files(&ca, &ca.file(), port);
        let command = ["/bin/sh", "-c", &program];
        section["wake"] = json!({ "command": command, "url": url, "secret": "a word", "pauseMs": 0 });
        json!({ "swarm": section })
    });
    alice.ok(&["swarm", "create", "Research"]);
    bob.ok(&["swarm", "join", &alice.ok(&["swarm", "invite"])]);

    let body = json!({
        "action": "opened", "repository": { "full_name": "acme/parser" },
        "pull_request": { "number": 9, "title": "Faster", "html_url": "https://github.com/acme/parser/pull/9" },
    });
    let post = || Request::post("/hooks/github", &body).header("X-GitHub-Event", "pull_request");
    assert_eq!(post().send(hooks).unwrap().status, 401);
    let forged = post().header("X-Hub-Signature-256", &signature(b"another body"));
    assert_eq!(forged.send(hooks).unwrap().status, 401);
    let signed = signature(body.to_string().as_bytes());
    for _ in 0..2 {
        let request = post().header("X-Hub-Signature-256", &signed).header("X-GitHub-Delivery", "one");
        let answer = request.send(hooks).unwrap();
        assert_eq!(answer.status, 200);
        let reply: Value = serde_json::from_str(&answer.text().unwrap()).unwrap();
        assert_eq!(reply["status"], "queued");
    }
    let text = "New pull request: #9 Faster";
    bob.wait_for_message("bob", text);
    let heard = bob.json(&["swarm", "messages"]);
    assert_eq!(heard.iter().filter(|message| message["content"] == text).count(), 1, "{heard:?}");

    // Bob's owner was called with ids and the secret, and without any foreign text.
    let (head, reply) = calls.recv_timeout(Duration::from_mins(1)).unwrap();
    assert!(head.starts_with("post /api/wake ") && head.contains("x-wake-secret: a word"), "{head}");
    assert_eq!((&reply["event"], &reply["sender_id"]), (&json!("swarm_message"), &json!("alice")));
    assert!(!reply.to_string().contains("Faster"), "{reply}");
    let read: Value = serde_json::from_slice(&std::fs::read(&woken).unwrap()).unwrap();
    assert_eq!(read, reply, "the program has read the same, before");
}
