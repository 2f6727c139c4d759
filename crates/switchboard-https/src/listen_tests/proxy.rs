//! Tests of a listener behind a real nginx, with the configuration from the documentation.

use http::HeaderName;
use test_support::ca::PrivateCa;
use test_support::nginx::{Nginx, documented};
use test_support::ports::free_port;
use test_support::tools;
use tokio_util::sync::CancellationToken;

use super::rig::{Gate, any_port, app, client, with_timeout};
use crate::{ListenerHandle, Mode, Settings, listen};

async fn start() -> (ListenerHandle, CancellationToken) {
    let mode = Mode::BehindProxy { header: HeaderName::from_static("x-forwarded-for") };
    let shutdown = CancellationToken::new();
    let settings = Settings::new(any_port(), mode);
    (listen(settings, app(Gate::new()), shutdown.clone()).await.unwrap(), shutdown)
}

#[tokio::test(flavor = "multi_thread")]
async fn nginx_forwards_client_address() {
    let (listening, shutdown) = start().await;
    let (ca, port) = (PrivateCa::new(), free_port());
    let config = documented(port, listening.local_addr().port(), &ca);
    let _nginx = match Nginx::start(&config, port) {
        Ok(nginx) => nginx,
        Err(reason) => return tools::skip("nginx_says_who_the_client_is", &reason),
    };
    let client = client(&ca.file()).build().unwrap();
    let url = format!("https://localhost:{port}/swarm/whoami");
    // A spoofed header changes nothing: the client is identified by its own address.
    for claim in [None, Some("203.0.113.9"), Some("203.0.113.9, 10.0.0.1"), Some("rubbish")] {
        let mut request = client.get(&url);
        if let Some(claim) = claim {
            request = request.header("x-forwarded-for", claim).header("x-real-ip", claim);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.text().await.unwrap(), "127.0.0.1 HTTP/1.1", "{claim:?}");
    }
    // Only the swarm's paths are forwarded.
    let elsewhere = client.get(format!("https://localhost:{port}/wait")).send().await.unwrap();
    assert_eq!(elsewhere.status(), 404);
    // The proxy rejects large bodies.
    let large = client.post(&url).body(vec![b'x'; 2 * 1024 * 1024]).send().await.unwrap();
    assert_eq!(large.status(), 413);
    shutdown.cancel();
    with_timeout(listening.finished()).await;
}

#[tokio::test]
async fn last_forwarded_address_is_used() {
    let (listening, shutdown) = start().await;
    let url = format!("http://{}/swarm/whoami", listening.local_addr());
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    for (headers, answer) in [
        (&[][..], "127.0.0.1"),
        (&["203.0.113.9"], "203.0.113.9"),
        (&["203.0.113.9, 198.51.100.7"], "198.51.100.7"),
        (&["203.0.113.9", "198.51.100.7"], "198.51.100.7"),
        (&["::ffff:198.51.100.7"], "198.51.100.7"),
        (&["unknown"], "400"),
        (&["203.0.113.9, "], "400"),
    ] {
        let mut request = client.get(&url);
        for header in headers {
            request = request.header("x-forwarded-for", *header);
        }
        let response = request.send().await.unwrap();
        let address = match response.status().as_u16() {
            200 => response.text().await.unwrap().split(' ').next().unwrap().to_owned(),
            status => status.to_string(),
        };
        assert_eq!(address, answer, "{headers:?}");
    }
    shutdown.cancel();
    with_timeout(listening.finished()).await;
}
