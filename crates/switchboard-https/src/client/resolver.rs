//! DNS resolver that rejects hosts with a forbidden address.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::Semaphore;

use super::egress::EgressPolicy;
use crate::error::Error;

/// Maximum number of concurrent lookups.
///
/// The system's resolver blocks a thread for as long as a name server takes, and file reads use the same thread pool. A
/// slow, untrusted name server must not occupy all of this pool.
const LOOKUPS: usize = 64;

/// Source of addresses.
#[derive(Clone)]
pub(super) enum Lookup {
    /// The system's resolver.
    System,
    /// A fake for tests.
    #[cfg(test)]
    Fake(Fake),
}

/// Fake resolver: returns the addresses of a name.
#[cfg(test)]
pub(super) type Fake = Arc<dyn Fn(&str) -> Vec<IpAddr> + Send + Sync>;

/// DNS resolver for all connections to host names. A connection uses only the addresses that it returns.
pub(super) struct Resolver {
    egress: Arc<EgressPolicy>,
    lookup: Lookup,
    lookups: Arc<Semaphore>,
}

/// Reason why a host has no usable address. `reqwest` wraps this error, and `call_error` unwraps it.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum ResolveError {
    /// One of the host's addresses is private or special.
    #[error("{address} is {range}")]
    Forbidden {
        /// The address.
        address: IpAddr,
        /// Special-purpose range of the address.
        range: &'static str,
    },
    /// The name has no address.
    #[error("{text}")]
    Unknown {
        /// Kind of the system's error.
        kind: io::ErrorKind,
        /// Text of the system's error.
        text: String,
    },
}

impl Resolver {
    pub(super) fn new(egress: Arc<EgressPolicy>, lookup: Lookup) -> Self {
        Self { egress, lookup, lookups: Arc::new(Semaphore::new(LOOKUPS)) }
    }
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (egress, lookup, lookups) =
            (Arc::clone(&self.egress), self.lookup.clone(), Arc::clone(&self.lookups));
        Box::pin(async move {
            let host = name.as_str();
            let addresses = match lookup {
                Lookup::System => {
                    lookup_system(host.to_owned(), lookups).await.map_err(ResolveError::unknown)?
                }
                #[cfg(test)]
                Lookup::Fake(lookup) => lookup(host),
            };
            if addresses.is_empty() {
                return Err(ResolveError::unknown(io::ErrorKind::NotFound.into()).into());
            }
            // A forbidden address among public ones is not an accident, so the host is rejected.
            for &address in &addresses {
                if let Err(Error::Forbidden { address, range, .. }) = egress.check_address(host, address) {
                    return Err(ResolveError::Forbidden { address, range }.into());
                }
            }
            // Port 0 means the port of the URL.
            let found: Addrs = Box::new(addresses.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(found)
        })
    }
}

/// Queries the system's resolver. The blocking thread keeps its permit even after the caller has timed out.
async fn lookup_system(host: String, lookups: Arc<Semaphore>) -> io::Result<Vec<IpAddr>> {
    let permit = lookups.acquire_owned().await.ok();
    let lookup = tokio::task::spawn_blocking(move || {
        let found = (host.as_str(), 0).to_socket_addrs();
        drop(permit);
        found.map(|addresses| addresses.map(|address| address.ip()).collect())
    });
    lookup.await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

impl ResolveError {
    fn unknown(error: io::Error) -> Self {
        Self::Unknown { kind: error.kind(), text: error.to_string() }
    }

    /// Converts the error to the error type of this crate.
    pub(super) fn to_error(&self, host: &str) -> Error {
        let host = host.to_owned();
        match self.clone() {
            Self::Forbidden { address, range } => Error::Forbidden { host, address, range },
            Self::Unknown { kind, text } => Error::Unknown { host, source: io::Error::new(kind, text) },
        }
    }
}
