//! Agent ids and message file names of the channels protocol ("File Naming Convention").

use jiff::Timestamp;
use jiff::tz::TimeZone;
use switchboard_core::AgentId;

/// Number of messages of one agent per second that the four hex digits can distinguish.
pub(crate) const PER_SECOND: u32 = 0x1_0000;

/// Length of `YYYYMMDD-HHMMSS`.
const SECOND: usize = 15;

/// Maximum length of the agent in a file name. The whole name then fits the 255 bytes of every file system.
const LONGEST_AGENT: usize = 128;

/// Parts of a message id, `msg-{YYYYMMDD}-{HHMMSS}-{agent}-{hex4}`, which is also the file name before
/// `.json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MessageName {
    /// Time of the message in Unix seconds.
    pub(crate) second: i64,
    /// Name of the sender, encoded for a file name.
    pub(crate) agent: String,
    /// Number that orders the messages of one agent within one second.
    pub(crate) number: u32,
}

impl MessageName {
    /// Formats the id in the spelling of the protocol.
    pub(crate) fn id(&self) -> String {
        let at = Timestamp::from_second(self.second).unwrap_or(Timestamp::UNIX_EPOCH);
        let at = at.to_zoned(TimeZone::UTC).strftime("%Y%m%d-%H%M%S");
        format!("msg-{at}-{}-{:04x}", self.agent, self.number % PER_SECOND)
    }
}

/// Parses the time of a message id, in seconds.
pub(crate) fn second_of(id: &str) -> Option<Timestamp> {
    let second = id.strip_prefix("msg-")?.get(..SECOND)?;
    let second = jiff::civil::DateTime::strptime("%Y%m%d-%H%M%S", second).ok()?;
    Some(second.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

/// Parses the agent of a message id.
pub(crate) fn agent_of(id: &str) -> Option<&str> {
    second_of(id)?;
    let (agent, _) = id.get("msg-".len() + SECOND + 1..)?.rsplit_once('-')?;
    Some(agent)
}

/// Returns true if the agent in a message id is this agent. The id may be from another hub, or deprecated.
pub(crate) fn is_named_after(named: &str, agent: &AgentId) -> bool {
    let is_name = |agent: &AgentId| in_file_name(agent).eq_ignore_ascii_case(current_id(named));
    is_name(agent) || is_name(&AgentId::local(agent.name.clone()))
}

/// Parses the number of a message id, which orders messages within a second.
pub(crate) fn number_of(id: &str) -> Option<u32> {
    u32::from_str_radix(id.rsplit_once('-')?.1, 16).ok()
}

/// Returns the name of a time's archive folder: `YYYY-MM`.
pub(crate) fn month_of(at: Timestamp) -> String {
    at.to_zoned(TimeZone::UTC).strftime("%Y-%m").to_string()
}

/// Returns true for the name of an archive folder.
pub(crate) fn is_month(name: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    name.len() == 7
        && name.split_once('-').is_some_and(|(year, month)| digits(year) && digits(month) && month.len() == 2)
}

/// Returns the file name of a message.
pub(crate) fn file_name(id: &str) -> String {
    format!("{id}.json")
}

/// Returns the message id of a file name; `None` for any other file.
///
/// The name is parsed from both ends, because the agent in the middle may contain hyphens. The hex digits are not
/// required, because other programs use other unique suffixes.
pub fn id_of_file(name: &str) -> Option<&str> {
    let id = name.strip_suffix(".json")?;
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    let is_message = id.starts_with("msg-") && id.len() <= 200;
    (is_message && id.bytes().all(legal) && !id.contains("..")).then_some(id)
}

/// Returns true if a text is an agent id of the protocol: a letter, then letters, digits, `_` and `-`.
pub fn is_agent_id(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic())
        && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

/// Encodes an agent for a file name. Names from other doors may have characters that the protocol forbids; the file's
/// `from` has the full name.
pub(crate) fn in_file_name(agent: &AgentId) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    let name: String = agent.to_string().chars().map(legal).take(LONGEST_AGENT).collect();
    if is_agent_id(&name) { name } else { format!("agent-{name}") }
}

/// Returns the current id for a deprecated one, and any other id unchanged.
pub fn current_id(text: &str) -> &str {
    match text {
        "claude-1" => "claude",
        "codex-1" => "codex",
        "gemini-1" => "gemini",
        other => other,
    }
}

/// Returns the deprecated id of an agent, if it has one.
pub(crate) fn deprecated_id(agent: &str) -> Option<&'static str> {
    ["claude-1", "codex-1", "gemini-1"].into_iter().find(|old| current_id(old).eq_ignore_ascii_case(agent))
}

/// Returns true for a deprecated id.
pub(crate) fn is_deprecated(text: &str) -> bool {
    current_id(text) != text
}

#[cfg(test)]
#[path = "ids_tests.rs"]
mod tests;
