//! TLS handshake of the listener.

use std::io;
use std::sync::Arc;

use rustls::ServerConfig;
use switchboard_http::{Handshake, HttpVersion};
use switchboard_sys::write_timeout::WriteTimeout;
use tokio::io::AsyncWriteExt;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use crate::certificate_source::ACME_TLS;

/// ALPN protocol of HTTP/2.
const H2: &[u8] = b"h2";

/// TLS handshake configuration.
pub(crate) struct Tls {
    /// Configuration for clients.
    pub(crate) config: Arc<ServerConfig>,
    /// Configuration for ACME servers that validate a TLS-ALPN-01 challenge.
    pub(crate) challenge: Option<Arc<ServerConfig>>,
}

impl Handshake for Tls {
    type Stream = TlsStream<WriteTimeout>;

    /// Performs the TLS handshake with a client. Returns `None` if an ACME server has completed its challenge.
    async fn accept(
        &self,
        stream: WriteTimeout,
    ) -> io::Result<Option<(TlsStream<WriteTimeout>, HttpVersion)>> {
        let hello = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream).await?;
        let is_challenge = is_challenge(&hello.client_hello());
        match &self.challenge {
            Some(challenge) if is_challenge => {
                let mut stream = hello.into_stream(Arc::clone(challenge)).await?;
                stream.shutdown().await?;
                tracing::info!("an ACME server validated a challenge");
                Ok(None)
            }
            _ => {
                let stream = hello.into_stream(Arc::clone(&self.config)).await?;
                let is_http2 = stream.get_ref().1.alpn_protocol() == Some(H2);
                Ok(Some((stream, if is_http2 { HttpVersion::Http2 } else { HttpVersion::Http1 })))
            }
        }
    }
}

/// Returns true if this is a TLS-ALPN-01 handshake (RFC 8737), which offers that protocol and no other.
fn is_challenge(hello: &rustls::server::ClientHello<'_>) -> bool {
    hello
        .alpn()
        .is_some_and(|mut offered| offered.next() == Some(ACME_TLS.as_slice()) && offered.next().is_none())
}
