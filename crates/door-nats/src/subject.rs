//! Names of streams, buckets and subjects.
//!
//! ```text
//! <prefix>.<from hub>.hub.<to hub>.message       message for one hub
//! <prefix>.<from hub>.hub.<to hub>.receipt       receipts for messages of that hub
//! <prefix>.<from hub>.group.channel.<channel>    message for all hubs
//! <prefix>.<from hub>.group.team.<team>
//! <prefix>.<from hub>.group.all
//!
//! <prefix>_live.agents.<hub>                     roster of a hub, republished by the server after storing it
//! <prefix>_live.agents.<hub>.<agent>             presence of one agent, republished in the same way
//! <prefix>_live.hubs.<hub>                       announcement that a hub starts or stops; not stored
//! ```
//!
//! The sending hub comes first in a subject, so that a server can prevent each hub from writing in another hub's name.

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

    /// Returns the name of the stream that stores all messages.
    pub(crate) fn stream(&self) -> String {
        format!("{}_messages", self.prefix)
    }

    /// Returns the subject filter of the stream, which covers all messages.
    pub(crate) fn everything(&self) -> String {
        format!("{}.>", self.prefix)
    }

    /// Returns the name of the bucket of rosters and presence.
    ///
    /// The bucket has one entry per hub, and one per agent that ever sent a heartbeat.
    pub(crate) fn agents(&self) -> String {
        format!("{}_agents", self.prefix)
    }

    /// Returns the name of the bucket of heartbeats, with one entry per linked hub.
    pub(crate) fn presence(&self) -> String {
        format!("{}_presence", self.prefix)
    }

    /// Returns the name of the bucket of task claims.
    pub(crate) fn claims(&self) -> String {
        format!("{}_claims", self.prefix)
    }

    /// Returns the subject of messages from one hub to another.
    pub(crate) fn direct(&self, from: &Name, to: &Name) -> String {
        format!("{}.{}.hub.{}.message", self.prefix, token(from), token(to))
    }

    /// Returns the subject of receipts from one hub to another.
    pub(crate) fn receipt(&self, from: &Name, to: &Name) -> String {
        format!("{}.{}.hub.{}.receipt", self.prefix, token(from), token(to))
    }

    /// Returns the subject of messages from a hub to a group; `None` for a group that never spans hubs.
    pub(crate) fn group(&self, from: &Name, group: &GroupId) -> Option<String> {
        Some(format!("{}.{}.group.{}", self.prefix, token(from), group_token(group)?))
    }

    /// Returns the filter for everything that any hub sends to one hub.
    pub(crate) fn to_hub(&self, hub: &Name) -> String {
        format!("{}.*.hub.{}.*", self.prefix, token(hub))
    }

    /// Returns the filter for everything that any hub sends to the group with this [`group_token`].
    pub(crate) fn to_group(&self, group: &str) -> String {
        format!("{}.*.group.{group}", self.prefix)
    }

    /// Returns the filter for republished bucket changes and for hubs' start and stop announcements.
    pub(crate) fn live(&self) -> String {
        format!("{}_live.>", self.prefix)
    }

    /// Returns the subject pattern under which the server republishes changes of the agents bucket, by key.
    pub(crate) fn live_agents(&self) -> String {
        format!("{}_live.agents.>", self.prefix)
    }

    /// Returns the subject on which a hub announces that it starts or stops.
    pub(crate) fn live_hub(&self, hub: &Name) -> String {
        format!("{}_live.hubs.{}", self.prefix, token(hub))
    }

    /// Returns the hub token of an announcement subject.
    pub(crate) fn announced_hub<'s>(&self, subject: &'s str) -> Option<&'s str> {
        subject.strip_prefix(self.prefix.as_str())?.strip_prefix("_live.hubs.")
    }

    /// Returns the filters for the messages that one hub sent, without its receipts.
    pub(crate) fn messages_of(&self, hub: &Name) -> [String; 2] {
        let (prefix, hub) = (&self.prefix, token(hub));
        [format!("{prefix}.{hub}.hub.*.message"), format!("{prefix}.{hub}.group.>")]
    }

    /// Returns the token of the receiving hub; `None` for a group subject.
    pub(crate) fn hub_of<'s>(&self, subject: &'s str) -> Option<&'s str> {
        self.after_writer(subject)?.strip_prefix("hub.")?.split('.').next()
    }

    /// Returns the [`group_token`] of a group subject; `None` for the subject of a direct message.
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
        // Only the hub that takes part in the swarm, or runs the job, can reach this group.
        GroupId::Job(_) | GroupId::Swarm(_) => return None,
    })
}

/// Encodes a name as one token of a subject, a key or a consumer name.
///
/// The token is in lower case. Each character with a special meaning there (such as a dot or a space) becomes `=` and
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
