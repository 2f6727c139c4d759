//! Resolved settings (rules) of one suite.

use std::time::Duration;

use crate::config::Config;
use crate::introspect::Style;
use crate::spec::ChildSpec;
use crate::wrapper::is_wrapper;

/// Maximum length of a tool name that hosts accept.
pub(crate) const MAX_TOOL_NAME: usize = 64;

/// Resolved settings of one suite.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rules {
    /// Name of the suite tool, either configured or derived from the child's name.
    pub(crate) tool_name: String,
    pub(crate) allow: Option<Vec<String>>,
    pub(crate) deny: Vec<String>,
    pub(crate) style: Style,
    pub(crate) rate_limit: Option<(u32, Duration)>,
    pub(crate) cache_ttl: Option<Duration>,
}

impl Rules {
    /// Resolves the settings of a child.
    pub(crate) fn of(config: &Config, spec: &ChildSpec) -> Self {
        let mut settings = config.suite(&spec.name).cloned().unwrap_or_default();
        if is_wrapper(spec) {
            // For a wrapper, these filters apply to the tools of its original, not to the wrapper's own tool.
            settings.expose.allow = None;
            settings.expose.deny.clear();
        }
        let style = Style {
            mode: config.introspection.mode,
            summary_max_chars: config.summary_max_chars(&spec.name),
        };
        Self {
            tool_name: config.suite_name(&spec.name),
            allow: settings.expose.allow,
            deny: settings.expose.deny,
            style,
            rate_limit: settings.rate_limit.map(|limit| (limit.calls, Duration::from_millis(limit.per_ms))),
            cache_ttl: settings.cache.map(|cache| Duration::from_millis(cache.ttl_ms)),
        }
    }
}

/// Returns true if every host accepts the text as a tool name.
pub(crate) fn is_tool_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_TOOL_NAME && name.bytes().all(is_tool_char)
}

/// Converts a text into a tool name that every host accepts.
///
/// Invalid characters become `_`. A name that is too long ends in a short hash of the original, so that two long names
/// stay distinct.
pub(crate) fn tool_name(name: &str) -> String {
    let safe: String =
        name.chars().map(|c| if c.is_ascii() && is_tool_char(c as u8) { c } else { '_' }).collect();
    if safe.len() <= MAX_TOOL_NAME {
        return safe;
    }
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{}_{:08x}", &safe[..MAX_TOOL_NAME - 9], hash >> 32)
}

fn is_tool_char(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

#[cfg(test)]
mod tests {
    use super::{is_tool_name, tool_name};

    #[test]
    fn tool_names_fit_every_host() {
        assert_eq!(tool_name("notes_suite"), "notes_suite");
        assert_eq!(tool_name("my.notes é"), "my_notes__");
        let (one, two) = (tool_name(&"x".repeat(80)), tool_name(&"x".repeat(81)));
        assert!(is_tool_name(&one) && is_tool_name(&two) && one != two);
        assert!(!is_tool_name("") && !is_tool_name("a b") && !is_tool_name(&"x".repeat(65)));
    }
}
