//! Which URLs and addresses may be called: pure rules, no IO.
//!
//! What counts as special is what IANA's registries of special-purpose addresses say (RFC 6890 and its updates). In IPv6
//! it is the other way round: only what is handed out to the public (2000::/3) is not special.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use reqwest::Url;

use crate::error::Error;
use crate::host::{canonical, is_host_name};

/// The one port below 1024 that is called without being allowed. The others belong to services that speak something
/// else, and some of those act on parts of what they do not understand.
const HTTPS: u16 = 443;

const fn v4(a: u8, b: u8, c: u8, d: u8, length: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length)
}

const fn v6(a: u16, b: u16, c: u16, length: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0), length)
}

/// What no public host has as its address.
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

/// The same in IPv6: the parts of [`PUBLIC_V6`] that are special after all, and names for some of what lies outside it.
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

/// What is handed out to the public.
const PUBLIC_V6: Ipv6Net = v6(0x2000, 0, 0, 3);

/// Where networks without IPv4 show the IPv4 internet (RFC 6052): such an address is what is in its last 32 bits.
const NAT64: Ipv6Net = v6(0x64, 0xff9b, 0, 96);

/// What the owner allows beyond the public internet.
#[derive(Debug, Default)]
pub(super) struct EgressPolicy {
    networks: Vec<IpNet>,
    hosts: Vec<String>,
}

impl EgressPolicy {
    /// Reads an allow-list: networks, addresses and host names.
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

    /// Checks a URL, and the address in it where it has one instead of a name. Returns the host.
    ///
    /// A URL's host is in its one normal form: `0x7f.1` has become `127.0.0.1` when it was parsed.
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
                "its port belongs to another service; use 443 or one from 1024 on, or allow the host",
            );
        }
        if let Some(address) = address {
            self.check_address(&host, address)?;
        }
        Ok(host)
    }

    /// Checks an address that a host was found to have.
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

/// What is special about an address; nothing about one of the public internet.
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

/// A URL as it may be logged: what comes after the path can be a secret.
fn redact_url(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    // Refused by URLs that cannot have them, which then have none.
    let _ = url.set_password(None);
    url.to_string()
}

#[cfg(test)]
#[path = "egress_tests.rs"]
mod tests;
