//! The section `notify`: how the person hears of mail.

use std::time::Duration;

use serde::Deserialize;

use crate::notify::{How, NotifyConfig};

/// The keys of the section.
pub(super) const KEYS: &[&str] = &["command", "desktop", "everySeconds"];

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct NotifySection {
    /// A program and its arguments. What there is to tell is on its stdin, as one JSON object.
    command: Option<Vec<String>>,
    /// Whether the desktop shows a notification.
    desktop: Option<bool>,
    /// The shortest time between two.
    every_seconds: Option<u64>,
}

/// What the section asks for, or what is wrong with it; nothing where nobody is to be notified.
pub(super) fn resolve(section: NotifySection) -> Result<Option<NotifyConfig>, String> {
    let how = match (section.command, section.desktop) {
        (Some(_), Some(true)) => {
            return Err("'notify' has both 'command' and 'desktop'; choose one".to_owned());
        }
        (Some(command), _) if command.first().is_none_or(String::is_empty) => {
            return Err("'notify.command' is empty; name a program".to_owned());
        }
        (Some(command), _) => How::Command(command),
        (None, Some(true)) => How::Desktop,
        (None, _) => return Ok(None),
    };
    let pause = section.every_seconds.map_or(NotifyConfig::PAUSE, Duration::from_secs);
    Ok(Some(NotifyConfig { how, pause }))
}
