//! Source of a listener's certificate, and the task that renews it.

use std::sync::Arc;

use axum::Router;
use http::HeaderName;
use rustls::ServerConfig;
use switchboard_http::{ConnectionPermits, Middleware, Plain, Server, is_address_list};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::acme::Issuer;
use crate::certificate::CurrentCertificate;
use crate::certificate_files::CertificateFiles;
use crate::error::Error;
use crate::listen::{bind, tls_config};
use crate::settings::{Challenge, ListenLimits, Mode, Settings};

/// ALPN protocol of TLS-ALPN-01 challenges (RFC 8737).
pub(crate) const ACME_TLS: &[u8; 10] = b"acme-tls/1";

/// A validated [`Mode`] with its resources, before any task is started.
pub(crate) enum CertificateSource {
    /// A proxy terminates TLS and reports its client's address in this header.
    Proxy(HeaderName),
    /// Certificate and key come from two files.
    Files(CertificateFiles),
    /// ACME, with the socket for HTTP-01 challenges if this challenge type is chosen.
    Acme(Box<Issuer>, Option<TcpListener>),
}

impl CertificateSource {
    /// Validates the settings and loads the certificate if there already is one.
    pub(crate) async fn prepare(settings: &Settings, current: &CurrentCertificate) -> Result<Self, Error> {
        match &settings.mode {
            Mode::BehindProxy { header } => {
                check_proxy(settings, header)?;
                Ok(Self::Proxy(header.clone()))
            }
            Mode::Files { cert, key } => {
                let files = CertificateFiles { cert: cert.clone(), key: key.clone() };
                current.show(files.load()?);
                Ok(Self::Files(files))
            }
            Mode::Acme(acme) => {
                let issuer = Issuer::prepare(acme.clone(), settings.clock.clone())?;
                if let Some(stored) = issuer.stored()? {
                    current.show(stored);
                }
                let plain = match acme.challenge {
                    Challenge::TlsAlpn => None,
                    Challenge::Http { address } => Some(bind(address).await?.0),
                };
                Ok(Self::Acme(Box::new(issuer), plain))
            }
        }
    }

    /// Returns the trusted header of the proxy, if there is a proxy.
    pub(crate) fn proxy_header(&self) -> Option<HeaderName> {
        match self {
            Self::Proxy(proxy_header) => Some(proxy_header.clone()),
            Self::Files(_) | Self::Acme(..) => None,
        }
    }

    /// Returns the TLS configuration for handshakes of TLS-ALPN-01 challenges.
    pub(crate) fn challenge_config(&self) -> Result<Option<Arc<ServerConfig>>, Error> {
        match self {
            Self::Acme(issuer, None) => tls_config(issuer.challenges(), &[ACME_TLS]).map(Some),
            Self::Acme(_, Some(_)) | Self::Proxy(_) | Self::Files(_) => Ok(None),
        }
    }

    /// Starts the tasks that renew or reload the certificate until `closing`.
    pub(crate) fn start(
        self,
        settings: &Settings,
        current: Arc<CurrentCertificate>,
        tasks: &TaskTracker,
        closing: CancellationToken,
    ) {
        match self {
            Self::Proxy(_) => {}
            Self::Files(files) => {
                tasks.spawn(files.watch(current, settings.poll_interval, settings.clock.clone(), closing));
            }
            Self::Acme(issuer, plain) => {
                if let Some(socket) = plain {
                    let router = issuer.challenges().router();
                    tasks.spawn(
                        challenge_server(router, &settings.limits, closing.clone()).serve(Plain, socket),
                    );
                }
                tasks.spawn(issuer.run_renewal(current, closing));
            }
        }
    }
}

/// Checks that plain HTTP with a trusted header is served on the loopback address only.
fn check_proxy(settings: &Settings, proxy_header: &HeaderName) -> Result<(), Error> {
    if !settings.address.ip().to_canonical().is_loopback() {
        return Err(Error::NotLoopback { address: settings.address });
    }
    if settings.http3 {
        return Err(Error::Http3BehindProxy);
    }
    if !is_address_list(proxy_header) {
        return Err(Error::BadHeader { header: proxy_header.clone() });
    }
    Ok(())
}

/// Creates the server for HTTP-01 challenges. It serves plain HTTP to everyone, with the same limits as the listener.
fn challenge_server(router: Router, limits: &ListenLimits, closing: CancellationToken) -> Arc<Server> {
    Arc::new(Server {
        middleware: Arc::new(Middleware {
            body_timeout: Some(limits.body_timeout),
            ..Middleware::plain(router)
        }),
        limits: limits.per_connection(),
        permits: ConnectionPermits::new(limits.connections, Some(limits.connections_per_client)),
        rejection: None,
        closing,
    })
}
