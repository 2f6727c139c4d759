//! The settings of one suite, resolved.

use std::time::Duration;

use crate::config::Config;
use crate::introspect::Style;
use crate::spec::ChildSpec;
use crate::wrapper::is_wrapper;

/// The longest name of a tool that hosts take.
pub(crate) const MAX_TOOL_NAME: usize = 64;

/// What the settings say about one suite.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rules {
    /// The name of its tool, as configured or made from the child's.
    pub(crate) tool_name: String,
    pub(crate) allow: Option<Vec<String>>,
    pub(crate) deny: Vec<String>,
    pub(crate) style: Style,
    pub(crate) rate_limit: Option<(u32, Duration)>,
    pub(crate) keep_results: Option<Duration>,
}

impl Rules {
    /// The rules of a child.
    pub(crate) fn of(config: &Config, spec: &ChildSpec) -> Self {
        let mut settings = config.suite(&spec.name).cloned().unwrap_or_default();
        if is_wrapper(spec) {
            // They are about the tools behind it, and hold there.
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
            keep_results: settings.cache.map(|cache| Duration::from_millis(cache.ttl_ms)),
        }
    }
}

/// Whether every host takes this as the name of a tool.
pub(crate) fn is_tool_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_TOOL_NAME && name.bytes().all(is_tool_letter)
}

/// A name that every host takes: other letters become `_`, and one that is too long ends in a short hash of
/// itself, so that two long ones stay two.
pub(crate) fn tool_name(name: &str) -> String {
    let safe: String =
        name.chars().map(|c| if c.is_ascii() && is_tool_letter(c as u8) { c } else { '_' }).collect();
    if safe.len() <= MAX_TOOL_NAME {
        return safe;
    }
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{}_{:08x}", &safe[..MAX_TOOL_NAME - 9], hash >> 32)
}

fn is_tool_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

#[cfg(test)]
mod tests {
    use super::{is_tool_name, tool_name};

    #[test]
    fn names_of_tools_are_what_every_host_takes() {
        assert_eq!(tool_name("notes_suite"), "notes_suite");
        assert_eq!(tool_name("my.notes é"), "my_notes__");
        let (one, two) = (tool_name(&"x".repeat(80)), tool_name(&"x".repeat(81)));
        assert!(is_tool_name(&one) && is_tool_name(&two) && one != two);
        assert!(!is_tool_name("") && !is_tool_name("a b") && !is_tool_name(&"x".repeat(65)));
    }
}
