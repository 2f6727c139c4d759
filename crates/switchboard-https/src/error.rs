//! What can go wrong with a listener, a certificate or a call.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use switchboard_sys::files::FileError;

/// Why a listener could not be started, a certificate not be had, or a call not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be had.
    #[error("cannot listen on {address} ({protocol}): {}", bind_hint(.source))]
    Bind {
        /// The address.
        address: SocketAddr,
        /// `TCP` or `UDP`.
        protocol: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Plain HTTP was to be served to more than this machine.
    #[error(
        "{address} is not a loopback address: behind a proxy the listener speaks plain HTTP and believes a header; \
         listen on 127.0.0.1 or ::1"
    )]
    NotLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// HTTP/3 was asked for where there is no TLS.
    #[error("`http3` needs the certificate here: switch it off, or let the proxy serve HTTP/3")]
    Http3BehindProxy,
    /// The trusted header has another form than a list of addresses.
    #[error("`{header}` is not a list of addresses; let the proxy set `x-forwarded-for` or `x-real-ip`")]
    BadHeader {
        /// The header.
        header: http::HeaderName,
    },
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file is not there.
    #[error("{what}: there is no file {}", .path.display())]
    NoFile {
        /// What the file is for.
        what: &'static str,
        /// Where it should be.
        path: PathBuf,
    },
    /// A file does not hold what it should.
    #[error("{what}: {} has no {expected} in PEM", .path.display())]
    BadPem {
        /// What the file is for.
        what: &'static str,
        /// Where it is.
        path: PathBuf,
        /// What it should hold.
        expected: &'static str,
    },
    /// A private key that others may read.
    #[error("{} can be read or written by others (mode {mode:03o}): chmod 600 {0}", .path.display())]
    OpenKey {
        /// Where it is.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A certificate and a key that do not belong together.
    #[error("the key in {} is not that of the certificate in {}", .key.display(), .cert.display())]
    OtherKey {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// A certificate, key or list that cannot be used.
    #[error("{what} cannot be used")]
    Unusable {
        /// What it is.
        what: &'static str,
        /// What the TLS library said.
        source: rustls::Error,
    },
    /// Neither the system nor the settings name a CA.
    #[error("no CA is trusted: install the system's CA certificates (ca-certificates), or name a CA file")]
    NoCa,
    /// The ACME server's terms were not agreed to.
    #[error("ACME needs your agreement to the terms of service of {directory}")]
    TermsNotAgreed {
        /// The server's directory.
        directory: String,
    },
    /// A name that no certificate can be had for.
    #[error("`{}` cannot be in an ACME certificate: write a host name, without port or `*`", .name.escape_debug())]
    BadName {
        /// The name as given.
        name: String,
    },
    /// No name for the certificate.
    #[error("ACME needs at least one host name for the certificate")]
    NoNames,
    /// A directory that is not a URL of an ACME server.
    #[error("the ACME directory `{}` is not an https URL", .directory.escape_debug())]
    BadDirectory {
        /// As given.
        directory: String,
    },
    /// The ACME server refused, or could not be reached.
    #[error("the ACME server {directory} refused or could not be reached")]
    Acme {
        /// The server's directory.
        directory: String,
        /// What went wrong.
        source: Box<instant_acme::Error>,
    },
    /// The ACME server offers no challenge of the chosen kind.
    #[error("the ACME server offers no {challenge} challenge for {name}; choose the other kind")]
    NoChallenge {
        /// The name.
        name: String,
        /// The kind that was chosen.
        challenge: &'static str,
    },
    /// The ACME server could not convince itself that a name is ours.
    #[error("the ACME server did not accept that {name} is ours: {reason}")]
    NotOurs {
        /// The name, or all of them.
        name: String,
        /// What the server said.
        reason: String,
    },
    /// A certificate could not be made.
    #[error("cannot make a certificate or its request")]
    Rcgen(#[from] rcgen::Error),
    /// Something in the allow-list is neither network, address nor host name.
    #[error("`{}` cannot be allowed: write a network (10.0.0.0/8), an address or a host name", .entry.escape_debug())]
    BadAllowed {
        /// The entry as given.
        entry: String,
    },
    /// The client itself could not be made.
    #[error("cannot make an HTTPS client")]
    NoClient(#[source] reqwest::Error),
    /// A URL that is not called.
    #[error("{url} is not called: {reason}")]
    BadUrl {
        /// The URL, without its query.
        url: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// An address that is private or special.
    #[error(
        "{host} is not called: {address} is {range}; if it is meant to be reached, allow the host or its network"
    )]
    Forbidden {
        /// The host that was to be called.
        host: String,
        /// Its address.
        address: IpAddr,
        /// What kind of address that is.
        range: &'static str,
    },
    /// A name that could not be resolved.
    #[error("cannot find the address of {host}")]
    Unknown {
        /// The host.
        host: String,
        /// What the system said.
        source: io::Error,
    },
    /// The other end could not be reached, could not prove who it is, or broke off.
    #[error("the call to {host} failed")]
    Failed {
        /// The host.
        host: String,
        /// What went wrong.
        source: reqwest::Error,
    },
    /// The call took too long.
    #[error("{host} did not answer within {}", humane(*.limit))]
    TimedOut {
        /// The host.
        host: String,
        /// How long it had.
        limit: Duration,
    },
    /// The answer was larger than the caller wants.
    #[error("the answer of {host} has more than {limit} bytes")]
    TooLarge {
        /// The host.
        host: String,
        /// What the caller allows.
        limit: usize,
    },
}

impl Error {
    /// Whether the same call can succeed later without anybody changing settings or URL.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Unknown { .. } | Self::Failed { .. } | Self::TimedOut { .. })
    }
}

/// What to do about an address that cannot be had.
fn bind_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "something else listens there; end it, or choose another address",
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 are for root; choose another, put a proxy in front, or give the program the right \
             (setcap cap_net_bind_service=+ep)"
        }
        io::ErrorKind::AddrNotAvailable => "this machine has not got the address; choose one that it has",
        _ => "choose another address",
    }
}

/// A duration in the unit that a person would choose.
fn humane(duration: Duration) -> String {
    match duration.as_millis() {
        millis if millis < 1000 || !millis.is_multiple_of(1000) => format!("{millis} ms"),
        millis => format!("{} s", millis / 1000),
    }
}
