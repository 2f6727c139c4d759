//! What a listener and a client are told by their owner.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;
use switchboard_sys::clock::Clock;

/// How one public address is served.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The address; port 0 takes any that is free. `[::]` means all addresses of both kinds where the system has both.
    pub address: SocketAddr,
    /// Where the certificate comes from.
    pub mode: Mode,
    /// Whether HTTP/3 is served as well, on the UDP port of the same number.
    pub http3: bool,
    /// What a client may take up.
    pub limits: ListenLimits,
    /// How often certificate files are looked at.
    pub poll_interval: Duration,
    /// What tells when a certificate is due.
    pub clock: Clock,
}

/// Where the certificate of a listener comes from.
#[derive(Debug, Clone)]
pub enum Mode {
    /// From files that somebody else renews; they are read again when they change.
    Files {
        /// The chain in PEM, the listener's own certificate first.
        cert: PathBuf,
        /// Its private key in PEM, which nobody but its owner may read.
        key: PathBuf,
    },
    /// By ACME.
    Acme(Acme),
    /// A proxy has it; the listener speaks plain HTTP on the loopback address.
    BehindProxy {
        /// The header in which the proxy names its client, such as `x-forwarded-for`. Its last address counts: those
        /// before it are what the client said of itself.
        header: HeaderName,
    },
}

/// How a certificate is obtained by ACME (RFC 8555).
#[derive(Debug, Clone)]
pub struct Acme {
    /// The server's directory URL.
    pub directory: String,
    /// More CAs that the server's own certificate may come from, in PEM.
    pub ca_file: Option<PathBuf>,
    /// The host names that the certificate is for.
    pub names: Vec<String>,
    /// Whom the server may write to, as `mailto:` URLs; may be empty.
    pub contact: Vec<String>,
    /// Whether the owner agrees to the server's terms of service. Without it nothing is asked for.
    pub terms_agreed: bool,
    /// How the names are shown to be ours.
    pub challenge: Challenge,
    /// The folder for the account and the certificate. It is made when it is missing.
    pub store: PathBuf,
    /// How long to wait after a first failure; each further one doubles it, up to six hours.
    pub first_retry: Duration,
}

/// How names are shown to be ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Challenge {
    /// By a certificate in a TLS handshake on the listener itself (RFC 8737), which the server reaches on port 443.
    TlsAlpn,
    /// By an answer over plain HTTP, which the server asks for on port 80.
    Http {
        /// Where to answer; nothing else is served there.
        address: SocketAddr,
    },
}

/// What clients of a listener may take up, and how long they may take.
#[derive(Debug, Clone)]
pub struct ListenLimits {
    /// Connections at once. Those beyond it are closed without a word.
    pub connections: usize,
    /// Connections at once from one IPv4 address or one IPv6 network of 64 bits. Behind a proxy it does not count.
    pub connections_per_client: usize,
    /// Requests at once on one connection; HTTP/1.1 has one.
    pub requests_per_connection: u32,
    /// The bytes of a request's head.
    pub head: usize,
    /// How long a TLS or QUIC handshake may take.
    pub handshake_timeout: Duration,
    /// How long a request's head may take, and how long an HTTP/1.1 connection may be idle.
    pub header_timeout: Duration,
    /// How long a request's body may take, as a whole.
    pub body_timeout: Duration,
    /// How long a client may leave what it is sent unread.
    pub write_timeout: Duration,
    /// How long a request may take from its head to the last byte of its answer. A client can take no part of an answer
    /// and yet be alive; its connection is then closed.
    pub request_timeout: Duration,
    /// How long an HTTP/2 or HTTP/3 connection may be idle.
    pub idle_timeout: Duration,
    /// How long responses in flight may take once we are to stop.
    pub shutdown_grace: Duration,
}

/// What the client for foreign addresses trusts and allows.
#[derive(Debug, Clone)]
pub struct ClientSettings {
    /// More CAs than those of the system, in PEM.
    pub ca_file: Option<PathBuf>,
    /// Lists of revoked certificates, in PEM.
    pub crl_files: Vec<PathBuf>,
    /// What may be called although its address is private or special: networks (`10.0.0.0/8`), addresses and host names.
    pub allow: Vec<String>,
    /// Calls at once; those beyond it wait within their own time.
    pub calls: usize,
    /// Calls at once to one host, so that one that does not answer leaves room for others.
    pub calls_per_host: usize,
}

/// What one call may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How long, from the name's resolution to the last byte.
    pub time: Duration,
    /// How many bytes the answer's body may have.
    pub body: usize,
}

impl Settings {
    /// With the usual limits, and without HTTP/3.
    pub fn new(address: SocketAddr, mode: Mode) -> Self {
        Self {
            address,
            mode,
            http3: false,
            limits: ListenLimits::default(),
            // Two looks at two files: nothing beside what a request costs, and soon enough for a renewal.
            poll_interval: Duration::from_secs(5),
            clock: Clock::system(),
        }
    }
}

impl Acme {
    /// The directory of Let's Encrypt, whose certificates everybody believes.
    pub const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

    /// How long to wait after a first failure: a public CA allows five failures of one name in an hour.
    pub const FIRST_RETRY: Duration = Duration::from_mins(5);

    /// From Let's Encrypt by TLS-ALPN-01, for names that are kept in `store`. The terms are still to be agreed to.
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

impl Default for ListenLimits {
    fn default() -> Self {
        Self {
            connections: 1024,
            connections_per_client: 32,
            requests_per_connection: 64,
            // What nginx allows for.
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
    /// Five seconds and 64 KiB: enough for what peers tell about themselves.
    fn default() -> Self {
        Self { time: Duration::from_secs(5), body: 64 * 1024 }
    }
}
