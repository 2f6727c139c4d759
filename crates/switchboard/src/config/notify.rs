//! The settings section `notify`: how the person is notified of new messages.

use std::time::Duration;

use serde::Deserialize;

use crate::notify::{NotifyConfig, NotifyMethod};

/// Keys of the section `notify`.
pub(super) const KEYS: &[&str] = &["command", "desktop", "everySeconds"];

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct NotifySection {
    /// Program and arguments. It gets one JSON object on stdin.
    command: Option<Vec<String>>,
    /// True to show desktop notifications.
    desktop: Option<bool>,
    /// Minimum seconds between two notifications.
    every_seconds: Option<u64>,
}

/// Resolves the section, or describes the invalid value; `None` if no notification is configured.
pub(super) fn resolve(section: NotifySection) -> Result<Option<NotifyConfig>, String> {
    let method = match (section.command, section.desktop) {
        (Some(_), Some(true)) => {
            return Err("'notify' has both 'command' and 'desktop'; choose one".to_owned());
        }
        (Some(command), _) if command.first().is_none_or(String::is_empty) => {
            return Err("'notify.command' is empty; name a program".to_owned());
        }
        (Some(command), _) => NotifyMethod::Command(command),
        (None, Some(true)) => NotifyMethod::Desktop,
        (None, _) => return Ok(None),
    };
    let pause = section.every_seconds.map_or(NotifyConfig::PAUSE, Duration::from_secs);
    Ok(Some(NotifyConfig { method, pause }))
}
