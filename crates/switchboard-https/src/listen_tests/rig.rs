//! Test fixture: a listener with a small application, and clients for it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::routing::{get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use futures_util::stream;
use http::Version;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use test_support::ca::{PrivateCa, Validity};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::{ClientAddress, ListenerHandle, Mode, Settings, listen, trust};

/// Timeout that suffices on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A body of many packets.
pub(crate) const LONG: &[u8] = &[b'x'; 1024 * 1024];

/// Control over the application's `/wait` route.
#[derive(Clone)]
pub(crate) struct Gate {
    /// Requests to `/wait` that have arrived.
    pub(crate) arrived: Arc<Semaphore>,
    /// Permits to complete requests to `/wait`.
    pub(crate) open: Arc<Semaphore>,
}

/// A running listener and its CA.
pub(crate) struct Rig {
    pub(crate) ca: PrivateCa,
    pub(crate) listening: ListenerHandle,
    pub(crate) shutdown: CancellationToken,
    pub(crate) gate: Gate,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self { arrived: Arc::new(Semaphore::new(0)), open: Arc::new(Semaphore::new(0)) }
    }

    /// Waits until `count` requests to `/wait` have arrived.
    pub(crate) async fn arrivals(&self, count: u32) {
        with_timeout(self.arrived.acquire_many(count)).await.unwrap().forget();
    }
}

/// Builds the routes that report the client, echo a body, wait, and return a long body.
pub(crate) fn app(gate: Gate) -> Router {
    let whoami = |Extension(ClientAddress(address)): Extension<ClientAddress>, version: Version| async move {
        format!("{address} {version:?}")
    };
    let pass = |gate: Gate| async move {
        gate.arrived.add_permits(1);
        gate.open.acquire().await.unwrap().forget();
    };
    Router::new()
        .route("/swarm/whoami", get(whoami))
        .route("/echo", post(|body: Bytes| async { body }))
        .route(
            "/wait",
            get(async move |State(gate): State<Gate>| {
                pass(gate).await;
                "done"
            }),
        )
        .route(
            "/wait-long",
            get(async move |State(gate): State<Gate>| {
                pass(gate).await;
                LONG
            }),
        )
        .route("/panic", get(async || -> &'static str { panic!("on purpose") }))
        .route("/half", get(async || Body::from_stream(stream::iter([Ok("half"), Err("on purpose")]))))
        .route("/long", get(|| async { vec![b'x'; 64 * 1024 * 1024] }))
        .with_state(gate)
}

impl Rig {
    /// Starts a listener with modified settings and a certificate for `localhost` from files.
    pub(crate) async fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let ca = PrivateCa::new();
        let (cert, key) = ca.issue_files(&["localhost"], Validity::Valid);
        let mut settings = Settings::new(any_port(), Mode::Files { cert, key });
        settings.poll_interval = Duration::from_millis(20);
        change(&mut settings);
        let (gate, shutdown) = (Gate::new(), CancellationToken::new());
        let listening = listen(settings, app(gate.clone()), shutdown.clone()).await.unwrap();
        Self { ca, listening, shutdown, gate }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listening.local_addr()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.address().port())
    }

    /// Returns a client that trusts only the test's CA.
    pub(crate) fn client(&self) -> reqwest::ClientBuilder {
        client(&self.ca.file())
    }

    /// Opens a TLS connection without a request.
    pub(crate) async fn connect(&self, protocols: &[&[u8]]) -> std::io::Result<TlsStream<TcpStream>> {
        connect(self.address(), tls(&self.ca.file(), protocols)).await
    }

    /// Shuts the listener down and waits for its end.
    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        with_timeout(self.listening.finished()).await;
    }
}

pub(crate) fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Waits for a future with a timeout.
pub(crate) async fn with_timeout<F: Future>(future: F) -> F::Output {
    timeout(PATIENCE, future).await.expect("waited in vain")
}

pub(crate) fn client(ca: &Path) -> reqwest::ClientBuilder {
    let ca = reqwest::Certificate::from_pem(&std::fs::read(ca).unwrap()).unwrap();
    reqwest::Client::builder().no_proxy().tls_certs_only([ca]).timeout(PATIENCE)
}

/// Returns the TLS configuration of a raw client.
pub(crate) fn tls(ca: &Path, protocols: &[&[u8]]) -> ClientConfig {
    let mut root_store = RootCertStore::empty();
    root_store.add(CertificateDer::from_pem_slice(&std::fs::read(ca).unwrap()).unwrap()).unwrap();
    let mut config = ClientConfig::builder_with_provider(trust::crypto_provider())
        .with_protocol_versions(trust::TLS_VERSIONS)
        .unwrap()
        .with_root_certificates(root_store)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    config
}

pub(crate) async fn connect(
    address: SocketAddr,
    config: ClientConfig,
) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    with_timeout(TlsConnector::from(Arc::new(config)).connect(name, stream)).await
}

/// Sends a request on a connection that stays open, and returns the response body.
pub(crate) async fn ask(stream: &mut TlsStream<TcpStream>, path: &str) -> std::io::Result<String> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    with_timeout(read_answer(stream)).await
}

/// Reads exactly one response.
pub(crate) async fn read_answer(stream: &mut TlsStream<TcpStream>) -> std::io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
    let mut body = vec![0; length.trim().parse().unwrap()];
    stream.read_exact(&mut body).await?;
    Ok(String::from_utf8(body).unwrap())
}

/// Returns the serial number of the server's certificate.
pub(crate) fn certificate_serial(stream: &TlsStream<TcpStream>) -> String {
    let chain = stream.get_ref().1.peer_certificates().unwrap();
    crate::Certificate::read(&chain[0]).unwrap().serial
}
