//! Names of streams, buckets and subjects.
//!
//! ```text
//! <prefix>.<from hub>.hub.<to hub>.message       for one hub
//! <prefix>.<from hub>.hub.<to hub>.receipt       what became of a message of that hub
//! <prefix>.<from hub>.group.channel.<channel>    for all hubs
//! <prefix>.<from hub>.group.team.<team>
//! <prefix>.<from hub>.group.all
//!
//! <prefix>_live.agents.<hub>                     roster of a hub, published again by the server when it has stored it
//! <prefix>_live.agents.<hub>.<agent>             presence of one agent, likewise
//! <prefix>_live.hubs.<hub>                       a hub starts or stops; stored nowhere
//! ```
//!
//! The sending hub stands first, so that a server can keep each hub from writing in another's name.

use switchboard_core::{GroupId, Name};

/// Names of the stream, the buckets and the subjects below one prefix.
#[derive(Debug, Clone)]
pub(crate) struct Subjects {
    prefix: String,
}

impl Subjects {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// Name of the stream that stores all messages.
    pub(crate) fn stream(&self) -> String {
        format!("{}_messages", self.prefix)
    }

    /// Subject filter of the stream.
    pub(crate) fn everything(&self) -> String {
        format!("{}.>", self.prefix)
    }

    /// Bucket of rosters and presence: one entry per hub, and one per agent that ever sent a heartbeat.
    pub(crate) fn agents(&self) -> String {
        format!("{}_agents", self.prefix)
    }

    /// Bucket of heartbeats: one entry per linked hub.
    pub(crate) fn presence(&self) -> String {
        format!("{}_presence", self.prefix)
    }

    /// Bucket of task claims.
    pub(crate) fn claims(&self) -> String {
        format!("{}_claims", self.prefix)
    }

    /// Subject of messages from one hub to another.
    pub(crate) fn direct(&self, from: &Name, to: &Name) -> String {
        format!("{}.{}.hub.{}.message", self.prefix, token(from), token(to))
    }

    /// Subject of receipts from one hub to another.
    pub(crate) fn receipt(&self, from: &Name, to: &Name) -> String {
        format!("{}.{}.hub.{}.receipt", self.prefix, token(from), token(to))
    }

    /// Subject of messages from a hub to a group; `None` for a group that never spans hubs.
    pub(crate) fn group(&self, from: &Name, group: &GroupId) -> Option<String> {
        Some(format!("{}.{}.group.{}", self.prefix, token(from), group_token(group)?))
    }

    /// Filter for everything that any hub sends to one hub.
    pub(crate) fn to_hub(&self, hub: &Name) -> String {
        format!("{}.*.hub.{}.*", self.prefix, token(hub))
    }

    /// Filter for what any hub sends to a group, given as its [`group_token`].
    pub(crate) fn to_group(&self, group: &str) -> String {
        format!("{}.*.group.{group}", self.prefix)
    }

    /// Filter for republished bucket changes and for start and stop announcements of hubs.
    pub(crate) fn live(&self) -> String {
        format!("{}_live.>", self.prefix)
    }

    /// Destination to which the server republishes changes of the agents bucket, by key.
    pub(crate) fn live_agents(&self) -> String {
        format!("{}_live.agents.>", self.prefix)
    }

    /// Subject on which a hub announces that it starts or stops.
    pub(crate) fn live_hub(&self, hub: &Name) -> String {
        format!("{}_live.hubs.{}", self.prefix, token(hub))
    }

    /// Returns the hub token of an announcement subject.
    pub(crate) fn announced_hub<'s>(&self, subject: &'s str) -> Option<&'s str> {
        subject.strip_prefix(self.prefix.as_str())?.strip_prefix("_live.hubs.")
    }

    /// Filters for the messages that one hub sent, without its receipts.
    pub(crate) fn messages_of(&self, hub: &Name) -> [String; 2] {
        let (prefix, hub) = (&self.prefix, token(hub));
        [format!("{prefix}.{hub}.hub.*.message"), format!("{prefix}.{hub}.group.>")]
    }

    /// Returns the token of the receiving hub; `None` for a group subject.
    pub(crate) fn hub_of<'s>(&self, subject: &'s str) -> Option<&'s str> {
        self.after_writer(subject)?.strip_prefix("hub.")?.split('.').next()
    }

    /// Returns the [`group_token`] of a group subject; `None` for a direct one.
    pub(crate) fn group_of<'s>(&self, subject: &'s str) -> Option<&'s str> {
        self.after_writer(subject)?.strip_prefix("group.")
    }

    fn after_writer<'s>(&self, subject: &'s str) -> Option<&'s str> {
        let rest = subject.strip_prefix(self.prefix.as_str())?.strip_prefix('.')?;
        Some(rest.split_once('.')?.1)
    }

    /// Returns the token of the hub that published under a subject.
    pub(crate) fn writer<'s>(&self, subject: &'s str) -> Option<&'s str> {
        subject.strip_prefix(self.prefix.as_str())?.strip_prefix('.')?.split('.').next()
    }
}

/// Returns a group as the last tokens of a subject; `None` for a group that never spans hubs.
pub(crate) fn group_token(group: &GroupId) -> Option<String> {
    Some(match group {
        GroupId::Channel(channel) => format!("channel.{}", token(channel)),
        GroupId::Team(team) => format!("team.{}", token(team)),
        GroupId::Everyone => "all".to_owned(),
        // Only the hub that takes part in a swarm, or runs a job, can reach it.
        GroupId::Job(_) | GroupId::Swarm(_) => return None,
    })
}

/// Encodes a name as one token of a subject, of a key and of a consumer name.
///
/// The token is lower case; each character that is special there (such as a dot or a space) becomes `=` and
/// two hexadecimal digits. Different names have different tokens.
pub(crate) fn token(name: &Name) -> String {
    use std::fmt::Write as _;
    let mut token = String::with_capacity(name.as_str().len());
    for byte in name.as_str().bytes() {
        match byte.to_ascii_lowercase() {
            plain @ (b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-') => token.push(char::from(plain)),
            // Writing to a String does not fail.
            other => drop(write!(token, "={other:02x}")),
        }
    }
    token
}

#[cfg(test)]
#[path = "subject_tests.rs"]
mod tests;
