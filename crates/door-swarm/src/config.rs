//! Settings of the swarm door.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use jiff::SignedDuration;
use switchboard_https::{ClientSettings, Settings};

/// Resolved settings of the swarm door.
#[derive(Debug, Clone)]
pub struct Config {
    /// Folder of keys and state files: `~/.swarm`, or `SWARM_HOME`.
    pub home: PathBuf,
    /// Settings of the public listener. Without a listener, no messages are received.
    pub listen: Option<Settings>,
    /// Settings of the HTTPS client: trusted CAs and allowed addresses.
    pub client: ClientSettings,
    /// Size limit and rate limits.
    pub limits: SwarmLimits,
    /// Maximum age of an incoming message.
    pub oldest: SignedDuration,
    /// Maximum time by which an incoming message may be ahead of the local clock.
    pub ahead: SignedDuration,
    /// Age after which a member's key is confirmed again at the member's endpoint.
    pub key_ttl: SignedDuration,
    /// Timeout for a peer's answer to a message.
    pub timeout: Duration,
    /// Wake-up call that is made when a message arrives.
    pub wake: Option<Wake>,
    /// Listener for GitHub webhooks.
    pub github: Option<GitHub>,
}

/// Size limit and rate limits. A rate limit of 0 means unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwarmLimits {
    /// Maximum size of a request, in bytes.
    pub body: usize,
    /// Maximum number of messages per sender and minute.
    pub per_sender: u32,
    /// Maximum number of messages per swarm and minute.
    pub per_swarm: u32,
    /// Maximum number of requests per client address and minute, of any kind.
    pub per_client: u32,
    /// Maximum number of join requests per client address and hour.
    pub joins: u32,
}

/// Wake-up call: a program, a URL or both, called when a message arrives.
#[derive(Debug, Clone)]
pub struct Wake {
    /// Program and its arguments. The program reads one JSON object from stdin.
    pub command: Vec<String>,
    /// URL that receives the same JSON object in a POST request.
    pub url: Option<url::Url>,
    /// Value of the header `X-Wake-Secret`.
    pub secret: Option<Secret>,
    /// Debounce time: messages that arrive within it share one call.
    pub pause: Duration,
    /// Maximum number of wake-up calls per sender and hour.
    pub per_sender: u32,
    /// Timeout of the program or the request.
    pub timeout: Duration,
}

/// Listener for GitHub webhooks, on its own address.
#[derive(Debug, Clone)]
pub struct GitHub {
    /// Address and TLS settings.
    pub listen: Settings,
    /// Secret that verifies the signatures of webhooks.
    pub secret: Secret,
    /// Swarm that receives the notifications; `None` means the only swarm.
    pub swarm: Option<String>,
    /// Repositories whose events are forwarded; empty means all.
    pub repos: Vec<String>,
}

/// A secret text, redacted in debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl Config {
    /// Returns the defaults, with keys and state files in `home`.
    pub fn new(home: impl Into<PathBuf>) -> Self {
        Self {
            home: home.into(),
            listen: None,
            client: ClientSettings::default(),
            limits: SwarmLimits::default(),
            // Each retry is signed again, so 15 minutes are enough to cover clock skew and slow queues.
            oldest: SignedDuration::from_mins(15),
            ahead: SignedDuration::from_mins(2),
            key_ttl: SignedDuration::from_hours(24),
            timeout: Duration::from_secs(30),
            wake: None,
            github: None,
        }
    }

    /// Returns true if the settings name a listener, a CA file or allowed addresses.
    pub(crate) fn has_network_settings(&self) -> bool {
        self.listen.is_some() || self.client.ca_file.is_some() || !self.client.allow.is_empty()
    }
}

impl Default for SwarmLimits {
    /// Returns the limits that the protocol recommends.
    ///
    /// The size limit of 256 KiB is four times the longest text of the protocol's own command line.
    fn default() -> Self {
        Self { body: 256 * 1024, per_sender: 60, per_swarm: 100, per_client: 600, joins: 10 }
    }
}

impl Wake {
    /// Returns the defaults, with no program and no URL.
    pub fn new() -> Self {
        Self {
            command: Vec::new(),
            url: None,
            secret: None,
            pause: Duration::from_secs(1),
            per_sender: 30,
            timeout: Duration::from_secs(30),
        }
    }
}

impl Default for Wake {
    fn default() -> Self {
        Self::new()
    }
}
