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
    /// Address to bind; port 0 means any free port, `[::]` all addresses of both families where the system has both.
    pub address: SocketAddr,
    /// Source of the certificate.
    pub mode: Mode,
    /// True if HTTP/3 is served too, on the UDP port of the same number.
    pub http3: bool,
    /// Limits per client and in total.
    pub limits: ListenLimits,
    /// How often certificate files are checked for changes.
    pub poll_interval: Duration,
    /// Clock for certificate expiry.
    pub clock: Clock,
}

/// Source of a listener's certificate.
#[derive(Debug, Clone)]
pub enum Mode {
    /// Files that another program renews; they are reloaded after a change.
    Files {
        /// Certificate chain in PEM, the listener's own certificate first.
        cert: PathBuf,
        /// Private key in PEM, which only its owner may read.
        key: PathBuf,
    },
    /// Obtained by ACME.
    Acme(Acme),
    /// A proxy terminates TLS; the listener speaks plain HTTP on the loopback address.
    BehindProxy {
        /// Header in which the proxy names its client, such as `x-forwarded-for`. Its last address is used: the client
        /// can spoof the ones before it.
        header: HeaderName,
    },
}

/// ACME settings (RFC 8555).
#[derive(Debug, Clone)]
pub struct Acme {
    /// URL of the server's directory.
    pub directory: String,
    /// Additional CAs for the ACME server's own certificate, in PEM.
    pub ca_file: Option<PathBuf>,
    /// Host names for the certificate.
    pub names: Vec<String>,
    /// Contacts for the server as `mailto:` URLs; may be empty.
    pub contact: Vec<String>,
    /// True if the owner agrees to the server's terms of service. Otherwise nothing is requested.
    pub terms_agreed: bool,
    /// Challenge type.
    pub challenge: Challenge,
    /// Folder for the account and the certificate; created if it is missing.
    pub store: PathBuf,
    /// Delay after the first failure; doubles with each further failure, up to six hours.
    pub first_retry: Duration,
}

/// ACME challenge type: how control of the names is proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Challenge {
    /// TLS-ALPN-01 (RFC 8737), on the listener itself, which the server reaches on port 443.
    TlsAlpn,
    /// HTTP-01, over plain HTTP, which the server requests on port 80.
    Http {
        /// Address to serve the challenges on, and nothing else.
        address: SocketAddr,
    },
}

/// Limits and timeouts of a listener.
#[derive(Debug, Clone)]
pub struct ListenLimits {
    /// Maximum of connections. Further ones are closed without a response.
    pub connections: usize,
    /// Maximum of connections from one IPv4 address or IPv6 /64 network. Not applied behind a proxy.
    pub connections_per_client: usize,
    /// Maximum of concurrent requests per connection; HTTP/1.1 has one.
    pub requests_per_connection: u32,
    /// Maximum size of a request header in bytes.
    pub head: usize,
    /// Timeout of a TLS or QUIC handshake.
    pub handshake_timeout: Duration,
    /// Timeout of a request header; also the idle timeout of HTTP/1.1 connections.
    pub header_timeout: Duration,
    /// Timeout of a complete request body.
    pub body_timeout: Duration,
    /// Timeout of a write that the client does not read.
    pub write_timeout: Duration,
    /// Timeout of a request, from its header to the last byte of the response. A client can be alive and yet read
    /// nothing of a response; its connection is then closed.
    pub request_timeout: Duration,
    /// Idle timeout of HTTP/2 and HTTP/3 connections.
    pub idle_timeout: Duration,
    /// How long responses in flight may take after the shutdown.
    pub shutdown_grace: Duration,
}

/// Settings of the egress client.
#[derive(Debug, Clone)]
pub struct ClientSettings {
    /// CAs in addition to those of the system, in PEM.
    pub ca_file: Option<PathBuf>,
    /// Certificate revocation lists, in PEM.
    pub crl_files: Vec<PathBuf>,
    /// Egress allow-list: networks (`10.0.0.0/8`), addresses and host names that may be called although their addresses
    /// are private or special.
    pub allow: Vec<String>,
    /// Maximum of concurrent calls; further ones wait within their own timeout.
    pub calls: usize,
    /// Maximum of concurrent calls to one host, so that a host that hangs leaves permits for others.
    pub calls_per_host: usize,
}

/// Limits of one call.
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
            // Two `stat` calls: negligible, and soon enough for a renewal.
            poll_interval: Duration::from_secs(5),
            clock: Clock::system(),
        }
    }
}

impl Acme {
    /// Directory URL of Let's Encrypt, a public CA that clients trust.
    pub const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

    /// Delay after the first failure: public CAs allow five failed validations per name and hour.
    pub const FIRST_RETRY: Duration = Duration::from_mins(5);

    /// Creates settings for Let's Encrypt with TLS-ALPN-01; state is stored in `store`. The terms are not agreed to
    /// yet.
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
            // The same as nginx by default.
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
    /// Five seconds and 64 KiB: enough for the profile of a peer.
    fn default() -> Self {
        Self { time: Duration::from_secs(5), body: 64 * 1024 }
    }
}
