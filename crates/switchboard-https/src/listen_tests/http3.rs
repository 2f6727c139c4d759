//! HTTP/3 with a client on quinn and h3.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use http::{Method, Request, StatusCode};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{Connection, Endpoint};
use test_support::ca::Life;
use tokio::task::JoinHandle;

use super::rig::{LONG, PATIENCE, Rig, tls, within};

/// A client's connection, with the task that keeps it going.
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
        let quic = within(connecting).await.unwrap();
        let (mut driver, requests) = h3::client::new(h3_quinn::Connection::new(quic.clone())).await.unwrap();
        let driver = tokio::spawn(async move {
            let _ = poll_fn(|context| driver.poll_close(context)).await;
        });
        Self { quic, requests, driver, _endpoint: endpoint }
    }

    /// Sends a request and reads the whole answer.
    pub(super) async fn ask(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Vec<u8>), h3::error::StreamError> {
        self.ask_with(method, path, None, body).await
    }

    /// The same, with a length in the head that may be a lie.
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
        let mut stream = within(self.requests.send_request(request)).await?;
        if !body.is_empty() {
            within(stream.send_data(body)).await?;
        }
        within(stream.finish()).await?;
        let response = within(stream.recv_response()).await?;
        let mut answer = Vec::new();
        while let Some(mut piece) = within(stream.recv_data()).await? {
            answer.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
        }
        Ok((response.status(), answer))
    }

    /// The serial number of the certificate that it was shown.
    pub(super) fn shown(&self) -> String {
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
    // More than the library may hold at once.
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
async fn a_body_is_as_long_as_its_head_says() {
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
async fn a_changed_certificate_is_shown_over_http3_too() {
    let rig = rig().await;
    let port = rig.address().port();
    let mut old = Http3::connect(port, &rig.ca.file()).await;
    assert_eq!(old.shown(), "01");
    let mut certificate = rig.listening.certificate();
    certificate.mark_unchanged();
    let (cert, key) = (rig.ca.file().with_file_name("cert.pem"), rig.ca.file().with_file_name("key.pem"));
    rig.ca.issue(&["localhost"], Life::Long, 2).write(&cert, &key);
    within(certificate.changed()).await.unwrap();
    assert_eq!(Http3::connect(port, &rig.ca.file()).await.shown(), "02");
    assert_eq!(old.ask(Method::GET, "/swarm/whoami", Bytes::new()).await.unwrap().0, 200);
    drop(old);
    rig.stop().await;
}

#[tokio::test]
async fn an_answer_in_flight_is_finished_over_http3() {
    let rig = rig().await;
    let mut client = Http3::connect(rig.address().port(), &rig.ca.file()).await;
    let asking = tokio::spawn(async move { client.ask(Method::GET, "/wait-long", Bytes::new()).await });
    rig.gate.arrivals(1).await;
    rig.shutdown.cancel();
    rig.gate.open.add_permits(1);
    let (status, body) = within(asking).await.unwrap().unwrap();
    assert_eq!(status, 200);
    assert!(body == LONG, "only {} bytes came", body.len());
    within(rig.listening.finished()).await;
}

/// Writes the beginning of a frame that says it has a gigabyte, and then of that as much as it can.
async fn pour(connection: &Connection, kind: u8) -> (usize, quinn::WriteError) {
    let (mut send, _recv) = connection.open_bi().await.unwrap();
    send.write_all(&[kind, 0xc0, 0, 0, 0, 0x40, 0, 0, 0]).await.unwrap();
    let piece = vec![0; 16 * 1024];
    let mut poured = 0;
    loop {
        match within(send.write(&piece)).await {
            Ok(written) => poured += written,
            Err(error) => return (poured, error),
        }
    }
}

#[tokio::test]
async fn a_frame_without_end_is_not_kept() {
    let rig = rig().await;
    let mut client = Http3::connect(rig.address().port(), &rig.ca.file()).await;
    // A head, and a frame of a kind that nobody knows.
    for kind in [1, 0x21] {
        let (poured, error) = pour(&client.quic, kind).await;
        // What was on its way when the stream was stopped, beside what the library may hold.
        assert!(poured < 2 * 1024 * 1024, "kind {kind}: {poured} bytes were taken");
        assert!(matches!(error, quinn::WriteError::Stopped(_)), "{error:?}");
    }
    // The others on the connection do not notice.
    assert_eq!(client.ask(Method::GET, "/swarm/whoami", Bytes::new()).await.unwrap().0, 200);
    drop(client);
    rig.stop().await;
}

#[tokio::test]
async fn places_are_shared_with_tcp() {
    let rig = Rig::with(|settings| {
        settings.http3 = true;
        settings.limits.connections_per_client = 1;
    })
    .await;
    let tcp = rig.connect(&[b"http/1.1"]).await.unwrap();
    let config = QuicClientConfig::try_from(tls(&rig.ca.file(), &[b"h3"])).unwrap();
    let mut endpoint = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(config)));
    let refused = within(endpoint.connect(rig.address(), "localhost").unwrap()).await;
    assert!(matches!(refused, Err(quinn::ConnectionError::ConnectionClosed(_))), "{refused:?}");
    drop(tcp);
    rig.stop().await;
}
