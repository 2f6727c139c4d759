//! Settings of the listener and the client.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;
use switchboard_http::ConnectionLimits;
use switchboard_sys::clock::Clock;

/// Settings of a listener.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Address to bind. Port 0 means any free port; `[::]` means all addresses, of both families where the system
    /// supports both.
    pub address: SocketAddr,
    /// Source of the certificate.
    pub mode: Mode,
    /// True if HTTP/3 is also served, on the UDP port with the same number.
    pub http3: bool,
    /// Limits per client and in total.
    pub limits: ListenLimits,
    /// Interval at which the certificate files are polled for changes.
    pub poll_interval: Duration,
    /// Clock for certificate expiry.
    pub clock: Clock,
}

/// Source of a listener's certificate.
#[derive(Debug, Clone)]
pub enum Mode {
    /// Certificate files that another program renews. They are reloaded after a change.
    Files {
        /// Certificate chain in PEM, starting with the listener's own certificate.
        cert: PathBuf,
        /// Private key in PEM, which only its owner may read.
        key: PathBuf,
    },
    /// The certificate is obtained by ACME.
    Acme(Acme),
    /// A proxy terminates TLS; the listener speaks plain HTTP on the loopback address.
    BehindProxy {
        /// Header in which the proxy reports its client's address, such as `x-forwarded-for`.
        ///
        /// The last address in the header is used, because the client can spoof the ones before.
        header: HeaderName,
    },
}

/// ACME settings (RFC 8555).
#[derive(Debug, Clone)]
pub struct Acme {
    /// URL of the server's directory.
    pub directory: String,
    /// File with additional CAs for the ACME server's own certificate, in PEM.
    pub ca_file: Option<PathBuf>,
    /// Host names for the certificate.
    pub names: Vec<String>,
    /// Contact `mailto:` URLs for the ACME server. The list may be empty.
    pub contact: Vec<String>,
    /// True if the owner agrees to the server's terms of service. Otherwise no certificate is requested.
    pub terms_agreed: bool,
    /// Challenge type.
    pub challenge: Challenge,
    /// Folder for the account and the certificate, which is created if it is missing.
    pub store: PathBuf,
    /// Retry backoff after the first failure. It doubles with each further failure, up to six hours.
    pub first_retry: Duration,
}

/// ACME challenge type, that is, how control of the names is proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Challenge {
    /// TLS-ALPN-01 (RFC 8737) on the listener itself, which the server must reach on port 443.
    TlsAlpn,
    /// HTTP-01 over plain HTTP, which the server requests on port 80.
    Http {
        /// Address on which the challenges are served, and nothing else.
        address: SocketAddr,
    },
}

/// Limits and timeouts of a listener.
#[derive(Debug, Clone)]
pub struct ListenLimits {
    /// Maximum number of connections. Further connections are closed without a response.
    pub connections: usize,
    /// Maximum number of connections from one IPv4 address or IPv6 /64 network. This limit is not applied behind a
    /// proxy.
    pub connections_per_client: usize,
    /// Maximum number of concurrent requests per connection. HTTP/1.1 has only one.
    pub requests_per_connection: u32,
    /// Maximum size of a request header in bytes.
    pub head: usize,
    /// Timeout of a TLS or QUIC handshake.
    pub handshake_timeout: Duration,
    /// Timeout of a request header, and the idle timeout of HTTP/1.1 connections.
    pub header_timeout: Duration,
    /// Timeout of a complete request body.
    pub body_timeout: Duration,
    /// Timeout of a write to a client that does not read.
    pub write_timeout: Duration,
    /// Timeout of a request, from its header to the last byte of the response.
    ///
    /// A client can be alive and still not read the response, so its connection is closed after this time.
    pub request_timeout: Duration,
    /// Idle timeout of HTTP/2 and HTTP/3 connections.
    pub idle_timeout: Duration,
    /// How long responses in flight may take after the shutdown.
    pub shutdown_grace: Duration,
}

/// Settings of the egress client.
#[derive(Debug, Clone)]
pub struct ClientSettings {
    /// File with CAs in addition to those of the system, in PEM.
    pub ca_file: Option<PathBuf>,
    /// Files with certificate revocation lists, in PEM.
    pub crl_files: Vec<PathBuf>,
    /// Egress allow-list: networks (`10.0.0.0/8`), addresses and host names that may be called although their addresses
    /// are private or special.
    pub allow: Vec<String>,
    /// Maximum number of concurrent calls. Further calls wait within their own timeout.
    pub calls: usize,
    /// Maximum number of concurrent calls to one host, so that a host that hangs leaves permits for others.
    pub calls_per_host: usize,
}

/// Limits of one outgoing call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Timeout, from DNS resolution to the last byte.
    pub time: Duration,
    /// Maximum size of the response body in bytes.
    pub body: usize,
}

impl Settings {
    /// Creates settings with default limits and without HTTP/3.
    pub fn new(address: SocketAddr, mode: Mode) -> Self {
        Self {
            address,
            mode,
            http3: false,
            limits: ListenLimits::default(),
            // Two `stat` calls are negligible, and this interval notices a renewal soon enough.
            poll_interval: Duration::from_secs(5),
            clock: Clock::system(),
        }
    }
}

impl Acme {
    /// Directory URL of Let's Encrypt, a public CA that clients trust.
    pub const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

    /// Default backoff after the first failure. Public CAs allow five failed validations per name and hour.
    pub const FIRST_RETRY: Duration = Duration::from_mins(5);

    /// Creates settings for Let's Encrypt with TLS-ALPN-01 and state in the folder `store`.
    ///
    /// The terms of service are not agreed to yet.
    pub fn new(names: Vec<String>, store: PathBuf) -> Self {
        Self {
            directory: Self::LETS_ENCRYPT.to_owned(),
            ca_file: None,
            names,
            contact: Vec::new(),
            terms_agreed: false,
            challenge: Challenge::TlsAlpn,
            store,
            first_retry: Self::FIRST_RETRY,
        }
    }
}

impl ListenLimits {
    /// Returns the limits of a TCP connection.
    pub(crate) fn per_connection(&self) -> ConnectionLimits {
        ConnectionLimits {
            header_bytes: self.head,
            requests_per_connection: self.requests_per_connection,
            handshake_timeout: self.handshake_timeout,
            header_timeout: self.header_timeout,
            write_timeout: self.write_timeout,
            request_timeout: Some(self.request_timeout),
            idle_timeout: Some(self.idle_timeout),
            shutdown_grace: self.shutdown_grace,
        }
    }
}

impl Default for ListenLimits {
    fn default() -> Self {
        Self {
            connections: 1024,
            connections_per_client: 32,
            requests_per_connection: 64,
            // This is also the default of nginx.
            head: 32 * 1024,
            handshake_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_mins(2),
            idle_timeout: Duration::from_mins(1),
            shutdown_grace: Duration::from_millis(1500),
        }
    }
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self { ca_file: None, crl_files: Vec::new(), allow: Vec::new(), calls: 64, calls_per_host: 8 }
    }
}

impl Default for Limits {
    /// Returns five seconds and 64 KiB, which is enough for the profile of a peer.
    fn default() -> Self {
        Self { time: Duration::from_secs(5), body: 64 * 1024 }
    }
}
