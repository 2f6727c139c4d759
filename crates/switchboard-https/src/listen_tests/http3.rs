//! Tests of HTTP/3 with a client built on quinn and h3.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use http::{Method, Request, StatusCode};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{Connection, Endpoint};
use test_support::ca::Validity;
use tokio::task::JoinHandle;

use super::rig::{LONG, PATIENCE, Rig, tls, with_timeout};

/// Client connection and the task that drives it.
pub(super) struct Http3 {
    pub(super) quic: Connection,
    requests: h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>,
    driver: JoinHandle<()>,
    _endpoint: Endpoint,
}

impl Http3 {
    pub(super) async fn connect(port: u16, ca: &std::path::Path) -> Self {
        let config = QuicClientConfig::try_from(tls(ca, &[b"h3"])).unwrap();
        let mut endpoint = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
        endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(config)));
        let connecting = endpoint.connect(([127, 0, 0, 1], port).into(), "localhost").unwrap();
        let quic = with_timeout(connecting).await.unwrap();
        let (mut driver, requests) = h3::client::new(h3_quinn::Connection::new(quic.clone())).await.unwrap();
        let driver = tokio::spawn(async move {
            let _ = poll_fn(|context| driver.poll_close(context)).await;
        });
        Self { quic, requests, driver, _endpoint: endpoint }
    }

    /// Sends a request and reads the complete response.
    pub(super) async fn ask(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Vec<u8>), h3::error::StreamError> {
        self.ask_with(method, path, None, body).await
    }

    /// Sends a request with the given `Content-Length`, which may be wrong.
    async fn ask_with(
        &mut self,
        method: Method,
        path: &str,
        length: Option<usize>,
        body: Bytes,
    ) -> Result<(StatusCode, Vec<u8>), h3::error::StreamError> {
        let mut request =
            Request::builder().method(method).uri(format!("https://localhost{path}")).body(()).unwrap();
        if let Some(length) = length {
            request.headers_mut().insert("content-length", length.into());
        }
        let mut stream = with_timeout(self.requests.send_request(request)).await?;
        if !body.is_empty() {
            with_timeout(stream.send_data(body)).await?;
        }
        with_timeout(stream.finish()).await?;
        let response = with_timeout(stream.recv_response()).await?;
        let mut answer = Vec::new();
        while let Some(mut piece) = with_timeout(stream.recv_data()).await? {
            answer.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
        }
        Ok((response.status(), answer))
    }

    /// Returns the serial number of the server's certificate.
    pub(super) fn certificate_serial(&self) -> String {
        let identity = self.quic.peer_identity().unwrap();
        let chain = identity.downcast::<Vec<rustls::pki_types::CertificateDer<'static>>>().unwrap();
        crate::Certificate::read(&chain[0]).unwrap().serial
    }
}

