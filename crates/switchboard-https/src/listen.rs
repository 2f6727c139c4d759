//! Serving a router on one public address.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::ResolvesServerCert;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::certificate::{Certificate, Current};
use crate::connections::{Server, Tls};
use crate::error::Error;
use crate::files::Pair;
use crate::forwarded;
use crate::front::Front;
use crate::places::Places;
use crate::settings::{Mode, Settings};
use crate::trust;

/// The name of the protocol in which an ACME server is shown that a name is ours (RFC 8737).
pub(crate) const ACME_TLS: &[u8; 10] = b"acme-tls/1";

/// A listener at work. It goes on until the shutdown that it was started with, also when this value is dropped.
#[derive(Debug)]
pub struct Listening {
    address: SocketAddr,
    certificate: watch::Receiver<Option<Certificate>>,
    tasks: TaskTracker,
}

impl Listening {
    /// The address that clients connect to, with the port that was found where none was given.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// What certificate is shown, and every change of it. None while the first one is still to be obtained, and always
    /// behind a proxy.
    pub fn certificate(&self) -> watch::Receiver<Option<Certificate>> {
        self.certificate.clone()
    }

    /// Waits until everything has ended after the shutdown. That takes no longer than the grace of the settings.
    pub async fn finished(&self) {
        self.tasks.wait().await;
    }
}

/// Serves `app` on the address of the settings until `shutdown`.
///
/// Returns when clients can connect. What is wrong with the settings, or with certificate files, is said here. A
/// certificate by ACME is obtained afterwards, as often as it takes, because its server has to reach us for it.
///
/// Each request has the extension [`ClientAddress`](crate::ClientAddress).
pub async fn listen(
    settings: Settings,
    app: Router,
    shutdown: CancellationToken,
) -> Result<Listening, Error> {
    let current = Current::none();
    let tasks = TaskTracker::new();
    let mut header = None;
    let mut challenge = None;
    match &settings.mode {
        Mode::BehindProxy { header: trusted } => {
            if !settings.address.ip().to_canonical().is_loopback() {
                return Err(Error::NotLoopback { address: settings.address });
            }
            if settings.http3 {
                return Err(Error::Http3BehindProxy);
            }
            forwarded::check(trusted)?;
            header = Some(trusted.clone());
        }
        Mode::Files { cert, key } => {
            let pair = Pair { cert: cert.clone(), key: key.clone() };
            current.show(pair.load()?);
            tasks.spawn(pair.follow(Arc::clone(&current), settings.look_every, shutdown.clone()));
        }
        Mode::Acme(_) => return Err(Error::NoNames),
    }
    let tls = match header {
        Some(_) => None,
        None => Some(Tls {
            config: server_config(Arc::clone(&current) as _, &[b"h2", b"http/1.1"])?,
            challenge: challenge.take(),
        }),
    };
    let failed = |source| Error::Bind { address: settings.address, protocol: "TCP", source };
    let socket = TcpListener::bind(settings.address).await.map_err(failed)?;
    let address = socket.local_addr().map_err(failed)?;
    let limit_per_client = tls.is_some().then_some(settings.limits.connections_per_client);
    let server = Arc::new(Server {
        front: Arc::new(Front { router: app, header, alt_svc: None, body_time: settings.limits.body_time }),
        tls,
        places: Places::new(settings.limits.connections, limit_per_client),
        limits: settings.limits,
        closing: shutdown,
    });
    tasks.spawn(server.serve(socket));
    tasks.close();
    Ok(Listening { address, certificate: current.watch(), tasks })
}

/// How hands are shaken for these protocols, the one we like best first.
pub(crate) fn server_config(
    certificates: Arc<dyn ResolvesServerCert>,
    protocols: &[&[u8]],
) -> Result<Arc<ServerConfig>, Error> {
    let unusable = |source| Error::Unusable { what: "the TLS provider", source };
    let mut config = ServerConfig::builder_with_provider(trust::provider())
        .with_protocol_versions(trust::VERSIONS)
        .map_err(unusable)?
        .with_no_client_auth()
        .with_cert_resolver(certificates);
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    // Clients that come back save a round trip, and we keep nothing for them.
    config.ticketer = Ticketer::new().map_err(unusable)?;
    Ok(Arc::new(config))
}
