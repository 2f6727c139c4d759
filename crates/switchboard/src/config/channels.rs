//! The settings section `channels`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use door_channels::{Config, Detection, Preset, PromptInput, WatcherConfig};
use jiff::SignedDuration;
use switchboard_core::Name;

use super::file::{ChannelsSection, WatcherSection};

/// Resolved settings of the channels, without their default folder.
#[derive(Debug, Clone, Default)]
pub(super) struct ChannelSettings {
    root: Option<PathBuf>,
    detection: Detection,
    rescan: Option<Duration>,
    heartbeat: Option<Duration>,
    watchers: Vec<WatcherConfig>,
}

impl ChannelSettings {
    pub(super) fn config(&self, folder: &Path) -> Config {
        let default = Config::new(self.root.clone().unwrap_or_else(|| folder.to_owned()));
        Config {
            // The default folder inside the workspace is private to its user; a configured one is shared.
            shared: self.root.is_some(),
            detection: self.detection,
            rescan: self.rescan.unwrap_or(default.rescan),
            heartbeat: self.heartbeat.unwrap_or(default.heartbeat),
            watchers: self.watchers.clone(),
            ..default
        }
    }
}

/// Resolves the section, or describes the invalid value.
pub(super) fn resolve(section: ChannelsSection) -> Result<ChannelSettings, String> {
    if let Some(root) = section.root.as_ref().filter(|root| !root.is_absolute()) {
        return Err(format!("'channels.root' is '{}', but must be a whole path", root.display()));
    }
    let detection = match section.detection.as_deref() {
        None | Some("auto") => Detection::Automatic,
        Some("polling") => Detection::Polling,
        Some(other) => {
            let other = other.escape_debug();
            return Err(format!("'channels.detection' is '{other}', but must be auto or polling"));
        }
    };
    let watchers = section.watchers.unwrap_or_default().into_iter().enumerate();
    Ok(ChannelSettings {
        root: section.root,
        detection,
        rescan: section.rescan_ms.map(Duration::from_millis),
        heartbeat: section.heartbeat_ms.map(|ms| Duration::from_millis(ms.max(1))),
        watchers: watchers.map(|(place, section)| watcher(place, section)).collect::<Result<_, _>>()?,
    })
}

fn watcher(place: usize, section: WatcherSection) -> Result<WatcherConfig, String> {
    let key = |key: &str| format!("'channels.watchers[{place}].{key}'");
    let name = |field: &str, text: &str| {
        Name::parse(text).map_err(|error| format!("{} is refused: {error}", key(field)))
    };
    let (agent, channel) = (name("agent", &section.agent)?, name("channel", &section.channel)?);
    let mut watcher = WatcherConfig::new(agent, channel, section.command.unwrap_or_default());
    watcher.env = section.env.unwrap_or_default();
    if let Some(preset) = section.preset {
        let known = Preset::from_name(&preset).ok_or_else(|| {
            let known = Preset::ALL.map(|(name, _)| name).join(", ");
            format!("{} is '{}', but must be one of {known}", key("preset"), preset.escape_debug())
        })?;
        watcher = watcher.with_preset(known);
    }
    if watcher.command.is_empty() {
        return Err(format!("{} is missing; name a program, or a preset", key("command")));
    }
    if section.prompt_as_argument == Some(true) {
        watcher.prompt_input = PromptInput::Argument;
    }
    watcher.role = section.role;
    watcher.memory = section.memory;
    watcher.folder = section.folder;
    watcher.context = section.context.unwrap_or(watcher.context);
    watcher.timeout = section.timeout_seconds.map_or(watcher.timeout, Duration::from_secs);
    watcher.starts_with = section.starts_with.unwrap_or(watcher.starts_with);
    watcher.incidents = section.incidents.unwrap_or(watcher.incidents);
    watcher.retries = section.retries.unwrap_or(watcher.retries);
    let hours = section.max_age_hours.map(|hours| SignedDuration::from_hours(i64::from(hours)));
    watcher.max_age = hours.unwrap_or(watcher.max_age);
    watcher.backlog = section.backlog.unwrap_or(watcher.backlog);
    watcher.validate().map_err(|error| format!("'channels.watchers[{place}]': {error}"))
}
