//! A certificate by ACME, obtained by `serve` itself from a real server (pebble), and trusted by a peer.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use switchboard_https::{Client, ClientSettings, Limits, Url};
use test_support::ca::{PrivateCa, Validity};
use test_support::pebble::Pebble;
use test_support::ports::free_port;
use test_support::{files, poll, tools};

use super::owner::Owner;

/// Writes the root of pebble's chains and another authority into one file.
fn believed(pebble: &Pebble, other: &PrivateCa) -> PathBuf {
    let settings = ClientSettings {
        ca_file: Some(pebble.ca().file()),
        allow: vec!["127.0.0.0/8".to_owned()],
        ..ClientSettings::default()
    };
    let root = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let url = Url::parse(&pebble.root_url()).unwrap();
        let answer = Client::new(settings).unwrap().get(&url, <_>::default(), Limits::default()).await;
        String::from_utf8(answer.unwrap().body.to_vec()).unwrap()
    });
    let both = other.file().with_file_name("both.pem");
    files::put(&both, root + &std::fs::read_to_string(other.file()).unwrap());
    both
}

/// Checks two owners, one of which has its certificate by ACME.
fn meets_and_talks(test: &str, by_http: bool) {
    let ports = (free_port(), free_port());
    let pebble = match Pebble::start(ports.0, ports.1, Duration::from_hours(24 * 90)) {
        Ok(pebble) => pebble,
        Err(reason) => return tools::skip(test, &reason),
    };
    let ca = PrivateCa::new();
    ca.issue_files(&["127.0.0.1"], Validity::Valid);
    let both = believed(&pebble, &ca);
    let endpoint = if by_http {
        "https://localhost:PORT/swarm".to_owned()
    } else {
        format!("https://localhost:{}/swarm", ports.1)
    };
    let alice = Owner::configured("alice", &endpoint, |port| {
        let listen = if by_http { port } else { ports.1 };
        let http = if by_http { json!(format!("127.0.0.1:{}", ports.0)) } else { Value::Null };
        json!({ "swarm": {
            "listen": format!("127.0.0.1:{listen}"), "ca": both, "allow": ["127.0.0.0/8", "localhost"],
            "acme": { "names": ["localhost"], "agree": true, "contact": ["mailto:owner@example.org"],
                "directory": pebble.directory(), "ca": pebble.ca().file(), "httpListen": http },
        }})
    });
    let bob = Owner::trusting(&ca, &both, "bob");
    alice.ok(&["swarm", "create", "Research"]);
    let link = alice.ok(&["swarm", "invite"]);
    // Until the certificate is there every handshake fails, and joining can be retried.
    poll::until("the certificate is obtained", || {
        let joined = bob.sandbox.run(["swarm", "join", &link]);
        assert!(matches!(joined.code, Some(0 | 3)), "{}", joined.stderr);
        (joined.code == Some(0)).then_some(())
    });
    bob.ok(&["swarm", "send", "--to", "alice", "under a real certificate"]);
    alice.wait_for_message("alice", "under a real certificate");
    alice.ok(&["swarm", "send", "--to", "bob", "good to see it"]);
    bob.wait_for_message("bob", "good to see it");
    let kept = std::fs::read_dir(alice.sandbox.home().join(".swarm/acme")).unwrap().count();
    assert_eq!(kept, 2, "an account and a certificate");
}

#[test]
fn tls_alpn_certificate_is_trusted_by_peer() {
    meets_and_talks("tls_alpn_certificate_is_trusted_by_peer", false);
}

#[test]
fn http_certificate_is_trusted_by_peer() {
    meets_and_talks("http_certificate_is_trusted_by_peer", true);
}
