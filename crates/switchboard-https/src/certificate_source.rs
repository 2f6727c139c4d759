//! Where a listener's certificate comes from, and what keeps it fresh.

use std::sync::Arc;

use axum::Router;
use http::HeaderName;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::acme::Issuer;
use crate::certificate::CurrentCertificate;
use crate::certificate_files::CertificateFiles;
use crate::connections::Server;
use crate::error::Error;
use crate::forwarded;
use crate::listen::{bind, tls_config};
use crate::middleware::Middleware;
use crate::permits::ConnectionPermits;
use crate::settings::{Challenge, ListenLimits, Mode, Settings};

/// The name of the protocol in which an ACME server is shown that a name is ours (RFC 8737).
pub(crate) const ACME_TLS: &[u8; 10] = b"acme-tls/1";

/// A [`Mode`] that was checked, with everything it needs at hand. Nothing runs yet.
pub(crate) enum CertificateSource {
    /// A proxy has the certificate, and names its client in this header.
    Proxy(HeaderName),
    /// Two files.
    Files(CertificateFiles),
    /// ACME, with the socket of HTTP-01 challenges where those are chosen.
    Acme(Box<Issuer>, Option<TcpListener>),
}

impl CertificateSource {
    /// Checks the settings, and shows the certificate that is there already.
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

    /// The header that is believed, where a proxy is in front.
    pub(crate) fn proxy_header(&self) -> Option<HeaderName> {
        match self {
            Self::Proxy(proxy_header) => Some(proxy_header.clone()),
            Self::Files(_) | Self::Acme(..) => None,
        }
    }

    /// How hands are shaken with an ACME server that asks for a proof.
    pub(crate) fn challenge_config(&self) -> Result<Option<Arc<ServerConfig>>, Error> {
        match self {
            Self::Acme(issuer, None) => tls_config(issuer.challenges(), &[ACME_TLS]).map(Some),
            Self::Acme(_, Some(_)) | Self::Proxy(_) | Self::Files(_) => Ok(None),
        }
    }

    /// Keeps the certificate fresh until `closing`.
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
                    tasks.spawn(challenge_server(router, &settings.limits, closing.clone()).serve(socket));
                }
                tasks.spawn(issuer.run_renewal(current, closing));
            }
        }
    }
}

/// Plain HTTP and a header that is believed are for this machine alone.
fn check_proxy(settings: &Settings, proxy_header: &HeaderName) -> Result<(), Error> {
    if !settings.address.ip().to_canonical().is_loopback() {
        return Err(Error::NotLoopback { address: settings.address });
    }
    if settings.http3 {
        return Err(Error::Http3BehindProxy);
    }
    forwarded::validate_header(proxy_header)
}

/// What answers HTTP-01 challenges to anybody, over plain HTTP and within the same limits.
fn challenge_server(router: Router, limits: &ListenLimits, closing: CancellationToken) -> Arc<Server> {
    Arc::new(Server {
        middleware: Arc::new(Middleware {
            router,
            proxy_header: None,
            alt_svc: None,
            body_timeout: limits.body_timeout,
        }),
        tls: None,
        limits: limits.clone(),
        permits: ConnectionPermits::new(limits.connections, Some(limits.connections_per_client)),
        closing,
    })
}
