//! Settings of the NATS link.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use switchboard_core::Name;

/// Resolved settings of the link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Servers of one cluster. One reachable server is enough, because it names the others.
    pub servers: Vec<String>,
    /// Authentication of this hub.
    pub auth: Auth,
    /// Transport encryption.
    pub tls: Tls,
    /// Prefix of the names of streams, buckets and subjects.
    pub prefix: String,
    /// Replication factor: number of servers in the cluster that store each message.
    pub replicas: usize,
    /// Name of this hub among the linked hubs; with `None`, a name is generated once and stored.
    pub hub: Option<Name>,
    /// How long the stream stores a message. A hub may be offline for this long without missing messages.
    pub retention: Duration,
    /// Time without a heartbeat after which a hub counts as offline.
    pub presence_ttl: Duration,
    /// Timeout of a request to a server.
    pub timeout: Duration,
}

/// Authentication of this hub to the NATS server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Auth {
    /// No credentials, or credentials in the server URL.
    #[default]
    None,
    /// User name and password.
    Password {
        /// User name.
        user: String,
        /// Password.
        password: Secret,
    },
    /// Token.
    Token(Secret),
    /// File with the seed of an nkey.
    Nkey(PathBuf),
    /// Credentials file as written by `nsc`: a JWT and its seed.
    Creds(PathBuf),
}

/// TLS settings of the connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// True if a server without TLS is rejected. TLS is used in any case with a server that requires it.
    pub required: bool,
    /// CA certificates that replace the system's trust store.
    pub ca: Option<PathBuf>,
    /// Client certificate and key for mutual TLS.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// Secret text, redacted in debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// Invalid setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No server is configured.
    #[error("'nats.url' is empty; name a server, such as nats://localhost:4222")]
    NoServer,
    /// The URL scheme is not one that NATS servers use.
    #[error("'nats.url' begins with '{scheme}://'; use nats, tls, ws or wss")]
    Scheme {
        /// Configured scheme.
        scheme: String,
    },
    /// The prefix is not valid in stream names and subjects.
    #[error("'nats.streamPrefix' is '{}'; use 1 to 32 letters, digits, '_' or '-'", .prefix.escape_debug())]
    Prefix {
        /// Configured prefix.
        prefix: String,
    },
    /// The number of replicas is out of range.
    #[error("'nats.replicas' is {replicas}; a stream has 1 to 5")]
    Replicas {
        /// Configured number.
        replicas: usize,
    },
}

impl Secret {
    /// Wraps a text that must not appear in debug output.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(crate) fn reveal(&self) -> String {
        self.0.clone()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl Config {
    /// Returns the default settings for one or more servers.
    pub fn new(servers: Vec<String>) -> Self {
        Self {
            servers,
            auth: Auth::None,
            tls: Tls::default(),
            prefix: "switchboard".to_owned(),
            replicas: 1,
            hub: None,
            // Matches how long the hub itself retries deliveries.
            retention: Duration::from_hours(7 * 24),
            presence_ttl: Duration::from_mins(1),
            timeout: Duration::from_secs(5),
        }
    }

    /// Validates the settings and returns them unchanged.
    pub fn validate(self) -> Result<Self, ConfigError> {
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
        if self.servers.is_empty() || self.servers.iter().any(|server| server.trim().is_empty()) {
            return Err(ConfigError::NoServer);
        }
        let scheme = |server: &String| Some(server.split_once("://")?.0.trim().to_ascii_lowercase());
        let is_known = |scheme: &String| matches!(scheme.as_str(), "nats" | "tls" | "ws" | "wss");
        if let Some(scheme) = self.servers.iter().filter_map(scheme).find(|scheme| !is_known(scheme)) {
            return Err(ConfigError::Scheme { scheme });
        }
        if !(1..=32).contains(&self.prefix.len()) || !self.prefix.bytes().all(legal) {
            return Err(ConfigError::Prefix { prefix: self.prefix });
        }
        if !(1..=5).contains(&self.replicas) {
            return Err(ConfigError::Replicas { replicas: self.replicas });
        }
        Ok(self)
    }

    /// Returns the server addresses with the credentials before `@` redacted.
    pub fn redacted_servers(&self) -> String {
        let bare = |server: &String| match (server.split_once("://"), server.rsplit_once('@')) {
            (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
            (None, Some((_, host))) => host.to_owned(),
            (_, None) => server.clone(),
        };
        self.servers.iter().map(bare).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
