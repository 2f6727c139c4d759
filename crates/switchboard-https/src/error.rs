//! Errors of the listener, of certificates and of calls.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use switchboard_sys::files::FileError;

/// Error of a listener, a certificate or a call.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be bound.
    #[error("cannot listen on {address} ({protocol}): {}", bind_hint(.source))]
    Bind {
        /// The address.
        address: SocketAddr,
        /// `TCP` or `UDP`.
        protocol: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// The address for plain HTTP is not a loopback address.
    #[error(
        "{address} is not a loopback address: behind a proxy the listener speaks plain HTTP and trusts a header; \
         listen on 127.0.0.1 or ::1"
    )]
    NotLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// HTTP/3 was enabled without TLS.
    #[error("`http3` requires TLS on this listener: disable it, or let the proxy serve HTTP/3")]
    Http3BehindProxy,
    /// The configured header is not known to contain a list of client addresses.
    #[error("`{header}` is not a list of addresses; let the proxy set `x-forwarded-for` or `x-real-ip`")]
    BadHeader {
        /// The header.
        header: http::HeaderName,
    },
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file does not exist.
    #[error("{what}: {} does not exist", .path.display())]
    NoFile {
        /// Purpose of the file.
        what: &'static str,
        /// Expected path.
        path: PathBuf,
    },
    /// A file has no usable PEM block.
    #[error("{what}: {} has no {expected} in PEM", .path.display())]
    BadPem {
        /// Purpose of the file.
        what: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Expected PEM block.
        expected: &'static str,
    },
    /// Other users may read the private key.
    #[error("{} can be read or written by others (mode {mode:03o}): chmod 600 {0}", .path.display())]
    OpenKey {
        /// Path of the key file.
        path: PathBuf,
        /// Permissions of the key file.
        mode: u32,
    },
    /// Certificate and key do not match.
    #[error("the key in {} does not match the certificate in {}", .key.display(), .cert.display())]
    OtherKey {
        /// Path of the certificate.
        cert: PathBuf,
        /// Path of the key.
        key: PathBuf,
    },
    /// A certificate, key or CRL is unusable.
    #[error("{what} cannot be used")]
    Unusable {
        /// Name of the unusable object.
        what: &'static str,
        /// Error of the TLS library.
        source: rustls::Error,
    },
    /// Neither the system nor the settings have a CA.
    #[error("no CA is trusted: install the system's CA certificates (ca-certificates), or name a CA file")]
    NoCa,
    /// The ACME server's terms of service were not agreed to.
    #[error("ACME requires your agreement to the terms of service of {directory}")]
    TermsNotAgreed {
        /// URL of the server's directory.
        directory: String,
    },
    /// ACME issues no certificate for this name.
    #[error("`{}` cannot be in an ACME certificate: write a host name, without port or `*`", .name.escape_debug())]
    BadName {
        /// Name from the settings.
        name: String,
    },
    /// The settings have no name for the certificate.
    #[error("ACME needs at least one host name for the certificate")]
    NoNames,
    /// The ACME directory is not an https URL.
    #[error("the ACME directory `{}` is not an https URL", .directory.escape_debug())]
    BadDirectory {
        /// Value from the settings.
        directory: String,
    },
    /// The ACME server rejected a request or could not be reached.
    #[error("the ACME server {directory} rejected a request or could not be reached")]
    Acme {
        /// URL of the server's directory.
        directory: String,
        /// Error of the ACME library.
        source: Box<instant_acme::Error>,
    },
    /// The ACME server offers no challenge of the chosen kind.
    #[error("the ACME server offers no {challenge} challenge for {name}; choose the other kind")]
    NoChallenge {
        /// Host name.
        name: String,
        /// Chosen kind.
        challenge: &'static str,
    },
    /// The ACME server could not validate a name.
    #[error("the ACME server could not validate {name}: {reason}")]
    NotOurs {
        /// The name, or all names.
        name: String,
        /// Reason that the server reported.
        reason: String,
    },
    /// A certificate or a signing request could not be created.
    #[error("cannot create a certificate or a signing request")]
    Rcgen(#[from] rcgen::Error),
    /// An entry of the allow-list is not a network, an address or a host name.
    #[error("invalid allow-list entry `{}`: write a network (10.0.0.0/8), an address or a host name", .entry.escape_debug())]
    BadAllowed {
        /// Entry from the settings.
        entry: String,
    },
    /// The HTTP client could not be created.
    #[error("cannot create an HTTPS client")]
    NoClient(#[source] reqwest::Error),
    /// The egress policy rejects the URL.
    #[error("{url} is blocked: {reason}")]
    BadUrl {
        /// The URL, redacted: without query, fragment and password.
        url: String,
        /// Reason for the rejection.
        reason: &'static str,
    },
    /// The address is private or special (SSRF protection).
    #[error("{host} is blocked: {address} is {range}; to permit it, allow the host or its network")]
    Forbidden {
        /// Host of the URL.
        host: String,
        /// The rejected address.
        address: IpAddr,
        /// Special-purpose range of the address.
        range: &'static str,
    },
    /// DNS has no address for the host.
    #[error("cannot resolve {host}")]
    Unknown {
        /// The host.
        host: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The call failed: no connection, an untrusted certificate, or a connection that broke.
    #[error("the call to {host} failed")]
    Failed {
        /// The host.
        host: String,
        /// Error of the HTTP library.
        source: reqwest::Error,
    },
    /// The call timed out.
    #[error("{host} did not answer within {}", humane(*.limit))]
    TimedOut {
        /// The host.
        host: String,
        /// Timeout of the call.
        limit: Duration,
    },
    /// The response body exceeds the caller's limit.
    #[error("the response of {host} exceeds {limit} bytes")]
    TooLarge {
        /// The host.
        host: String,
        /// The limit in bytes.
        limit: usize,
    },
}

impl Error {
    /// Returns true if a retry can succeed without a change of settings or URL.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Unknown { .. } | Self::Failed { .. } | Self::TimedOut { .. })
    }
}

/// Returns the next step after a failed bind.
fn bind_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "the port is in use; stop the other program, or choose another address",
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 require root; choose another, put a proxy in front, or grant the capability \
             (setcap cap_net_bind_service=+ep)"
        }
        io::ErrorKind::AddrNotAvailable => "this machine does not have the address; choose one of its own",
        _ => "choose another address",
    }
}

/// Formats a duration in milliseconds or seconds.
fn humane(duration: Duration) -> String {
    match duration.as_millis() {
        millis if millis < 1000 || !millis.is_multiple_of(1000) => format!("{millis} ms"),
        millis => format!("{} s", millis / 1000),
    }
}
