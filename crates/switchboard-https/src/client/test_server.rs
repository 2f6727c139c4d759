//! Scripted server over real TLS.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::HeaderMap;
use test_support::ca::{Issued, PrivateCa, Validity};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::certificate::{CurrentCertificate, LoadedCertificate};
use crate::listen::tls_config;
use crate::{Client, ClientSettings, Error, Limits, Response, Url};

/// Server with one certificate that sends the same bytes for each request, over HTTP/1.1.
pub(super) struct Scripted {
    pub(super) address: SocketAddr,
    pub(super) connections: Arc<AtomicUsize>,
    pub(super) requests: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Scripted {
    /// Starts the server. `answer` is the response; `ends` is true if it closes the connection after it.
    pub(super) async fn start(issued: &Issued, answer: impl Into<Bytes>, ends: bool) -> Self {
        let current = CurrentCertificate::empty();
        current.show(
            LoadedCertificate::from_pem("a test's", issued.cert.as_bytes(), issued.key.as_bytes()).unwrap(),
        );
        let acceptor = TlsAcceptor::from(tls_config(current, &[b"http/1.1"]).unwrap());
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let (connections, requests) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counted, counter, answer) = (Arc::clone(&connections), Arc::clone(&requests), answer.into());
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = socket.accept().await.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                let (acceptor, counter, answer) = (acceptor.clone(), Arc::clone(&counter), answer.clone());
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let mut heard = Vec::new();
                    while let Ok(byte) = stream.read_u8().await {
                        heard.push(byte);
                        if heard.ends_with(b"\r\n\r\n") {
                            heard.clear();
                            counter.fetch_add(1, Ordering::SeqCst);
                            let _ = stream.write_all(&answer).await;
                            let _ = stream.flush().await;
                            if ends {
                                let _ = stream.shutdown().await;
                                return;
                            }
                        }
                    }
                });
            }
        });
        Self { address, connections, requests, task }
    }

    /// Starts a server with a valid certificate for `localhost`.
    pub(super) async fn good(ca: &PrivateCa, answer: impl Into<Bytes>) -> Self {
        Self::start(&ca.issue(&["localhost"], Validity::Valid, 1), answer, false).await
    }

    pub(super) fn url(&self, host: &str) -> Url {
        Url::parse(&format!("https://{host}:{}/swarm/info", self.address.port())).unwrap()
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns settings that trust a CA and allow `localhost`.
pub(super) fn settings(ca: &Path) -> ClientSettings {
    ClientSettings {
        ca_file: Some(ca.to_owned()),
        allow: vec!["localhost".to_owned()],
        ..ClientSettings::default()
    }
}

pub(super) async fn get(client: &Client, url: &Url) -> Result<Response, Error> {
    client.get(url, HeaderMap::new(), Limits { time: crate::listen_tests::PATIENCE, body: 1024 }).await
}

/// Formats a response with a body, on a connection that stays open.
pub(super) fn answer(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{headers}\r\n{body}", body.len())
}
