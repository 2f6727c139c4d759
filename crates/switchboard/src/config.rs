//! `switchboard.config.json`: what is in the file, and the settings that come of it.

mod file;

use std::path::Path;

use jiff::SignedDuration;
use switchboard_core::{LoopLimits, nearest};
use switchboard_hub::HubConfig;
use switchboard_hub::files::Dir;

use self::file::ConfigFile;
use crate::failure::{Exit, Failure};

/// The file's name, beside `.switchboard/`.
const NAME: &str = "switchboard.config.json";

/// Larger than any configuration a person writes.
const LIMIT: u64 = 1 << 20;

/// The settings, resolved: every door's own, and the hub's.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub(crate) workspace: door_workspace::Config,
    body_limit: Option<usize>,
    loops: LoopLimits,
}

impl Settings {
    /// Puts the hub's settings into place.
    pub(crate) fn apply_to(&self, hub: &mut HubConfig) {
        hub.body_limit = self.body_limit.unwrap_or(hub.body_limit);
        hub.loops = self.loops;
    }
}

/// Reads the file in a workspace; the defaults where there is none. Keys nobody knows are warned of.
pub(crate) fn load(workspace: &Path) -> Result<Settings, Failure> {
    let bad = |problem: String| {
        Failure::new("bad_config", Exit::Failed, format!("{NAME}: {problem}"))
            .hint("correct the file; docs/configuration.md lists its keys")
    };
    let root = Dir::open_root(workspace).map_err(door_workspace::WorkspaceError::from)?;
    let found = root.read(NAME, LIMIT).map_err(|error| bad(error.to_string()))?;
    let Some(found) = found else { return Ok(Settings::default()) };
    let value = serde_json::from_slice(&found.bytes).map_err(|error| bad(error.to_string()))?;
    for unknown in file::unknown_keys(&value) {
        let near = nearest(&unknown.key, unknown.known.iter().copied());
        let hint = near.first().map(|near| format!("; did you mean '{near}'?")).unwrap_or_default();
        tracing::warn!("{NAME}: the key '{}' is not known{hint}", unknown.path);
    }
    let file: ConfigFile = serde_json::from_value(value).map_err(|error| bad(error.to_string()))?;
    Ok(resolve(file))
}

fn resolve(file: ConfigFile) -> Settings {
    let days = |days: Option<u32>| days.map(|days| SignedDuration::from_hours(i64::from(days) * 24));
    let mut settings = Settings::default();
    let hub = file.hub.unwrap_or_default();
    settings.body_limit = hub.body_limit_bytes;
    settings.loops.hops = hub.reply_hops.unwrap_or(settings.loops.hops);
    settings.loops.pair_per_minute = hub.replies_per_minute.unwrap_or(settings.loops.pair_per_minute);
    let workspace = file.workspace.unwrap_or_default();
    let retention = workspace.retention.unwrap_or_default();
    settings.workspace.retention = door_workspace::Retention {
        archive: days(retention.archive),
        receipts: days(retention.receipts),
        journal: days(retention.journal),
    };
    let millis = std::time::Duration::from_millis;
    settings.workspace.settle = workspace.settle_ms.map_or(settings.workspace.settle, millis);
    settings.workspace.rescan = workspace.rescan_ms.map_or(settings.workspace.rescan, millis);
    settings
}
