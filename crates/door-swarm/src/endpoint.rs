//! Where an agent is reached.

use std::fmt;

use serde::{Deserialize, Serialize};
use url::Url;

/// Longer than any address a person would give out.
const MAX_BYTES: usize = 2048;

/// An agent's HTTPS address, by convention with `/swarm` at its end. Nothing in it but host, port and path.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Endpoint(Url);

/// Why a text is not the address of an agent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("endpoint '{}' is refused: {problem}", .text.chars().take(200).collect::<String>().escape_debug())]
pub struct EndpointError {
    /// As given.
    pub text: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl Endpoint {
    /// Checks an address. A slash at its end is dropped.
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        let refuse = |problem| EndpointError { text: text.to_owned(), problem };
        if text.len() > MAX_BYTES {
            return Err(refuse("it is too long"));
        }
        // `Url` drops tabs and line breaks in silence, and others would not.
        if text.bytes().any(|byte| byte <= b' ' || byte == b'\\' || byte == 0x7f) {
            return Err(refuse("it holds a space, a backslash or a control character"));
        }
        // Nor would others put right what it puts right.
        let rest = text.strip_prefix("https://").unwrap_or(text);
        let dots = |segment: &str| matches!(segment, "." | "..");
        if rest.starts_with('/') || rest.contains('%') || rest.split('/').any(dots) {
            return Err(refuse("it must be https://host/path, with plain segments only"));
        }
        let mut url = Url::parse(text).map_err(|_| refuse("it is no URL; use https://host/swarm"))?;
        if url.scheme() != "https" {
            return Err(refuse("it must begin with https://"));
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err(refuse("it names no host"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refuse("it must not hold a user or a password"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(refuse("it must not hold '?' or '#'"));
        }
        let path = url.path().trim_end_matches('/').to_owned();
        if path.split('/').skip(1).any(str::is_empty) {
            return Err(refuse("its path must hold plain segments only"));
        }
        url.set_path(&path);
        Ok(Self(url))
    }

    /// The address of one of its resources.
    pub fn resource(&self, name: &str) -> Url {
        let mut url = self.0.clone();
        url.set_path(&format!("{}/{name}", self.path()));
        url
    }

    /// The address of a resource for servers whose routes begin with `/swarm` though the endpoint does not end so.
    pub fn resource_below_swarm(&self, name: &str) -> Option<Url> {
        if self.path().ends_with("/swarm") {
            return None;
        }
        let mut url = self.0.clone();
        url.set_path(&format!("{}/swarm/{name}", self.path()));
        Some(url)
    }

    /// Its path, without a slash at the end: empty for the root.
    pub fn path(&self) -> &str {
        self.0.path().trim_end_matches('/')
    }

    /// Host and port, as an invite names them.
    pub fn authority(&self) -> String {
        let host = self.0.host_str().unwrap_or_default();
        match self.0.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `Url` puts a slash after a bare host, which others would then write twice.
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
