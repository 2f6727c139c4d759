//! Tests of slow, silent and greedy clients, and of too many clients.

use std::io::ErrorKind;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::http2::Http2;
use super::http3::Http3;
use super::rig::{Rig, ask, with_timeout};

const SHORT: Duration = Duration::from_millis(100);

/// Returns true if the server has closed the connection, gracefully or not.
async fn is_closed(stream: &mut (impl AsyncReadExt + Unpin)) -> bool {
    let mut rest = Vec::new();
    match with_timeout(stream.read_to_end(&mut rest)).await {
        Ok(_) => true,
        Err(error) => matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof),
    }
}

#[tokio::test]
async fn handshake_times_out() {
    let rig = Rig::with(|settings| settings.limits.handshake_timeout = SHORT).await;
    let mut silent = TcpStream::connect(rig.address()).await.unwrap();
    // This client sends the start of a ClientHello and nothing more.
    let mut slow = TcpStream::connect(rig.address()).await.unwrap();
    slow.write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
    assert!(is_closed(&mut silent).await);
    assert!(is_closed(&mut slow).await);
    rig.stop().await;
}

#[tokio::test]
async fn header_times_out() {
    let rig = Rig::with(|settings| settings.limits.header_timeout = SHORT).await;
    let mut stream = rig.connect(&[b"http/1.1"]).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: loc").await.unwrap();
    assert!(is_closed(&mut stream).await);
    rig.stop().await;
}

#[tokio::test]
async fn body_times_out() {
    let rig = Rig::with(|settings| settings.limits.body_timeout = SHORT).await;
    let mut stream = rig.connect(&[b"http/1.1"]).await.unwrap();
    let request = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nsome";
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    let _ = with_timeout(stream.read_to_end(&mut answer)).await;
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    rig.stop().await;
}

#[tokio::test]
async fn oversized_header_is_rejected() {
    let rig = Rig::with(|settings| settings.limits.head = 8192).await;
    let mut stream = rig.connect(&[b"http/1.1"]).await.unwrap();
    let request = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX-Much: {}\r\n\r\n", "x".repeat(10_000));
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = with_timeout(stream.read_to_end(&mut answer)).await;
    assert!(answer.starts_with(b"HTTP/1.1 431 "), "{}", String::from_utf8_lossy(&answer));
    let client = rig.client().http2_prior_knowledge().build().unwrap();
    match client.get(rig.url("/swarm/whoami")).header("x-much", "x".repeat(10_000)).send().await {
        Ok(response) => assert_eq!(response.status(), 431),
        Err(error) => assert!(!error.is_connect(), "{error:?}"),
    }
    rig.stop().await;
}

#[tokio::test]
async fn connections_per_client_are_limited() {
    let rig = Rig::with(|settings| settings.limits.connections_per_client = 2).await;
    let mut first = rig.connect(&[b"http/1.1"]).await.unwrap();
    let mut second = rig.connect(&[b"http/1.1"]).await.unwrap();
    assert!(rig.connect(&[b"http/1.1"]).await.is_err());
    for stream in [&mut first, &mut second] {
        ask(stream, "/swarm/whoami").await.unwrap();
    }
    first.shutdown().await.unwrap();
    drop(first);
    // The permit is released as soon as the listener notices the close.
    with_timeout(async { while rig.connect(&[b"http/1.1"]).await.is_err() {} }).await;
    rig.stop().await;
}

#[tokio::test]
async fn client_that_does_not_read_is_disconnected() {
    let rig = Rig::with(|settings| {
        settings.limits.connections = 1;
        settings.limits.write_timeout = SHORT;
    })
    .await;
    let mut greedy = rig.connect(&[b"http/1.1"]).await.unwrap();
    greedy.write_all(b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    // The only permit is released by the disconnected client and goes to another one.
    with_timeout(async { while rig.connect(&[b"http/1.1"]).await.is_err() {} }).await;
    rig.stop().await;
}

#[tokio::test]
async fn request_times_out_despite_pings() {
    let rig = Rig::with(|settings| settings.limits.request_timeout = SHORT).await;
    // The client is alive and answers pings, but its flow-control window stays closed.
    let mut client = Http2::connect(&rig).await;
    client.send(4, 0, 0, &[0, 4, 0, 0, 0, 0]).await;
    client.request("/swarm/whoami").await;
    assert!(with_timeout(client.rest()).await.iter().all(|frame| frame.kind != 0), "it was sent something");
    // The response to this request never starts.
    let mut waiting = rig.connect(&[b"http/1.1"]).await.unwrap();
    waiting.write_all(b"GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    assert!(is_closed(&mut waiting).await);
    rig.stop().await;
}

#[tokio::test]
async fn idle_http2_connection_is_closed() {
    let rig = Rig::with(|settings| settings.limits.idle_timeout = SHORT).await;
    let busy = rig.client().http2_prior_knowledge().build().unwrap();
    let busy = tokio::spawn(busy.get(rig.url("/wait")).send());
    rig.gate.arrivals(1).await;

    let mut idle = Http2::connect(&rig).await;
    let frames = with_timeout(idle.rest()).await;
    assert!(frames.iter().any(|frame| frame.kind == 7), "no GOAWAY in {frames:?}");

    rig.gate.open.add_permits(1);
    assert_eq!(with_timeout(busy).await.unwrap().unwrap().text().await.unwrap(), "done");
    rig.stop().await;
}

#[tokio::test]
async fn panic_closes_only_its_connection() {
    let rig = Rig::with(|settings| settings.http3 = true).await;
    let mut neighbour = rig.connect(&[b"http/1.1"]).await.unwrap();
    for client in [rig.client().http1_only(), rig.client().http2_prior_knowledge()] {
        assert!(client.build().unwrap().get(rig.url("/panic")).send().await.is_err());
    }
    let mut quic = Http3::connect(rig.address().port(), &rig.ca.file()).await;
    assert!(quic.ask(Method::GET, "/panic", Bytes::new()).await.is_err());
    // Over HTTP/3, only the stream fails.
    assert_eq!(quic.ask(Method::GET, "/swarm/whoami", Bytes::new()).await.unwrap().0, 200);
    assert_eq!(ask(&mut neighbour, "/swarm/whoami").await.unwrap(), "127.0.0.1 HTTP/1.1");
    drop(quic);
    rig.stop().await;
}

#[tokio::test]
async fn truncated_response_is_detected() {
    let rig = Rig::with(|settings| settings.http3 = true).await;
    for client in [rig.client().http1_only(), rig.client().http2_prior_knowledge()] {
        let sent = client.build().unwrap().get(rig.url("/half")).send().await;
        let read = match sent {
            Ok(response) => response.bytes().await.map(|_| ()),
            Err(error) => Err(error),
        };
        assert!(read.is_err());
    }
    let mut quic = Http3::connect(rig.address().port(), &rig.ca.file()).await;
    assert!(quic.ask(Method::GET, "/half", Bytes::new()).await.is_err());
    drop(quic);
    rig.stop().await;
}