impl Drop for Http3 {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

async fn rig() -> Rig {
    Rig::with(|settings| {
        settings.http3 = true;
        settings.limits.shutdown_grace = PATIENCE;
    })
    .await
}

#[tokio::test]
async fn http3_is_served_and_announced() {
    let rig = rig().await;
    let port = rig.address().port();
    let response = rig.client().build().unwrap().get(rig.url("/swarm/whoami")).send().await.unwrap();
    assert_eq!(response.headers()["alt-svc"], format!("h3=\":{port}\"; ma=86400"));

    let mut client = Http3::connect(port, &rig.ca.file()).await;
    let (status, body) = client.ask(Method::GET, "/swarm/whoami", Bytes::new()).await.unwrap();
    assert_eq!((status.as_u16(), &*body), (200, &b"127.0.0.1 HTTP/3.0"[..]));
    // The body is larger than what h3 may buffer.
    let large = Bytes::from(vec![b'y'; 1024 * 1024]);
    let (status, body) = client.ask(Method::POST, "/echo", large.clone()).await.unwrap();
    assert_eq!(status, 200);
    assert!(body == large);
    let (status, _) = client.ask(Method::GET, "/nowhere", Bytes::new()).await.unwrap();
    assert_eq!(status, 404);
    drop(client);
    rig.stop().await;
}

#[tokio::test]
async fn body_must_match_content_length() {
    let rig = rig().await;
    let mut client = Http3::connect(rig.address().port(), &rig.ca.file()).await;
    for (length, status) in [(None, 200), (Some(4), 200), (Some(5), 400), (Some(3), 400), (Some(0), 400)] {
        let body = Bytes::from_static(b"body");
        let answer = client.ask_with(Method::POST, "/echo", length, body).await.unwrap();
        assert_eq!(answer.0, status, "{length:?}");
    }
    drop(client);
    rig.stop().await;
}

#[tokio::test]
async fn http3_uses_reloaded_certificate() {
    let rig = rig().await;
    let port = rig.address().port();
    let mut old = Http3::connect(port, &rig.ca.file()).await;
    assert_eq!(old.certificate_serial(), "01");
    let mut certificate = rig.listening.certificate();
    certificate.mark_unchanged();
    let (cert, key) = (rig.ca.file().with_file_name("cert.pem"), rig.ca.file().with_file_name("key.pem"));
    rig.ca.issue(&["localhost"], Validity::Valid, 2).write(&cert, &key);
    with_timeout(certificate.changed()).await.unwrap();
    assert_eq!(Http3::connect(port, &rig.ca.file()).await.certificate_serial(), "02");
    assert_eq!(old.ask(Method::GET, "/swarm/whoami", Bytes::new()).await.unwrap().0, 200);
    drop(old);
    rig.stop().await;
}

#[tokio::test]
async fn http3_shutdown_finishes_responses_in_flight() {
    let rig = rig().await;
    let mut client = Http3::connect(rig.address().port(), &rig.ca.file()).await;
    let asking = tokio::spawn(async move { client.ask(Method::GET, "/wait-long", Bytes::new()).await });
    rig.gate.arrivals(1).await;
    rig.shutdown.cancel();
    rig.gate.open.add_permits(1);
    let (status, body) = with_timeout(asking).await.unwrap().unwrap();
    assert_eq!(status, 200);
    assert!(body == LONG, "only {} bytes came", body.len());
    with_timeout(rig.listening.finished()).await;
}

/// Declares a frame of a gigabyte, then writes as much of it as possible.
async fn write_endless_frame(connection: &Connection, kind: u8) -> (usize, quinn::WriteError) {
    let (mut send, _recv) = connection.open_bi().await.unwrap();
    send.write_all(&[kind, 0xc0, 0, 0, 0, 0x40, 0, 0, 0]).await.unwrap();
    let piece = vec![0; 16 * 1024];
    let mut poured = 0;
    loop {
        match with_timeout(send.write(&piece)).await {
            Ok(written) => poured += written,
            Err(error) => return (poured, error),
        }
    }
}

#[tokio::test]
async fn endless_frame_is_not_buffered() {
    let rig = rig().await;
    let mut client = Http3::connect(rig.address().port(), &rig.ca.file()).await;
    // The frame kinds are HEADERS and an unknown type.
    for kind in [1, 0x21] {
        let (poured, error) = write_endless_frame(&client.quic, kind).await;
        // The bound covers bytes in flight when the stream was stopped, and bytes that h3 may buffer.
        assert!(poured < 2 * 1024 * 1024, "kind {kind}: {poured} bytes were taken");
        assert!(matches!(error, quinn::WriteError::Stopped(_)), "{error:?}");
    }
    // Other streams of the connection are not affected.
    assert_eq!(client.ask(Method::GET, "/swarm/whoami", Bytes::new()).await.unwrap().0, 200);
    drop(client);
    rig.stop().await;
}

#[tokio::test]
async fn permits_are_shared_with_tcp() {
    let rig = Rig::with(|settings| {
        settings.http3 = true;
        settings.limits.connections_per_client = 1;
    })
    .await;
    let tcp = rig.connect(&[b"http/1.1"]).await.unwrap();
    let config = QuicClientConfig::try_from(tls(&rig.ca.file(), &[b"h3"])).unwrap();
    let mut endpoint = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(config)));
    let refused = with_timeout(endpoint.connect(rig.address(), "localhost").unwrap()).await;
    assert!(matches!(refused, Err(quinn::ConnectionError::ConnectionClosed(_))), "{refused:?}");
    drop(tcp);
    rig.stop().await;
}
