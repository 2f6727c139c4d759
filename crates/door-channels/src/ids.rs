//! What the channels protocol calls things: agents, and message files ("File Naming Convention").

use jiff::Timestamp;
use jiff::tz::TimeZone;
use switchboard_core::AgentId;

/// How many messages of one agent in one second the four hex digits can tell apart.
pub(crate) const PER_SECOND: u32 = 0x1_0000;

/// The length of `YYYYMMDD-HHMMSS`.
const SECOND: usize = 15;

/// Longest agent part of a file name: with the rest it fits the 255 bytes of every file system.
const LONGEST_AGENT: usize = 128;

/// A message id: `msg-{YYYYMMDD}-{HHMMSS}-{agent}-{hex4}`, which is also the file's name before `.json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MessageName {
    /// The second, UTC.
    pub(crate) second: i64,
    /// Who wrote it, as far as a file name can say.
    pub(crate) agent: String,
    /// Tells the messages of one agent in one second apart, in order.
    pub(crate) number: u32,
}

impl MessageName {
    /// The id as the protocol spells it.
    pub(crate) fn id(&self) -> String {
        let at = Timestamp::from_second(self.second).unwrap_or(Timestamp::UNIX_EPOCH);
        let at = at.to_zoned(TimeZone::UTC).strftime("%Y%m%d-%H%M%S");
        format!("msg-{at}-{}-{:04x}", self.agent, self.number % PER_SECOND)
    }
}

/// The second in a message's id, as far as it has one.
pub(crate) fn second_of(id: &str) -> Option<Timestamp> {
    let second = id.strip_prefix("msg-")?.get(..SECOND)?;
    let second = jiff::civil::DateTime::strptime("%Y%m%d-%H%M%S", second).ok()?;
    Some(second.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

/// The agent in a message's id, as far as it has the form of the protocol.
pub(crate) fn agent_of(id: &str) -> Option<&str> {
    second_of(id)?;
    let (agent, _) = id.get("msg-".len() + SECOND + 1..)?.rsplit_once('-')?;
    Some(agent)
}

/// Whether the agent in a message's id is this one, be it of another hub or under its deprecated id.
pub(crate) fn is_named_after(named: &str, agent: &AgentId) -> bool {
    let is_name = |agent: &AgentId| in_file_name(agent).eq_ignore_ascii_case(current_id(named));
    is_name(agent) || is_name(&AgentId::local(agent.name.clone()))
}

/// The number in a message's id, which tells the messages of one second apart.
pub(crate) fn number_of(id: &str) -> Option<u32> {
    u32::from_str_radix(id.rsplit_once('-')?.1, 16).ok()
}

/// The folder of the archive that a moment belongs to: `YYYY-MM`.
pub(crate) fn month_of(at: Timestamp) -> String {
    at.to_zoned(TimeZone::UTC).strftime("%Y-%m").to_string()
}

/// Whether a name is one of a folder of the archive.
pub(crate) fn is_month(name: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    name.len() == 7
        && name.split_once('-').is_some_and(|(year, month)| digits(year) && digits(month) && month.len() == 2)
}

/// The name of a message's file.
pub(crate) fn file_name(id: &str) -> String {
    format!("{id}.json")
}

/// The id in the name of a message's file; none for any other file.
///
/// Read from both ends, because the agent in the middle may hold hyphens. The hex digits are not insisted
/// on: a program with another idea of uniqueness still wrote a message.
pub fn id_of_file(name: &str) -> Option<&str> {
    let id = name.strip_suffix(".json")?;
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    let is_message = id.starts_with("msg-") && id.len() <= 200;
    (is_message && id.bytes().all(legal) && !id.contains("..")).then_some(id)
}

/// Whether a text is an agent id of the protocol: a letter, then letters, digits, `_` and `-`.
pub fn is_agent_id(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic())
        && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

/// An agent as part of a file name. Names of other doors may hold what the protocol does not allow; the
/// file's `from` has the whole truth.
pub(crate) fn in_file_name(agent: &AgentId) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    let name: String = agent.to_string().chars().map(legal).take(LONGEST_AGENT).collect();
    if is_agent_id(&name) { name } else { format!("agent-{name}") }
}

/// The id that stands for a deprecated one.
pub fn current_id(text: &str) -> &str {
    match text {
        "claude-1" => "claude",
        "codex-1" => "codex",
        "gemini-1" => "gemini",
        other => other,
    }
}

/// The deprecated id that an agent is still called by, where it has one.
pub(crate) fn deprecated_id(agent: &str) -> Option<&'static str> {
    ["claude-1", "codex-1", "gemini-1"].into_iter().find(|old| current_id(old).eq_ignore_ascii_case(agent))
}

/// Whether an id is one of the deprecated ones.
pub(crate) fn is_deprecated(text: &str) -> bool {
    current_id(text) != text
}

#[cfg(test)]
#[path = "ids_tests.rs"]
mod tests;
