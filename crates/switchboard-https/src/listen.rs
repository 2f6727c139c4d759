//! Start of the listener for a router on one public address.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::ResolvesServerCert;
use switchboard_http::{ConnectionPermits, Middleware, Plain, Server};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::certificate::{Certificate, CurrentCertificate};
use crate::certificate_source::CertificateSource;
use crate::error::Error;
use crate::settings::Settings;
use crate::tls::Tls;
use crate::{http3, trust};

/// Handle of a running listener. Dropping it does not stop the listener; the shutdown token does.
#[derive(Debug)]
pub struct ListenerHandle {
    address: SocketAddr,
    certificate: watch::Receiver<Option<Certificate>>,
    tasks: TaskTracker,
}

impl ListenerHandle {
    /// Returns the bound address, with the actual port if the settings have port 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Subscribes to the current certificate.
    ///
    /// The value is `None` until ACME has obtained the first certificate, and always `None` behind a proxy.
    pub fn certificate(&self) -> watch::Receiver<Option<Certificate>> {
        self.certificate.clone()
    }

    /// Waits until all tasks have ended after the shutdown.
    ///
    /// This takes at most the shutdown grace, and with HTTP/3 a quarter of a second more.
    pub async fn finished(&self) {
        self.tasks.wait().await;
    }
}

/// Serves `app` on the configured address until `shutdown`.
///
/// Returns when clients can connect, or with the first error of the settings or the certificate files. An ACME
/// certificate is obtained afterwards, with retries, because the ACME server has to reach this listener to validate the
/// names.
///
/// Each request has the extension [`ClientAddress`](switchboard_http::ClientAddress).
pub async fn listen(
    settings: Settings,
    app: Router,
    shutdown: CancellationToken,
) -> Result<ListenerHandle, Error> {
    let limits = &settings.limits;
    let current = CurrentCertificate::empty();
    // Everything is validated and bound first, so that no task runs after an error.
    let source = CertificateSource::prepare(&settings, &current).await?;
    let proxy_header = source.proxy_header();
    let tls = if proxy_header.is_some() {
        None
    } else {
        let config = tls_config(Arc::clone(&current) as _, &[b"h2", b"http/1.1"])?;
        Some(Tls { config, challenge: source.challenge_config()? })
    };
    let (socket, address) = bind(settings.address).await?;
    let quic = if settings.http3 {
        let config = tls_config(Arc::clone(&current) as _, &[http3::H3])?;
        Some(http3::bind(address, config, limits)?)
    } else {
        None
    };

    let alt_svc = quic.as_ref().and_then(|_| http3::alt_svc(address.port()));
    let limit_per_client = tls.is_some().then_some(limits.connections_per_client);
    let server = Arc::new(Server {
        middleware: Arc::new(Middleware {
            router: app,
            proxy_header,
            alt_svc,
            body_timeout: Some(limits.body_timeout),
        }),
        limits: limits.per_connection(),
        permits: ConnectionPermits::new(limits.connections, limit_per_client),
        rejection: None,
        closing: shutdown.clone(),
    });
    let tasks = TaskTracker::new();
    if let Some(quic) = quic {
        tasks.spawn(http3::serve(Arc::clone(&server), limits.clone(), quic));
    }
    match tls {
        Some(tls) => tasks.spawn(server.serve(tls, socket)),
        None => tasks.spawn(server.serve(Plain, socket)),
    };
    source.start(&settings, Arc::clone(&current), &tasks, shutdown);
    tasks.close();
    Ok(ListenerHandle { address, certificate: current.watch(), tasks })
}

/// Binds a TCP port. Returns the socket and its actual address.
pub(crate) async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), Error> {
    let failed = |source| Error::Bind { address, protocol: "TCP", source };
    let socket = TcpListener::bind(address).await.map_err(failed)?;
    let address = socket.local_addr().map_err(failed)?;
    Ok((socket, address))
}

/// Builds the TLS server configuration with these ALPN protocols in order of preference.
pub(crate) fn tls_config(
    certificates: Arc<dyn ResolvesServerCert>,
    protocols: &[&[u8]],
) -> Result<Arc<ServerConfig>, Error> {
    let unusable = |source| Error::Unusable { what: "the TLS provider", source };
    let mut config = ServerConfig::builder_with_provider(trust::crypto_provider())
        .with_protocol_versions(trust::TLS_VERSIONS)
        .map_err(unusable)?
        .with_no_client_auth()
        .with_cert_resolver(certificates);
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    // Stateless session tickets: returning clients save a round trip, and the server stores nothing for them.
    config.ticketer = Ticketer::new().map_err(unusable)?;
    Ok(Arc::new(config))
}
