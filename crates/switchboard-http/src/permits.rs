//! Connection limit, in total and per client.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

/// Permits for connections. There is no queue: a connection beyond the limits is closed at once.
#[doc(alias = "connection limit")]
#[doc(alias = "semaphore")]
#[derive(Debug, Clone)]
pub struct ConnectionPermits {
    usage: Arc<Mutex<Usage>>,
    limit: usize,
    /// Maximum number of connections per client. `None` if all connections come from one proxy.
    limit_per_client: Option<usize>,
}

#[derive(Debug, Default)]
struct Usage {
    all: usize,
    /// Number of connections of each client.
    ///
    /// Only clients with a connection have an entry, so the connection limit bounds the size of the map.
    by_client: HashMap<IpAddr, usize>,
}

/// Permit for one connection, released on drop.
#[derive(Debug)]
pub struct Permit {
    usage: Arc<Mutex<Usage>>,
    client: IpAddr,
}

impl ConnectionPermits {
    /// Creates permits for `limit` connections in total and `limit_per_client` connections of each client.
    pub fn new(limit: usize, limit_per_client: Option<usize>) -> Self {
        Self { usage: Arc::default(), limit, limit_per_client }
    }

    /// Acquires a permit for a connection from `address`. Returns `None` at the limit.
    pub fn acquire(&self, address: IpAddr) -> Option<Permit> {
        let client = client(address);
        let mut usage = self.usage.lock();
        let of_client = usage.by_client.get(&client).copied().unwrap_or_default();
        if usage.all >= self.limit || self.limit_per_client.is_some_and(|limit| of_client >= limit) {
            return None;
        }
        usage.all += 1;
        usage.by_client.insert(client, of_client + 1);
        Some(Permit { usage: Arc::clone(&self.usage), client })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut usage = self.usage.lock();
        usage.all -= 1;
        if let Some(count) = usage.by_client.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                usage.by_client.remove(&self.client);
            }
        }
    }
}

/// Returns the key under which a client's connections are counted.
///
/// An IPv6 client has at least 64 bits of addresses to itself, so all addresses with the same upper 64 bits are one
/// client.
fn client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
    }
}

#[cfg(test)]
#[path = "permits_tests.rs"]
mod tests;
