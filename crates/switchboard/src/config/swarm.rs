//! The settings section `swarm`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use door_swarm::{Config, GitHub, Secret, SwarmLimits, Wake};
use jiff::SignedDuration;
use serde::Deserialize;
use switchboard_https::{Acme, Challenge, ClientSettings, Mode, Settings};

use super::hidden::Hidden;

/// Directory URL of the public ACME CA that is used by default.
const PUBLIC_CA: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// The swarms, as written.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct SwarmSection {
    pub(super) enabled: Option<bool>,
    pub(super) listen: Option<String>,
    pub(super) cert: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
    pub(super) behind_proxy: Option<String>,
    pub(super) http3: Option<bool>,
    pub(super) acme: Option<AcmeSection>,
    pub(super) ca: Option<PathBuf>,
    pub(super) allow: Option<Vec<String>>,
    pub(super) limits: Option<LimitsSection>,
    pub(super) oldest_seconds: Option<u32>,
    pub(super) ahead_seconds: Option<u32>,
    pub(super) key_hours: Option<u32>,
    pub(super) timeout_seconds: Option<u32>,
    pub(super) wake: Option<WakeSection>,
    pub(super) github: Option<GitHubSection>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct AcmeSection {
    pub(super) names: Option<Vec<String>>,
    pub(super) contact: Option<Vec<String>>,
    pub(super) agree: Option<bool>,
    pub(super) directory: Option<String>,
    pub(super) ca: Option<PathBuf>,
    pub(super) http_listen: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct LimitsSection {
    pub(super) body_bytes: Option<usize>,
    pub(super) per_sender: Option<u32>,
    pub(super) per_swarm: Option<u32>,
    pub(super) per_client: Option<u32>,
    pub(super) joins: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct WakeSection {
    pub(super) command: Option<Vec<String>>,
    pub(super) url: Option<String>,
    pub(super) secret: Option<Hidden>,
    pub(super) pause_ms: Option<u64>,
    pub(super) per_sender: Option<u32>,
    pub(super) timeout_seconds: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct GitHubSection {
    pub(super) listen: Option<String>,
    pub(super) cert: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
    pub(super) behind_proxy: Option<String>,
    pub(super) secret: Option<Hidden>,
    pub(super) swarm: Option<String>,
    pub(super) repos: Option<Vec<String>>,
}

/// Keys of the section. All of them apply only in the user's own file: they decide who on the internet is admitted,
/// which keys are trusted and what is run.
pub(super) const KEYS: &[&str] = &[
    "enabled",
    "listen",
    "cert",
    "key",
    "behindProxy",
    "http3",
    "acme",
    "ca",
    "allow",
    "limits",
    "oldestSeconds",
    "aheadSeconds",
    "keyHours",
    "timeoutSeconds",
    "wake",
    "github",
];

/// Keys of the subsection `acme`.
pub(super) const ACME_KEYS: &[&str] = &["names", "contact", "agree", "directory", "ca", "httpListen"];
pub(super) const LIMITS_KEYS: &[&str] = &["bodyBytes", "perSender", "perSwarm", "perClient", "joins"];
pub(super) const WAKE_KEYS: &[&str] = &["command", "url", "secret", "pauseMs", "perSender", "timeoutSeconds"];
pub(super) const GITHUB_KEYS: &[&str] = &["listen", "cert", "key", "behindProxy", "secret", "swarm", "repos"];

/// Resolved settings of the swarms, except for their home, which must exist only if there are any.
#[derive(Debug, Clone)]
pub(super) struct SwarmSettings {
    pub(super) enabled: bool,
    config: Config,
    acme: bool,
}

impl Default for SwarmSettings {
    fn default() -> Self {
        Self { enabled: true, config: Config::new(PathBuf::new()), acme: false }
    }
}

impl SwarmSettings {
    /// Returns the settings of the swarms, with keys and state in `home`.
    pub(super) fn config(&self, home: PathBuf) -> Config {
        let mut config = self.config.clone();
        if let (true, Some(Settings { mode: Mode::Acme(acme), .. })) = (self.acme, &mut config.listen) {
            acme.store = home.join("acme");
        }
        Config { home, ..config }
    }
}

/// Resolves the section, or describes the invalid value.
pub(super) fn resolve(section: SwarmSection) -> Result<SwarmSettings, String> {
    let default = Config::new(PathBuf::new());
    let acme = section.acme.is_some();
    let listening = ListenPart {
        path: "swarm",
        listen: section.listen,
        cert: section.cert,
        key: section.key,
        behind_proxy: section.behind_proxy,
        acme: section.acme,
    };
    let mut listen = listening.resolve()?;
    if let Some(settings) = &mut listen {
        settings.http3 = section.http3.unwrap_or(false);
    }
    let limits = section.limits.unwrap_or_default();
    let seconds = |configured: Option<u32>, default| {
        configured.map_or(default, |s| SignedDuration::from_secs(i64::from(s)))
    };
    let config = Config {
        home: PathBuf::new(),
        listen,
        client: ClientSettings {
            ca_file: section.ca,
            allow: section.allow.unwrap_or_default(),
            ..ClientSettings::default()
        },
        limits: SwarmLimits {
            body: limits.body_bytes.unwrap_or(default.limits.body),
            per_sender: limits.per_sender.unwrap_or(default.limits.per_sender),
            per_swarm: limits.per_swarm.unwrap_or(default.limits.per_swarm),
            per_client: limits.per_client.unwrap_or(default.limits.per_client),
            joins: limits.joins.unwrap_or(default.limits.joins),
        },
        oldest: seconds(section.oldest_seconds, default.oldest),
        ahead: seconds(section.ahead_seconds, default.ahead),
        key_ttl: section
            .key_hours
            .map_or(default.key_ttl, |h| SignedDuration::from_hours(i64::from(h.max(1)))),
        timeout: section
            .timeout_seconds
            .map_or(default.timeout, |s| Duration::from_secs(u64::from(s.max(1)))),
        wake: section.wake.map(wake).transpose()?,
        github: section.github.map(github).transpose()?,
    };
    Ok(SwarmSettings { enabled: section.enabled.unwrap_or(true), config, acme })
}

/// Settings of a listener, as written.
struct ListenPart {
    path: &'static str,
    listen: Option<String>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    behind_proxy: Option<String>,
    acme: Option<AcmeSection>,
}

impl ListenPart {
    fn resolve(self) -> Result<Option<Settings>, String> {
        let path = self.path;
        let Some(listen) = &self.listen else { return Ok(None) };
        let address = address(&format!("{path}.listen"), listen)?;
        let mode = match (self.cert, self.key, self.behind_proxy, self.acme) {
            (Some(cert), Some(key), None, None) => Mode::Files { cert, key },
            (None, None, Some(header), None) => {
                let bad =
                    |_| format!("'{path}.behindProxy' is not a valid name of a header; use x-forwarded-for");
                Mode::BehindProxy { header: header.to_ascii_lowercase().parse().map_err(bad)? }
            }
            (None, None, None, Some(acme)) => Mode::Acme(self::acme(acme)?),
            _ => {
                return Err(format!(
                    "'{path}.listen' needs one of: '{path}.cert' with '{path}.key', '{path}.acme', or '{path}.behindProxy'"
                ));
            }
        };
        Ok(Some(Settings::new(address, mode)))
    }
}

fn address(path: &str, text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!("'{path}' is '{}', but must be ADDRESS:PORT, such as 0.0.0.0:8443", text.escape_debug())
    })
}

fn acme(section: AcmeSection) -> Result<Acme, String> {
    let challenge = match section.http_listen {
        Some(text) => Challenge::Http { address: address("swarm.acme.httpListen", &text)? },
        None => Challenge::TlsAlpn,
    };
    Ok(Acme {
        directory: section.directory.unwrap_or_else(|| PUBLIC_CA.to_owned()),
        ca_file: section.ca,
        names: section.names.unwrap_or_default(),
        contact: section.contact.unwrap_or_default(),
        terms_agreed: section.agree.unwrap_or(false),
        challenge,
        store: PathBuf::new(),
        first_retry: Acme::FIRST_RETRY,
    })
}

fn wake(section: WakeSection) -> Result<Wake, String> {
    let default = Wake::new();
    let url = match section.url {
        Some(text) => Some(text.parse().map_err(|error| format!("'swarm.wake.url' is no URL: {error}"))?),
        None => None,
    };
    let command = section.command.unwrap_or_default();
    if command.is_empty() && url.is_none() {
        return Err("'swarm.wake' needs 'command' or 'url'".to_owned());
    }
    Ok(Wake {
        command,
        url,
        secret: section.secret.map(|hidden| Secret::new(hidden.into_text())),
        pause: section.pause_ms.map_or(default.pause, Duration::from_millis),
        per_sender: section.per_sender.unwrap_or(default.per_sender),
        timeout: section
            .timeout_seconds
            .map_or(default.timeout, |s| Duration::from_secs(u64::from(s.max(1)))),
    })
}

fn github(section: GitHubSection) -> Result<GitHub, String> {
    let listening = ListenPart {
        path: "swarm.github",
        listen: section.listen,
        cert: section.cert,
        key: section.key,
        behind_proxy: section.behind_proxy,
        acme: None,
    };
    let listen = listening.resolve()?.ok_or("'swarm.github.listen' is missing")?;
    let secret = section.secret.map(Hidden::into_text);
    let Some(secret) = secret.filter(|secret| secret.chars().count() >= 16) else {
        return Err("'swarm.github.secret' is missing or has fewer than 16 characters".to_owned());
    };
    Ok(GitHub {
        listen,
        secret: Secret::new(secret),
        swarm: section.swarm,
        repos: section.repos.unwrap_or_default(),
    })
}
