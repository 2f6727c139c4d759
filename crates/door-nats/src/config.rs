//! What can be set about the link.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use switchboard_core::Name;

/// The settings of the link, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The servers of one cluster; any of them leads to the others.
    pub servers: Vec<String>,
    /// How this hub says who it is.
    pub auth: Auth,
    /// How the connection is encrypted.
    pub tls: Tls,
    /// What the names of streams, buckets and subjects begin with.
    pub prefix: String,
    /// How many servers of the cluster keep each message.
    pub replicas: usize,
    /// What this hub is called among the others; `None` for a name that is made once and kept.
    pub hub: Option<Name>,
    /// How long the stream keeps a message, and so how long a hub may be away without missing any.
    pub retention: Duration,
    /// After how long a silence a hub counts as away.
    pub presence_ttl: Duration,
    /// How long a server has for an answer.
    pub timeout: Duration,
}

/// How this hub says who it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Auth {
    /// It does not, or the address of the server says it.
    #[default]
    None,
    /// A name and a password.
    Password {
        /// The name.
        user: String,
        /// The password.
        password: Secret,
    },
    /// A token.
    Token(Secret),
    /// The seed of an nkey, in a file.
    Nkey(PathBuf),
    /// A credentials file, as `nsc` makes it: a JWT and the seed that belongs to it.
    Creds(PathBuf),
}

/// How the connection is encrypted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// Whether a server without TLS is refused. One that asks for TLS gets it in any case.
    pub required: bool,
    /// Certificates to trust in place of those of the system.
    pub ca: Option<PathBuf>,
    /// The certificate and the key by which this hub says who it is.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// Text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// What is wrong with a setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No server.
    #[error("'nats.url' is empty; name a server, such as nats://localhost:4222")]
    NoServer,
    /// An address that is none of a NATS server.
    #[error("'nats.url' has '{scheme}://', which no NATS server answers; use nats, tls, ws or wss")]
    Scheme {
        /// As given.
        scheme: String,
    },
    /// A prefix that cannot be part of a stream's name and of a subject.
    #[error("'nats.streamPrefix' is '{}'; use 1 to 32 letters, digits, '_' or '-'", .prefix.escape_debug())]
    Prefix {
        /// As given.
        prefix: String,
    },
    /// A number of replicas that no server takes.
    #[error("'nats.replicas' is {replicas}; a stream has 1 to 5")]
    Replicas {
        /// As given.
        replicas: usize,
    },
}

impl Secret {
    /// Keeps a text from being shown.
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
    /// The defaults, for a server or a list of them.
    pub fn new(servers: Vec<String>) -> Self {
        Self {
            servers,
            auth: Auth::None,
            tls: Tls::default(),
            prefix: "switchboard".to_owned(),
            replicas: 1,
            hub: None,
            // As long as the hub itself goes on trying.
            retention: Duration::from_hours(7 * 24),
            presence_ttl: Duration::from_mins(1),
            timeout: Duration::from_secs(5),
        }
    }

    /// The same settings, if they can be used.
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

    /// The servers as they may be shown: without what stands before `@`.
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
