//! Behind a real nginx, with the configuration that the documentation gives.

use serde_json::json;
use test_support::ca::{Life, PrivateCa};
use test_support::http::Request;
use test_support::nginx::{Nginx, documented};
use test_support::ports::free_port;
use test_support::tools;

use super::owner::Owner;

#[test]
fn a_hub_behind_nginx_is_reached_through_it_alone() {
    let (front, back) = (PrivateCa::new(), PrivateCa::new());
    front.issue_files(&["localhost"], Life::Long);
    back.issue_files(&["127.0.0.1"], Life::Long);
    let both = back.file().with_file_name("both.pem");
    let pem = [&front, &back].map(|ca| std::fs::read_to_string(ca.file()).unwrap()).concat();
    test_support::files::put(&both, pem);
    let public = free_port();
    let endpoint = format!("https://localhost:{public}/swarm");
    let alice = Owner::configured("alice", &endpoint, |port| {
        json!({ "swarm": {
            "listen": format!("127.0.0.1:{port}"), "behindProxy": "x-forwarded-for", "ca": both,
            "allow": ["127.0.0.0/8", "localhost"], "limits": { "perClient": 20 },
        }})
    });
    let _nginx = match Nginx::start(&documented(public, alice.port, &front), public) {
        Ok(nginx) => nginx,
        Err(reason) => return tools::skip("a_hub_behind_nginx_is_reached_through_it_alone", &reason),
    };
    let bob = Owner::believing(&back, &both, "bob");
    alice.ok(&["swarm", "create", "Research"]);
    let link = alice.ok(&["swarm", "invite"]);
    assert!(link.contains(&format!("@localhost:{public}?")), "{link}");
    bob.ok(&["swarm", "join", &link]);
    bob.ok(&["swarm", "send", "--to", "alice", "through the proxy"]);
    alice.gets("alice", "through the proxy");
    alice.ok(&["swarm", "send", "--to", "bob", "and back"]);
    bob.gets("bob", "and back");

    // A client is counted by the address that the proxy gives it: the last one, and no other's.
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
