//! Network access checks against SSRF (server-side request forgery).
//!
//! URLs written by the user are allowed, including loopback and private networks. The following are always blocked:
//!
//! - link-local addresses, where clouds serve credentials, and names that resolve to them;
//! - targets chosen by a server, such as redirects and other origins.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use switchboard_core::error_chain;

use super::error::ChildError;
use super::shared::Shared;

/// IPv4 metadata services of Alibaba and Oracle, which are outside the link-local range.
const METADATA_V4: [Ipv4Addr; 2] = [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(192, 0, 0, 192)];

/// Amazon's metadata service over IPv6, which is outside the link-local range.
const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// Headers set by the protocol; a child's file must not override them.
const OURS: &[&str] = &[
    "accept",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "transfer-encoding",
];

/// Error: the address is blocked against SSRF.
#[derive(Debug, thiserror::Error)]
#[error("{0} is a link-local or metadata address, where no MCP server runs")]
pub(super) struct ForbiddenAddress(IpAddr);

/// Rejects link-local and cloud metadata addresses, including IPv4 addresses embedded in IPv6.
pub(super) fn check_address(address: IpAddr) -> Result<(), ForbiddenAddress> {
    let is_forbidden_v4 = |v4: Ipv4Addr| v4.is_link_local() || METADATA_V4.contains(&v4);
    let is_forbidden = match address {
        IpAddr::V4(v4) => is_forbidden_v4(v4),
        IpAddr::V6(v6) => match v6.to_ipv4_mapped().or_else(|| nat64(v6)) {
            Some(v4) => is_forbidden_v4(v4),
            None => v6.is_unicast_link_local() || v6 == METADATA_V6,
        },
    };
    if is_forbidden { Err(ForbiddenAddress(address)) } else { Ok(()) }
}

/// Returns the IPv4 address embedded in an IPv6 address with the NAT64 prefix `64:ff9b::/96`.
fn nat64(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, 0, 0, 0, 0, high, low] = v6.segments() else { return None };
    let [first, second] = high.to_be_bytes();
    let [third, fourth] = low.to_be_bytes();
    (a == 0x64 && b == 0xff9b).then(|| Ipv4Addr::new(first, second, third, fourth))
}

/// Parses a child's URL, and checks its scheme and address against SSRF.
pub(super) fn check_url(shared: &Shared, url: &str, schemes: &[&str]) -> Result<Url, ChildError> {
    let hint = || format!("correct `url` in {}", shared.file().display());
    let parsed = Url::parse(url)
        .map_err(|error| shared.cannot_start(format!("`url` is not a valid URL: {error}"), hint()))?;
    if !schemes.contains(&parsed.scheme()) {
        let cause = format!(
            "`url` begins with `{}:`, but only {} are supported",
            parsed.scheme(),
            schemes.join(" and ")
        );
        return Err(shared.cannot_start(cause, hint()));
    }
    let address = match parsed.host() {
        Some(url_host) => url_host.to_string().trim_matches(['[', ']']).parse::<IpAddr>().ok(),
        None => return Err(shared.cannot_start("`url` has no host", hint())),
    };
    if let Some(address) = address {
        check_address(address).map_err(|error| shared.cannot_start(error.to_string(), hint()))?;
    }
    Ok(parsed)
}

/// Resolves a host name and checks all resolved addresses against SSRF.
///
/// The caller connects to exactly these addresses, which prevents DNS rebinding.
pub(super) async fn resolve(
    host: &str,
    port: u16,
) -> Result<Vec<SocketAddr>, Box<dyn std::error::Error + Send + Sync>> {
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host((host, port)).await?.collect();
    for address in &addresses {
        check_address(address.ip())?;
    }
    Ok(addresses)
}

/// Parses the headers declared in a child's file, and rejects those that the protocol sets.
pub(super) fn headers(shared: &Shared, declared: &BTreeMap<String, String>) -> Result<HeaderMap, ChildError> {
    let mut headers = HeaderMap::new();
    for (name, value) in declared {
        let hint = || format!("correct `headers` in {}", shared.file().display());
        let parsed_name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| shared.cannot_start(format!("`{name}` is not a valid name of a header"), hint()))?;
        if OURS.contains(&parsed_name.as_str()) {
            return Err(shared.cannot_start(format!("the header `{name}` is set by the protocol"), hint()));
        }
        let mut value = HeaderValue::from_str(value).map_err(|_| {
            shared.cannot_start(format!("the value of the header `{name}` has invalid characters"), hint())
        })?;
        value.set_sensitive(true);
        headers.insert(parsed_name, value);
    }
    Ok(headers)
}

/// Builds an HTTP client that follows no redirects and adds no headers of its own.
///
/// The client uses no proxy either, because a proxy would choose the target address.
pub(super) fn client(shared: &Shared) -> Result<reqwest::Client, ChildError> {
    reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .dns_resolver(Arc::new(CheckedResolver))
        .connect_timeout(shared.spec.limits.spawn)
        .tcp_keepalive(Duration::from_secs(30))
        .build()
        .map_err(|error| {
            shared.cannot_start(error_chain(&error), "check the CA certificates of this machine")
        })
}

struct CheckedResolver;

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let addresses = resolve(name.as_str(), 0).await?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
#[path = "net_tests.rs"]
mod tests;
