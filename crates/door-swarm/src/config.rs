//! What can be set about the door.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use jiff::SignedDuration;
use switchboard_https::{ClientSettings, Settings};

/// The settings of the door, resolved.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where keys and state files are: `~/.swarm`, or `SWARM_HOME`.
    pub home: PathBuf,
    /// The public listener; without one, nothing comes in.
    pub listen: Option<Settings>,
    /// What the client for other agents' endpoints trusts and allows.
    pub client: ClientSettings,
    /// How much and how often.
    pub limits: SwarmLimits,
    /// How old a message may be when it comes in.
    pub oldest: SignedDuration,
    /// How far ahead its clock may be.
    pub ahead: SignedDuration,
    /// After how long a key is confirmed at its endpoint again.
    pub key_ttl: SignedDuration,
    /// How long a peer has for an answer to a message.
    pub timeout: Duration,
    /// Whom to wake when a message has come.
    pub wake: Option<Wake>,
    /// The listener for GitHub's webhooks.
    pub github: Option<GitHub>,
}

/// How much and how often; 0 is no limit for those that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwarmLimits {
    /// Most bytes of a request.
    pub body: usize,
    /// Most messages of one sender within a minute.
    pub per_sender: u32,
    /// Most messages of one swarm within a minute.
    pub per_swarm: u32,
    /// Most requests of one client address within a minute, of any kind.
    pub per_client: u32,
    /// Most requests to join of one client address within an hour.
    pub joins: u32,
}

/// Whom to wake when a message has come.
#[derive(Debug, Clone)]
pub struct Wake {
    /// A program, with its arguments. It reads one JSON object from stdin.
    pub command: Vec<String>,
    /// An address to post the same object to.
    pub url: Option<url::Url>,
    /// What is sent along in the header `X-Wake-Secret`.
    pub secret: Option<Secret>,
    /// How long to gather messages before waking once for all of them.
    pub pause: Duration,
    /// How often one sender may wake within an hour.
    pub per_sender: u32,
    /// How long the program or the address has.
    pub timeout: Duration,
}

/// The listener for GitHub's webhooks, on an address of its own.
#[derive(Debug, Clone)]
pub struct GitHub {
    /// Where and how it listens.
    pub listen: Settings,
    /// The secret that GitHub signs with.
    pub secret: Secret,
    /// The swarm that is told; the only one where nothing is said.
    pub swarm: Option<String>,
    /// Only these repositories; all where the list is empty.
    pub repos: Vec<String>,
}

/// Text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps a text from being shown.
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
    /// The defaults, with keys and state files in `home`.
    pub fn new(home: impl Into<PathBuf>) -> Self {
        Self {
            home: home.into(),
            listen: None,
            client: ClientSettings::default(),
            limits: SwarmLimits::default(),
            // Ours are signed anew whenever they are tried again; a quarter of an hour is for clocks and slow queues.
            oldest: SignedDuration::from_mins(15),
            ahead: SignedDuration::from_mins(2),
            key_ttl: SignedDuration::from_hours(24),
            timeout: Duration::from_secs(30),
            wake: None,
            github: None,
        }
    }

    /// Whether anything was set about whom to believe and whom to call.
    pub(crate) fn says_whom_to_call(&self) -> bool {
        self.listen.is_some() || self.client.ca_file.is_some() || !self.client.allow.is_empty()
    }
}

impl Default for SwarmLimits {
    /// What the protocol recommends. 256 KiB is four times the text that its own command line sends.
    fn default() -> Self {
        Self { body: 256 * 1024, per_sender: 60, per_swarm: 100, per_client: 600, joins: 10 }
    }
}

impl Wake {
    /// The defaults, with nobody to wake yet.
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
