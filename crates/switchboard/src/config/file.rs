//! The settings file as written: every key is optional, and names are unvalidated text.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;

use super::links::{self, LinksSection};
use super::nats::{self, NatsSection};
use super::notify::{self, NotifySection};
use super::swarm::{self, SwarmSection};

/// The whole file.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct ConfigFile {
    pub(super) hub: Option<HubSection>,
    pub(super) budgets: Option<BudgetsSection>,
    pub(super) workspace: Option<WorkspaceSection>,
    pub(super) terminals: Option<TerminalsSection>,
    pub(super) tools: Option<ToolsSection>,
    pub(super) http: Option<HttpSection>,
    pub(super) router: Option<RouterSection>,
    pub(super) channels: Option<ChannelsSection>,
    pub(super) nats: Option<NatsSection>,
    pub(super) links: Option<LinksSection>,
    pub(super) notify: Option<NotifySection>,
    pub(super) swarm: Option<SwarmSection>,
    /// Workspaces of other users that may be used, as whole paths; `*` stands for all
    pub(super) trusted_workspaces: Option<Vec<PathBuf>>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct ChannelsSection {
    pub(super) root: Option<PathBuf>,
    pub(super) detection: Option<String>,
    pub(super) rescan_ms: Option<u64>,
    pub(super) heartbeat_ms: Option<u64>,
    pub(super) watchers: Option<Vec<WatcherSection>>,
}

/// A watcher. Unknown keys are errors: the section decides which program runs.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct WatcherSection {
    pub(super) agent: String,
    pub(super) channel: String,
    pub(super) preset: Option<String>,
    pub(super) command: Option<Vec<String>>,
    pub(super) prompt_as_argument: Option<bool>,
    pub(super) role: Option<PathBuf>,
    pub(super) memory: Option<PathBuf>,
    pub(super) context: Option<usize>,
    pub(super) folder: Option<PathBuf>,
    pub(super) env: Option<Vec<String>>,
    pub(super) timeout_seconds: Option<u64>,
    pub(super) starts_with: Option<bool>,
    pub(super) incidents: Option<bool>,
    pub(super) retries: Option<u32>,
    pub(super) max_age_hours: Option<u32>,
    pub(super) backlog: Option<usize>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ToolsSection {
    pub(super) profile: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct HttpSection {
    pub(super) port: Option<u16>,
    pub(super) allowed_hosts: Option<Vec<String>>,
    pub(super) allowed_origins: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct RouterSection {
    /// Serve clients of the older router, which bring no token, on the loopback address
    pub(super) legacy_clients: Option<bool>,
    /// The port where they look for it, 8765 without this
    pub(super) legacy_port: Option<u16>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct HubSection {
    pub(super) body_limit_bytes: Option<usize>,
    pub(super) reply_hops: Option<usize>,
    pub(super) replies_per_minute: Option<u32>,
    pub(super) unseen_seconds: Option<u64>,
    pub(super) replies_per_thread: Option<u32>,
}

/// Limits of what agents may write and use; agents without an own entry have the limits beside it.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct BudgetsSection {
    pub(super) messages_per_hour: Option<u64>,
    pub(super) tokens_per_day: Option<u64>,
    pub(super) agents: Option<BTreeMap<String, BudgetSection>>,
}

/// Budget of one agent. Unknown keys are errors: an ignored limit is worse than none.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct BudgetSection {
    pub(super) messages_per_hour: Option<u64>,
    pub(super) tokens_per_day: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct WorkspaceSection {
    pub(super) retention: Option<RetentionSection>,
    pub(super) settle_ms: Option<u64>,
    pub(super) rescan_ms: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct TerminalsSection {
    pub(super) execute_from_files: Option<bool>,
    pub(super) notify_mail: Option<bool>,
    pub(super) idle_ms: Option<u64>,
    pub(super) tmux: Option<bool>,
    pub(super) bridge: Option<bool>,
}

/// Retention periods in days.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct RetentionSection {
    #[serde(rename = "archiveDays")]
    pub(super) archive: Option<u32>,
    #[serde(rename = "receiptDays")]
    pub(super) receipts: Option<u32>,
    #[serde(rename = "journalDays")]
    pub(super) journal: Option<u32>,
}

/// An unknown key, and the known keys of its object.
pub(super) struct Unknown {
    pub(super) path: String,
    pub(super) key: String,
    pub(super) known: &'static [&'static str],
}

/// Known keys of each object, by its path.
const KNOWN: [(&str, &[&str]); 19] = [
    (
        "",
        &[
            "hub",
            "budgets",
            "workspace",
            "terminals",
            "tools",
            "http",
            "router",
            "discoverGlobs",
            "suites",
            "timeouts",
            "introspection",
            "nats",
            "channels",
            "links",
            "notify",
            "swarm",
            "trustedWorkspaces",
        ],
    ),
    ("links", links::KEYS),
    ("notify", notify::KEYS),
    ("channels", &["root", "detection", "rescanMs", "heartbeatMs", "watchers"]),
    ("nats", nats::KEYS),
    ("nats.tls", nats::TLS_KEYS),
    ("swarm", swarm::KEYS),
    ("swarm.acme", swarm::ACME_KEYS),
    ("swarm.limits", swarm::LIMITS_KEYS),
    ("swarm.wake", swarm::WAKE_KEYS),
    ("swarm.github", swarm::GITHUB_KEYS),
    ("tools", &["profile"]),
    ("http", &["port", "allowedHosts", "allowedOrigins"]),
    ("router", &["legacyClients", "legacyPort"]),
    ("hub", &["bodyLimitBytes", "replyHops", "repliesPerMinute", "repliesPerThread", "unseenSeconds"]),
    ("budgets", &["messagesPerHour", "tokensPerDay", "agents"]),
    ("workspace", &["retention", "settleMs", "rescanMs"]),
    ("terminals", &["executeFromFiles", "notifyMail", "idleMs", "tmux", "bridge"]),
    ("workspace.retention", &["archiveDays", "receiptDays", "journalDays"]),
];

/// Returns the path of the first section that is not an object.
pub(super) fn misshapen(file: &Value) -> Option<&'static str> {
    KNOWN.into_iter().map(|(path, _)| path).filter(|path| !path.is_empty()).find(|path| {
        let place = path.split('.').try_fold(file, |value, key| value.get(key));
        place.is_some_and(|section| !section.is_object() && !section.is_null())
    })
}

/// Lists the unknown keys of a settings file.
pub(super) fn unknown_keys(file: &Value) -> Vec<Unknown> {
    let mut unknown = Vec::new();
    for (path, known) in KNOWN {
        let place =
            path.split('.').filter(|part| !part.is_empty()).try_fold(file, |value, key| value.get(key));
        let keys = place.and_then(Value::as_object).into_iter().flat_map(|object| object.keys());
        for key in keys.filter(|key| !known.contains(&key.as_str()) && *key != "$schema") {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            unknown.push(Unknown { path, key: key.clone(), known });
        }
    }
    let suites = door_suites::unknown_keys(file).into_iter();
    unknown.extend(suites.map(|unknown| Unknown {
        path: unknown.path,
        key: unknown.key,
        known: unknown.known,
    }));
    unknown
}

#[cfg(test)]
#[path = "file_tests.rs"]
pub(super) mod tests;
