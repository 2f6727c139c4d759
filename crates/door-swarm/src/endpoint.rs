//! Endpoints: the HTTPS URLs at which agents are reached.

use std::fmt;

use serde::{Deserialize, Serialize};
use url::Url;

/// Maximum length of an endpoint in bytes, more than any URL that a person would hand out.
const MAX_BYTES: usize = 2048;

/// An agent's HTTPS URL: host, port and path only, by convention ending with `/swarm`.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Endpoint(Url);

/// Reason why a text is not an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("endpoint '{}' is refused: {problem}", .text.chars().take(200).collect::<String>().escape_debug())]
pub struct EndpointError {
    /// The text as received.
    pub text: String,
    /// The rule that the text breaks.
    pub problem: &'static str,
}

impl Endpoint {
    /// Parses a URL and removes trailing slashes.
    ///
    /// Other programs use other URL parsers, so a text that this parser would correct is refused. Only the letter case
    /// of the host and the default port `:443` are normalized.
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        let refuse = |problem| EndpointError { text: text.to_owned(), problem };
        if text.len() > MAX_BYTES {
            return Err(refuse("it is too long"));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') {
            return Err(refuse(
                "it holds a space, a backslash, a control character or a letter beyond ASCII",
            ));
        }
        let rest = text.strip_prefix("https://").ok_or_else(|| refuse("it must begin with https://"))?;
        if rest.contains(['?', '#', '%', '@']) {
            return Err(refuse("it must not hold '?', '#', '%', a user or a password"));
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let authority = authority.to_ascii_lowercase();
        let host = check_authority(&authority).map_err(refuse)?;
        let path = path.trim_end_matches('/');
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:".contains(&byte);
        let is_odd = |segment: &str| matches!(segment, "" | "." | "..");
        if !path.bytes().all(is_plain) || path.split('/').skip(1).any(is_odd) {
            return Err(refuse("its path must hold plain segments only"));
        }
        let mut url = Url::parse(text).map_err(|_| refuse("it is no URL; use https://host/swarm"))?;
        url.set_path(path);
        let expected = authority.strip_suffix(":443").unwrap_or(&authority);
        let is_same = |url: &str| url.trim_end_matches('/') == format!("https://{expected}{path}");
        if url.host_str() != Some(host) || !is_same(url.as_str()) {
            return Err(refuse("it has another spelling; write host, port and path in the usual form"));
        }
        Ok(Self(url))
    }

    /// Returns the URL of a resource of this endpoint.
    pub fn resource(&self, name: &str) -> Url {
        let mut url = self.0.clone();
        url.set_path(&format!("{}/{name}", self.path()));
        url
    }

    /// Returns the URL of a resource below `/swarm`, unless the endpoint already ends with `/swarm`.
    ///
    /// The routes of some servers begin with `/swarm` although the endpoint does not end with it.
    pub fn resource_below_swarm(&self, name: &str) -> Option<Url> {
        if self.path().ends_with("/swarm") {
            return None;
        }
        let mut url = self.0.clone();
        url.set_path(&format!("{}/swarm/{name}", self.path()));
        Some(url)
    }

    /// Returns the path without a trailing slash; empty for the root.
    pub fn path(&self) -> &str {
        self.0.path().trim_end_matches('/')
    }

    /// Returns host and port in the form in which an invite names them.
    pub fn authority(&self) -> String {
        let host = self.0.host_str().unwrap_or_default();
        match self.0.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        }
    }
}

/// Checks host and port, in lower case, and returns the host.
fn check_authority(authority: &str) -> Result<&str, &'static str> {
    let is_port =
        |port: &str| port.parse::<u16>().is_ok_and(|number| number > 0 && number.to_string() == port);
    // An IPv6 address contains colons, so the colon before the port is searched after the closing bracket.
    let end = authority.rfind(']').map_or(0, |bracket| bracket + 1);
    let (host, port) = match authority[end..].find(':') {
        Some(colon) => (&authority[..end + colon], Some(&authority[end + colon + 1..])),
        None => (authority, None),
    };
    if port.is_some_and(|port| !is_port(port)) {
        return Err("its port must be a number from 1 to 65535");
    }
    if host.starts_with('[') {
        return if host.ends_with(']') { Ok(host) } else { Err("it names no host") };
    }
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_label = |label: &str| !label.is_empty() && label.bytes().all(legal);
    if host.split('.').all(is_label) {
        Ok(host)
    } else {
        Err("it names no host, or one that ends with a dot")
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `Url` adds a slash to a bare host, and other programs would append a second one.
        f.write_str(self.0.as_str().trim_end_matches('/'))
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl TryFrom<String> for Endpoint {
    type Error = EndpointError;

    fn try_from(text: String) -> Result<Self, EndpointError> {
        Self::parse(&text)
    }
}

impl From<Endpoint> for String {
    fn from(endpoint: Endpoint) -> Self {
        endpoint.to_string()
    }
}

#[cfg(test)]
#[path = "endpoint_tests.rs"]
mod tests;
