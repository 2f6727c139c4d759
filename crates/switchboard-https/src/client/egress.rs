//! SSRF guard: rules for the URLs and addresses that may be called. It performs no I/O.
//!
//! Special addresses are those of IANA's special-purpose registries (RFC 6890 and its updates). For IPv6 the rule is an
//! allow-list: only global unicast (2000::/3) is public.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use reqwest::Url;

use crate::error::Error;
use crate::host::{canonical, is_host_name};

/// The only port below 1024 that needs no permission of the owner.
///
/// The other ports below 1024 belong to services with other protocols, some of which execute parts of a request that
/// they cannot parse.
const HTTPS: u16 = 443;

const fn v4(a: u8, b: u8, c: u8, d: u8, length: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length)
}

const fn v6(a: u16, b: u16, c: u16, length: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0), length)
}

/// Special-purpose IPv4 ranges, which no public host uses.
const SPECIAL_V4: [(Ipv4Net, &str); 16] = [
    (v4(0, 0, 0, 0, 8), "this network"),
    (v4(10, 0, 0, 0, 8), "private"),
    (v4(100, 64, 0, 0, 10), "shared between the customers of a provider"),
    (v4(127, 0, 0, 0, 8), "loopback"),
    (v4(169, 254, 0, 0, 16), "link-local"),
    (v4(172, 16, 0, 0, 12), "private"),
    (v4(192, 0, 0, 0, 24), "reserved for protocols"),
    (v4(192, 0, 2, 0, 24), "for documentation"),
    (v4(192, 88, 99, 0, 24), "a 6to4 relay"),
    (v4(192, 168, 0, 0, 16), "private"),
    (v4(198, 18, 0, 0, 15), "for benchmarks"),
    (v4(198, 51, 100, 0, 24), "for documentation"),
    (v4(203, 0, 113, 0, 24), "for documentation"),
    (v4(224, 0, 0, 0, 4), "multicast"),
    (v4(255, 255, 255, 255, 32), "broadcast"),
    (v4(240, 0, 0, 0, 4), "reserved"),
];

/// Special-purpose IPv6 ranges: those in [`PUBLIC_V6`], and names for some ranges outside of it.
const SPECIAL_V6: [(Ipv6Net, &str); 12] = [
    (Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128), "loopback"),
    (Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 128), "unspecified"),
    (Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96), "an IPv4 address in disguise"),
    (v6(0x100, 0, 0, 64), "for discarding"),
    (v6(0xfc00, 0, 0, 7), "unique local"),
    (v6(0xfe80, 0, 0, 10), "link-local"),
    (v6(0xfec0, 0, 0, 10), "site-local"),
    (v6(0xff00, 0, 0, 8), "multicast"),
    (v6(0x2001, 0, 0, 23), "reserved for protocols"),
    (v6(0x2001, 0xdb8, 0, 32), "for documentation"),
    (v6(0x2002, 0, 0, 16), "an IPv4 address in disguise (6to4)"),
    (v6(0x3fff, 0, 0, 20), "for documentation"),
];

/// Range of the global unicast addresses.
const PUBLIC_V6: Ipv6Net = v6(0x2000, 0, 0, 3);

/// NAT64 prefix (RFC 6052). The last 32 bits of such an address are the IPv4 address that it stands for.
const NAT64: Ipv6Net = v6(0x64, 0xff9b, 0, 96);

/// Egress policy: the public internet plus the owner's exceptions.
#[derive(Debug, Default)]
pub(super) struct EgressPolicy {
    networks: Vec<IpNet>,
    hosts: Vec<String>,
}

impl EgressPolicy {
    /// Parses an allow-list of networks, addresses and host names.
    pub(super) fn new(allow: &[String]) -> Result<Self, Error> {
        let mut egress = Self::default();
        for entry in allow {
            if let Ok(network) = entry.parse::<IpNet>() {
                egress.networks.push(network);
            } else if let Ok(address) = entry.parse::<IpAddr>() {
                egress.networks.push(address.into());
            } else if is_host_name(entry) {
                egress.hosts.push(canonical(entry));
            } else {
                return Err(Error::BadAllowed { entry: entry.clone() });
            }
        }
        Ok(egress)
    }

    /// Checks a URL, including a literal IP address, and returns its host.
    ///
    /// The URL parser has normalized the host: `0x7f.1` is already `127.0.0.1`.
    pub(super) fn check_url(&self, url: &Url) -> Result<String, Error> {
        let bad = |reason| Err(Error::BadUrl { url: redact_url(url), reason });
        if url.scheme() != "https" {
            return bad("it is not https");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return bad("it has a user name or password in it");
        }
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return bad("it has no host");
        };
        let host = canonical(host);
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
        let is_allowed = match address {
            Some(address) => self.is_allowed(address),
            None => self.hosts.contains(&host),
        };
        if port < 1024 && port != HTTPS && !is_allowed {
            return bad(
                "its port belongs to another service; use 443 or a port from 1024 on, or allow the host",
            );
        }
        if let Some(address) = address {
            self.check_address(&host, address)?;
        }
        Ok(host)
    }

    /// Checks a resolved address of a host.
    pub(super) fn check_address(&self, host: &str, address: IpAddr) -> Result<(), Error> {
        match special_range(address) {
            Some(range) if !self.is_allowed(address) && !self.hosts.contains(&canonical(host)) => {
                Err(Error::Forbidden { host: host.to_owned(), address, range })
            }
            _ => Ok(()),
        }
    }

    fn is_allowed(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(&address))
    }
}

/// Returns the special-purpose range of an address; `None` for a public address.
pub(super) fn special_range(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => {
            SPECIAL_V4.iter().find(|(network, _)| network.contains(&address)).map(|(_, range)| *range)
        }
        IpAddr::V6(address) if NAT64.contains(&address) => {
            let [.., a, b, c, d] = address.octets();
            special_range(Ipv4Addr::new(a, b, c, d).into())
        }
        IpAddr::V6(address) => {
            let listed = SPECIAL_V6.iter().find(|(network, _)| network.contains(&address));
            let other = (!PUBLIC_V6.contains(&address)).then_some("not a public address");
            listed.map(|(_, range)| *range).or(other)
        }
    }
}

/// Redacts a URL for logs: the query, the fragment and the password may be secrets.
fn redact_url(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    // This fails only for URLs that cannot have a password.
    let _ = url.set_password(None);
    url.to_string()
}

#[cfg(test)]
#[path = "egress_tests.rs"]
mod tests;
