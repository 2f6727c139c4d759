//! Finding a host's addresses, all of which must be allowed.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::Semaphore;

use super::egress::EgressPolicy;
use crate::error::Error;

/// Names that are looked up at once. The system's resolver blocks a thread for as long as a name server pleases, and
/// the threads are those that files are read with: a stranger's slow name server must not have them all.
const LOOKUPS: usize = 64;

/// Where addresses come from.
#[derive(Clone)]
pub(super) enum Lookup {
    /// The system's resolver.
    System,
    /// A test's own.
    #[cfg(test)]
    Fake(Fake),
}

/// What a test's own says of a name.
#[cfg(test)]
pub(super) type Fake = Arc<dyn Fn(&str) -> Vec<IpAddr> + Send + Sync>;

/// The resolver behind every connection to a name. What it returns is what is connected to.
pub(super) struct Resolver {
    egress: Arc<EgressPolicy>,
    lookup: Lookup,
    lookups: Arc<Semaphore>,
}

/// Why there is no address to connect to. It travels through the HTTP library and is found again in its error.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum ResolveError {
    /// One of the host's addresses is private or special.
    #[error("{address} is {range}")]
    Forbidden {
        /// The address.
        address: IpAddr,
        /// What kind of address that is.
        range: &'static str,
    },
    /// The name has no address.
    #[error("{text}")]
    Unknown {
        /// What kind of error the system gave.
        kind: io::ErrorKind,
        /// In its words.
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
            // One that is forbidden among others is no accident: none of them is called.
            for &address in &addresses {
                if let Err(Error::Forbidden { address, range, .. }) = egress.check_address(host, address) {
                    return Err(ResolveError::Forbidden { address, range }.into());
                }
            }
            // The port 0 stands for that of the URL.
            let found: Addrs = Box::new(addresses.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(found)
        })
    }
}

/// Asks the system. The place is held until it has answered, also when nobody waits for the answer any more.
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

    /// The same as an error of this crate.
    pub(super) fn to_error(&self, host: &str) -> Error {
        let host = host.to_owned();
        match self.clone() {
            Self::Forbidden { address, range } => Error::Forbidden { host, address, range },
            Self::Unknown { kind, text } => Error::Unknown { host, source: io::Error::new(kind, text) },
        }
    }
}
