//! Behind a real nginx, with the configuration of the documentation.

use serde_json::{Value, json};
use test_support::ca::{PrivateCa, Validity};
use test_support::http::Request;
use test_support::nginx::{Nginx, documented};
use test_support::ports::free_port;
use test_support::{Sandbox, tools};

use super::owner::Owner;
use crate::BINARY;

/// Checks two owners, one of them behind nginx, as `settings` or the arguments of `serve` configure it.
fn meets_and_talks(test: &str, settings: impl FnOnce(u16) -> Value, args: &[&str]) {
    let (front, back) = (PrivateCa::new(), PrivateCa::new());
    front.issue_files(&["localhost"], Validity::Valid);
    back.issue_files(&["127.0.0.1"], Validity::Valid);
    let both = back.file().with_file_name("both.pem");
    let pem = [&front, &back].map(|ca| std::fs::read_to_string(ca.file()).unwrap()).concat();
    test_support::files::put(&both, pem);
    let public = free_port();
    let endpoint = format!("https://localhost:{public}/swarm");
    let alice = Owner::started(
        "alice",
        &endpoint,
        |port| {
            let mut section = settings(port);
            section["ca"] = json!(both);
            section["allow"] = json!(["127.0.0.0/8", "localhost"]);
            section["limits"] = json!({ "perClient": 20 });
            json!({ "swarm": section })
        },
        args,
    );
    let _nginx = match Nginx::start(&documented(public, alice.port, &front), public) {
        Ok(nginx) => nginx,
        Err(reason) => return tools::skip(test, &reason),
    };
    let bob = Owner::trusting(&back, &both, "bob");
    alice.ok(&["swarm", "create", "Research"]);
    let link = alice.ok(&["swarm", "invite"]);
    assert!(link.contains(&format!("@localhost:{public}?")), "{link}");
    bob.ok(&["swarm", "join", &link]);
    bob.ok(&["swarm", "send", "--to", "alice", "through the proxy"]);
    alice.wait_for_message("alice", "through the proxy");
    alice.ok(&["swarm", "send", "--to", "bob", "and back"]);
    bob.wait_for_message("bob", "and back");

    // A client is counted by the address that the proxy adds: the last one, and no other.
    let ask = |address: &str| {
        let request = Request::new("GET", "/swarm/health").header("X-Forwarded-For", address);
        request.send(alice.port).unwrap().status
    };
    let flood: Vec<u16> = (0..21).map(|n| ask(&format!("198.51.100.{n}, 203.0.113.9"))).collect();
    assert_eq!(flood[..20], [200; 20]);
    assert_eq!(flood[20], 429);
    assert_eq!(ask("203.0.113.9, 198.51.100.1"), 200, "another client is served");
    assert_eq!(ask("rubbish"), 400);
}

#[test]
fn hub_is_reachable_only_through_nginx() {
    let settings = |port| json!({ "listen": format!("127.0.0.1:{port}"), "behindProxy": "x-forwarded-for" });
    meets_and_talks("hub_is_reachable_only_through_nginx", settings, &[]);
}

/// Flags take precedence over the settings, which name a certificate that does not exist.
#[test]
fn flags_configure_a_reverse_proxy() {
    let settings =
        |_| json!({ "listen": "0.0.0.0:443", "cert": "/nowhere/cert.pem", "key": "/nowhere/key.pem" });
    let args = ["--behind-proxy", "X-Forwarded-For", "--swarm-listen", "127.0.0.1:PORT"];
    meets_and_talks("flags_configure_a_reverse_proxy", settings, &args);
}

/// Plain HTTP is refused on every address except a loopback one.
#[test]
fn unusable_flags_are_named() {
    let sandbox = Sandbox::with_agents(BINARY, &["codex"]);
    let fails = |args: &[&str], code: i32, word: &str| {
        let ran = sandbox.run([&["serve", "--port", "0"], args].concat());
        assert_eq!(ran.code, Some(code), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(word), "{args:?}: {}", ran.stderr);
    };
    fails(&["--behind-proxy", "no header"], 2, "--behind-proxy");
    fails(&["--swarm-listen", "127.0.0.1:8443"], 2, "--behind-proxy");
    fails(&["--behind-proxy", "x-forwarded-for", "--swarm-listen", "8443"], 2, "--swarm-listen");
    fails(&["--behind-proxy", "x-forwarded-for", "--swarm-listen", "0.0.0.0:0"], 1, "loopback");
    fails(&["--behind-proxy", "forwarded", "--swarm-listen", "127.0.0.1:0"], 1, "x-forwarded-for");
    sandbox.configure_user(r#"{ "swarm": { "enabled": false } }"#);
    fails(&["--behind-proxy", "x-forwarded-for"], 2, "swarm.enabled");
}
