//! Calls that succeed, and their limits.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, Version};
use test_support::ca::{PrivateCa, Validity};
use tokio::time::Instant;

use super::test_server::{Scripted, answer, get, settings};
use crate::listen_tests::{PATIENCE, Rig, with_timeout};
use crate::{Client, Error, Limits, Url};

const LIMITS: Limits = Limits { time: PATIENCE, body: 1024 };

#[tokio::test]
async fn client_negotiates_http2() {
    let rig = Rig::with(|_| {}).await;
    let client = Client::new(settings(&rig.ca.file())).unwrap();
    let url = Url::parse(&rig.url("/swarm/whoami")).unwrap();
    let answer = get(&client, &url).await.unwrap();
    assert_eq!(
        (answer.status, answer.version, &*answer.body),
        (StatusCode::OK, Version::HTTP_2, &b"127.0.0.1 HTTP/2.0"[..])
    );
    let date = answer.date.expect("the listener's clock");
    assert!(
        switchboard_sys::clock::Clock::system().now().duration_since(date).as_secs().abs() < 60,
        "{date}"
    );

    let echo = Url::parse(&rig.url("/echo")).unwrap();
    let body = Bytes::from_static(b"{\"a\":1}");
    let answer = client.post_json(&echo, HeaderMap::new(), body.clone(), LIMITS).await.unwrap();
    assert_eq!(answer.body, body);
    rig.stop().await;
}

#[tokio::test]
async fn connection_is_reused() {
    let ca = PrivateCa::new();
    let server = Scripted::good(&ca, answer("200 OK", "Date: Mon, 16 Nov 2026 09:00:00 GMT\r\n", "{}")).await;
    let client = Client::new(settings(&ca.file())).unwrap();
    for _ in 0..3 {
        let reply = get(&client, &server.url("localhost")).await.unwrap();
        assert_eq!((reply.version, &*reply.body), (Version::HTTP_11, &b"{}"[..]));
        assert_eq!(reply.date, Some("2026-11-16T09:00:00Z".parse().unwrap()));
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
    assert_eq!(server.requests.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn headers_are_sent_and_returned() {
    let ca = PrivateCa::new();
    let server =
        Scripted::good(&ca, answer("429 Too Many Requests", "Retry-After: 7\r\nDate: soon\r\n", "")).await;
    let client = Client::new(settings(&ca.file())).unwrap();
    let mut headers = HeaderMap::new();
    headers.insert("x-agent-id", HeaderValue::from_static("alice"));
    let reply = client.get(&server.url("localhost"), headers, LIMITS).await.unwrap();
    assert_eq!(
        (reply.status.as_u16(), &reply.headers["retry-after"], reply.date),
        (429, &HeaderValue::from_static("7"), None)
    );
}

#[tokio::test]
async fn redirect_is_not_followed() {
    let ca = PrivateCa::new();
    let elsewhere = Scripted::good(&ca, answer("200 OK", "", "")).await;
    let location = format!("Location: {}\r\n", elsewhere.url("localhost"));
    let server = Scripted::good(&ca, answer("307 Temporary Redirect", &location, "")).await;
    let client = Client::new(settings(&ca.file())).unwrap();
    let reply = get(&client, &server.url("localhost")).await.unwrap();
    assert_eq!(reply.status, StatusCode::TEMPORARY_REDIRECT);
    assert_eq!(elsewhere.connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn response_body_is_bounded() {
    let ca = PrivateCa::new();
    let certificate = ca.issue(&["localhost"], Validity::Valid, 1);
    let client = Client::new(settings(&ca.file())).unwrap();
    let exactly = Scripted::good(&ca, answer("200 OK", "", &"x".repeat(1024))).await;
    assert_eq!(get(&client, &exactly.url("localhost")).await.unwrap().body.len(), 1024);
    // One declares its length, one only exceeds the limit, and one declares less than it sends.
    let reply = answer("200 OK", "", &"x".repeat(1025));
    let unsaid = format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(100_000));
    let chunked = format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n800\r\n{}\r\n0\r\n\r\n",
        "x".repeat(0x800)
    );
    for script in [reply, unsaid, chunked] {
        let server = Scripted::start(&certificate, script, true).await;
        let refused = get(&client, &server.url("localhost")).await;
        assert!(matches!(refused, Err(Error::TooLarge { limit: 1024, .. })), "{refused:?}");
    }
    // A compressed response stays compressed: the client decompresses nothing.
    let packed = Scripted::good(&ca, answer("200 OK", "Content-Encoding: gzip\r\n", "not gzip at all")).await;
    assert_eq!(&*get(&client, &packed.url("localhost")).await.unwrap().body, b"not gzip at all");
}

#[tokio::test]
async fn call_times_out() {
    let ca = PrivateCa::new();
    let client = Client::new(settings(&ca.file())).unwrap();
    let limits = Limits { time: Duration::from_millis(200), body: 1024 };
    // A server that never responds, one that stops in the middle, and one that never completes the handshake.
    let silent = Scripted::good(&ca, "").await;
    let stopping = Scripted::good(&ca, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nab").await;
    let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let of_mute = Url::parse(&format!("https://localhost:{}/", mute.local_addr().unwrap().port())).unwrap();
    for url in [silent.url("localhost"), stopping.url("localhost"), of_mute] {
        let started = Instant::now();
        let ended = with_timeout(client.get(&url, HeaderMap::new(), limits)).await;
        assert!(matches!(ended, Err(Error::TimedOut { .. })), "{ended:?}");
        assert!(started.elapsed() >= limits.time);
        assert_eq!(ended.unwrap_err().to_string(), "localhost did not answer within 200 ms");
    }
}

#[tokio::test]
async fn hanging_host_leaves_permits_for_others() {
    let rig = Rig::with(|_| {}).await;
    let ca = PrivateCa::new();
    let other =
        Scripted::start(&ca.issue(&["127.0.0.1"], Validity::Valid, 1), answer("200 OK", "", "ok"), false)
            .await;
    let mut two_cas = std::fs::read(rig.ca.file()).unwrap();
    two_cas.extend(std::fs::read(ca.file()).unwrap());
    let both = ca.file().with_file_name("both.pem");
    test_support::files::put(&both, two_cas);
    let mut settings = settings(&both);
    settings.allow.push("127.0.0.0/8".to_owned());
    (settings.calls, settings.calls_per_host) = (2, 1);
    let client = Arc::new(Client::new(settings).unwrap());

    let url = Url::parse(&rig.url("/wait")).unwrap();
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let (client, url) = (Arc::clone(&client), url.clone());
            tokio::spawn(async move { get(&client, &url).await })
        })
        .collect();
    rig.gate.arrivals(1).await;
    // While one call hangs and two wait behind it, another host is reachable.
    assert_eq!(&*get(&client, &other.url("127.0.0.1")).await.unwrap().body, b"ok");
    assert_eq!(rig.gate.arrived.available_permits(), 0);
    rig.gate.open.add_permits(3);
    for call in waiting {
        assert_eq!(&*with_timeout(call).await.unwrap().unwrap().body, b"done");
    }
    rig.stop().await;
}
