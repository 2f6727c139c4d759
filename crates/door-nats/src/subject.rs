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

/// The names that belong to one prefix.
#[derive(Debug, Clone)]
pub(crate) struct Subjects {
    prefix: String,
}

impl Subjects {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// The stream of all messages.
    pub(crate) fn stream(&self) -> String {
        format!("{}_messages", self.prefix)
    }

    /// Everything that the stream takes.
    pub(crate) fn everything(&self) -> String {
        format!("{}.>", self.prefix)
    }

    /// The bucket of rosters and presence: an entry per hub, and one per agent that gave a sign of life.
    pub(crate) fn agents(&self) -> String {
        format!("{}_agents", self.prefix)
    }

    /// The bucket of heartbeats, an entry per hub that is linked.
    pub(crate) fn presence(&self) -> String {
        format!("{}_presence", self.prefix)
    }

    /// The bucket that tells who has which task.
    pub(crate) fn claims(&self) -> String {
        format!("{}_claims", self.prefix)
    }

    /// Where one hub writes to another.
    pub(crate) fn direct(&self, from: &Name, to: &Name) -> String {
        format!("{}.{}.hub.{}.message", self.prefix, token(from), token(to))
    }

    /// Where one hub tells another what became of its message.
    pub(crate) fn receipt(&self, from: &Name, to: &Name) -> String {
        format!("{}.{}.hub.{}.receipt", self.prefix, token(from), token(to))
    }

    /// Where a hub writes to a group; nothing for a group that no other hub has members of.
    pub(crate) fn group(&self, from: &Name, group: &GroupId) -> Option<String> {
        Some(format!("{}.{}.group.{}", self.prefix, token(from), group_token(group)?))
    }

    /// What is written to one hub, by whomever.
    pub(crate) fn to_hub(&self, hub: &Name) -> String {
        format!("{}.*.hub.{}.*", self.prefix, token(hub))
    }

    /// What any hub writes to a group, by [`group_token`].
    pub(crate) fn to_group(&self, group: &str) -> String {
        format!("{}.*.group.{group}", self.prefix)
    }

    /// Where the server publishes changes of the bucket of agents, and hubs say that they start or stop.
    pub(crate) fn live(&self) -> String {
        format!("{}_live.>", self.prefix)
    }

    /// Where the server publishes the bucket of agents: below this, by key.
    pub(crate) fn live_agents(&self) -> String {
        format!("{}_live.agents.>", self.prefix)
    }

    /// Where a hub says that it starts or stops.
    pub(crate) fn live_hub(&self, hub: &Name) -> String {
        format!("{}_live.hubs.{}", self.prefix, token(hub))
    }

    /// The hub that such a subject is about.
    pub(crate) fn announced_hub<'s>(&self, subject: &'s str) -> Option<&'s str> {
        subject.strip_prefix(self.prefix.as_str())?.strip_prefix("_live.hubs.")
    }

    /// The messages that one hub has written, without its receipts.
    pub(crate) fn messages_of(&self, hub: &Name) -> [String; 2] {
        let (prefix, hub) = (&self.prefix, token(hub));
        [format!("{prefix}.{hub}.hub.*.message"), format!("{prefix}.{hub}.group.>")]
    }

    /// The token of the hub that a subject is for; nothing for one of a group.
    pub(crate) fn hub_of<'s>(&self, subject: &'s str) -> Option<&'s str> {
        self.after_writer(subject)?.strip_prefix("hub.")?.split('.').next()
    }

    /// The group of a subject, by [`group_token`]; nothing for one that is for a hub.
    pub(crate) fn group_of<'s>(&self, subject: &'s str) -> Option<&'s str> {
        self.after_writer(subject)?.strip_prefix("group.")
    }

    fn after_writer<'s>(&self, subject: &'s str) -> Option<&'s str> {
        let rest = subject.strip_prefix(self.prefix.as_str())?.strip_prefix('.')?;
        Some(rest.split_once('.')?.1)
    }

    /// The token of the hub that wrote under a subject.
    pub(crate) fn writer<'s>(&self, subject: &'s str) -> Option<&'s str> {
        subject.strip_prefix(self.prefix.as_str())?.strip_prefix('.')?.split('.').next()
    }
}

/// A group as the last tokens of a subject; nothing for a group that no other hub has members of.
pub(crate) fn group_token(group: &GroupId) -> Option<String> {
    Some(match group {
        GroupId::Channel(channel) => format!("channel.{}", token(channel)),
        GroupId::Team(team) => format!("team.{}", token(team)),
        GroupId::Everyone => "all".to_owned(),
        // Only the hub that takes part in a swarm, or runs a job, can reach it.
        GroupId::Job(_) | GroupId::Swarm(_) => return None,
    })
}

/// A name as one token of a subject, as a key and as a part of a consumer's name: lower case, and what would mean
/// something there (a dot, a space) as `=` and two hexadecimal digits. No two names share one.
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
