//! The settings section `nats`.

use std::path::PathBuf;
use std::time::Duration;

use door_nats::{Auth, Config, Secret, Tls};
use serde::Deserialize;
use switchboard_core::Name;

use super::hidden::Hidden;

/// The NATS link, as written.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct NatsSection {
    pub(super) url: Option<String>,
    pub(super) enabled: Option<bool>,
    pub(super) hub: Option<String>,
    pub(super) stream_prefix: Option<String>,
    pub(super) replicas: Option<usize>,
    pub(super) creds: Option<PathBuf>,
    pub(super) nkey: Option<PathBuf>,
    pub(super) user: Option<String>,
    pub(super) password: Option<Hidden>,
    pub(super) token: Option<Hidden>,
    pub(super) tls: Option<TlsSection>,
    pub(super) retention_days: Option<u32>,
    pub(super) presence_seconds: Option<u32>,
}

/// TLS settings of the connection.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct TlsSection {
    pub(super) required: Option<bool>,
    pub(super) ca: Option<PathBuf>,
    pub(super) cert: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
}

/// Keys of the section `nats`.
pub(super) const KEYS: &[&str] = &[
    "url",
    "enabled",
    "hub",
    "streamPrefix",
    "replicas",
    "creds",
    "nkey",
    "user",
    "password",
    "token",
    "tls",
    "retentionDays",
    "presenceSeconds",
];

/// Keys of its subsection `tls`.
pub(super) const TLS_KEYS: &[&str] = &["required", "ca", "cert", "key"];

/// Resolves the section, or describes the invalid value; `None` if the link is not configured.
pub(super) fn resolve(section: NatsSection) -> Result<Option<Config>, String> {
    let Some(url) = section.url.filter(|_| section.enabled != Some(false)) else { return Ok(None) };
    let servers = url.split(',').map(|server| server.trim().to_owned()).collect();
    let default = Config::new(servers);
    let hub = match section.hub {
        Some(hub) => Some(Name::parse(&hub).map_err(|error| format!("'nats.hub' is refused: {error}"))?),
        None => None,
    };
    let tls = section.tls.unwrap_or_default();
    let client = match (tls.cert, tls.key) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        _ => return Err("'nats.tls.cert' and 'nats.tls.key' belong together; give both".to_owned()),
    };
    let seconds = section.presence_seconds.map(|seconds| Duration::from_secs(u64::from(seconds.max(2))));
    let days = |days: u32| Duration::from_hours(24 * u64::from(days.max(1)));
    let config = Config {
        auth: auth(section.creds, section.nkey, section.user, section.password, section.token)?,
        tls: Tls { required: tls.required.unwrap_or(false), ca: tls.ca, client },
        prefix: section.stream_prefix.unwrap_or(default.prefix),
        replicas: section.replicas.unwrap_or(default.replicas),
        hub,
        retention: section.retention_days.map_or(default.retention, days),
        presence_ttl: seconds.unwrap_or(default.presence_ttl),
        ..Config::new(default.servers)
    };
    config.validate().map(Some).map_err(|error| error.to_string())
}

fn auth(
    creds: Option<PathBuf>,
    nkey: Option<PathBuf>,
    user: Option<String>,
    password: Option<Hidden>,
    token: Option<Hidden>,
) -> Result<Auth, String> {
    let secret = |hidden: Hidden| Secret::new(hidden.into_text());
    Ok(match (creds, nkey, user, password, token) {
        (None, None, None, None, None) => Auth::None,
        (Some(path), None, None, None, None) => Auth::Creds(path),
        (None, Some(path), None, None, None) => Auth::Nkey(path),
        (None, None, Some(user), Some(password), None) => Auth::Password { user, password: secret(password) },
        (None, None, None, None, Some(token)) => Auth::Token(secret(token)),
        _ => {
            let ways = "'nats.creds', 'nats.nkey', 'nats.token', or 'nats.user' with 'nats.password'";
            return Err(format!("there is more than one way to log in, or half of one; give one of {ways}"));
        }
    })
}
