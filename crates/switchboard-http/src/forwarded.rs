//! Client address, read from the header of a trusted proxy.

use std::net::{IpAddr, SocketAddr};

use http::header::{FORWARDED, HeaderMap, HeaderName};

/// Error of a proxy header that has no address where the client's is expected.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the last entry of `{header}` is not an IP address: the proxy in front must set it")]
pub(crate) struct ForwardedError {
    pub(crate) header: HeaderName,
}

/// Returns true if the value of this proxy header is a plain list of addresses.
///
/// The header `Forwarded` has a format of its own.
pub fn is_address_list(header: &HeaderName) -> bool {
    *header != FORWARDED
}

/// Returns the client's address: the last one in the header, which the proxy added.
///
/// The addresses before it come from the client and can be spoofed. A request without the header did not come through
/// the proxy but from this machine, and has the address of `peer`.
pub(crate) fn client_address(
    headers: &HeaderMap,
    header: &HeaderName,
    peer: IpAddr,
) -> Result<IpAddr, ForwardedError> {
    let Some(last) = headers.get_all(header).iter().next_back() else { return Ok(peer) };
    let last = last
        .to_str()
        .ok()
        .and_then(|list| list.rsplit(',').next())
        .and_then(|last| parse_address(last.trim()));
    last.ok_or_else(|| ForwardedError { header: header.clone() })
}

/// Parses an address as proxies write it: bare, with a port, or in brackets.
fn parse_address(text: &str) -> Option<IpAddr> {
    let in_brackets = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let alone = in_brackets.unwrap_or(text).parse::<IpAddr>().ok();
    let parse_address = alone.or_else(|| text.parse::<SocketAddr>().ok().map(|with_port| with_port.ip()));
    parse_address.map(|parse_address| parse_address.to_canonical())
}

#[cfg(test)]
#[path = "forwarded_tests.rs"]
mod tests;
