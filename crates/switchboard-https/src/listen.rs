//! Serving a router on one public address.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use http::HeaderName;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::ResolvesServerCert;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::acme::Issuer;
use crate::certificate::{Certificate, Current};
use crate::connections::{Server, Tls};
use crate::error::Error;
use crate::files::Pair;
use crate::front::Front;
use crate::places::Places;
use crate::settings::{Challenge, ListenLimits, Mode, Settings};
use crate::{forwarded, http3, trust};

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
    let limits = &settings.limits;
    let current = Current::none();
    let tasks = TaskTracker::new();
    let mut header = None;
    let mut challenge = None;
    // Everything is checked and bound first, so that nothing runs when something is wrong.
    let source = match &settings.mode {
        Mode::BehindProxy { header: trusted } => {
            check_proxy(&settings, trusted)?;
            header = Some(trusted.clone());
            Source::Elsewhere
        }
        Mode::Files { cert, key } => {
            let pair = Pair { cert: cert.clone(), key: key.clone() };
            current.show(pair.load()?);
            Source::Files(pair)
        }
        Mode::Acme(acme) => {
            let issuer = Box::new(Issuer::prepare(acme.clone(), settings.clock.clone())?);
            if let Some(stored) = issuer.stored()? {
                current.show(stored);
            }
            match acme.challenge {
                Challenge::TlsAlpn => {
                    challenge = Some(server_config(issuer.challenges(), &[ACME_TLS])?);
                    Source::Acme(issuer, None)
                }
                Challenge::Http { address } => {
                    let (socket, address) = bind(address).await?;
                    tracing::info!(%address, "answering HTTP-01 challenges");
                    Source::Acme(issuer, Some(socket))
                }
            }
        }
    };
    let tls = if header.is_some() {
        None
    } else {
        let config = server_config(Arc::clone(&current) as _, &[b"h2", b"http/1.1"])?;
        Some(Tls { config, challenge })
    };
    let (socket, address) = bind(settings.address).await?;
    let quic = if settings.http3 {
        let config = server_config(Arc::clone(&current) as _, &[http3::H3])?;
        Some(http3::bind(address, config, limits)?)
    } else {
        None
    };

    let alt_svc = quic.as_ref().and_then(|_| http3::alt_svc(address.port()));
    let limit_per_client = tls.is_some().then_some(limits.connections_per_client);
    let server = Arc::new(Server {
        front: Arc::new(Front { router: app, header, alt_svc, body_time: limits.body_time }),
        tls,
        limits: limits.clone(),
        places: Places::new(limits.connections, limit_per_client),
        closing: shutdown.clone(),
    });
    if let Some(quic) = quic {
        tasks.spawn(http3::serve(Arc::clone(&server), quic));
    }
    tasks.spawn(server.serve(socket));
    match source {
        Source::Elsewhere => {}
        Source::Files(pair) => {
            let Settings { look_every, clock, .. } = settings;
            tasks.spawn(pair.follow(Arc::clone(&current), look_every, clock, shutdown));
        }
        Source::Acme(issuer, plain) => {
            if let Some(socket) = plain {
                let router = issuer.challenges().router();
                tasks.spawn(plain_server(router, limits, shutdown.clone()).serve(socket));
            }
            tasks.spawn(issuer.keep(Arc::clone(&current), shutdown));
        }
    }
    tasks.close();
    Ok(Listening { address, certificate: current.watch(), tasks })
}

/// What keeps the certificate fresh.
enum Source {
    /// Nothing here.
    Elsewhere,
    Files(Pair),
    /// By ACME, with the socket of HTTP-01 challenges where those are chosen.
    Acme(Box<Issuer>, Option<TcpListener>),
}

/// Plain HTTP and a header that is believed are for this machine alone.
fn check_proxy(settings: &Settings, header: &HeaderName) -> Result<(), Error> {
    if !settings.address.ip().to_canonical().is_loopback() {
        return Err(Error::NotLoopback { address: settings.address });
    }
    if settings.http3 {
        return Err(Error::Http3BehindProxy);
    }
    forwarded::check(header)
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), Error> {
    let failed = |source| Error::Bind { address, protocol: "TCP", source };
    let socket = TcpListener::bind(address).await.map_err(failed)?;
    let address = socket.local_addr().map_err(failed)?;
    Ok((socket, address))
}

/// What answers HTTP-01 challenges to anybody, over plain HTTP.
fn plain_server(router: Router, limits: &ListenLimits, closing: CancellationToken) -> Arc<Server> {
    Arc::new(Server {
        front: Arc::new(Front { router, header: None, alt_svc: None, body_time: limits.body_time }),
        tls: None,
        limits: limits.clone(),
        places: Places::new(limits.connections, Some(limits.connections_per_client)),
        closing,
    })
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
