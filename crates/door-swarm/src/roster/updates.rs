//! History of applied roster updates, for replay protection.
//!
//! A message is accepted while its signing time is within the time window of the door. Applied updates are stored for
//! that long, in the same transaction as the change itself. When an update is discarded, its signing time becomes the
//! floor: no update signed up to that time is applied again, even if the window is widened later.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{UpdateContext, UpdateError, UpdateOutcome};
use crate::agent_id::PeerId;
use crate::model::Swarm;
use crate::wire::{Roster, SystemContent};

/// Maximum number of stored updates: twice what a swarm's default rate limit admits within the window.
const MAX_UPDATES: usize = 4096;

/// The roster updates that a swarm has applied, for replay protection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedUpdates {
    /// Updates signed up to this time are ignored as outdated, whether they were applied or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    floor: Option<Timestamp>,
    /// Signing times of applied updates, by sender and message id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    applied: BTreeMap<String, Timestamp>,
    /// Signing times of the latest updates about each member.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    marks: BTreeMap<PeerId, LatestUpdates>,
    /// True if earlier updates were missed, so that a roster with the current epoch is still accepted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_behind: bool,
    /// The next expected part of a roster that arrives in parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next_part: Option<NextPart>,
}

/// Signing times of the latest updates about one member. Times from different clocks are stored separately.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct LatestUpdates {
    /// The latest update by a master, with that master's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ordered: Option<(PeerId, Timestamp)>,
    /// Time of the member's own departure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left: Option<Timestamp>,
    /// Time of the member's own latest key rotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rekeyed: Option<Timestamp>,
}

/// The next expected part of a roster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NextPart {
    pub(super) epoch: u64,
    /// First id of the part.
    pub(super) from: PeerId,
}

/// A roster update in a system message.
pub(crate) enum RosterUpdate {
    /// A single change.
    Change(Box<SystemContent>),
    /// A full roster or a part of one.
    Roster(Roster),
}

impl RosterUpdate {
    /// Returns true if this agent is the subject of the update.
    pub(crate) fn is_about(&self, agent: &PeerId) -> bool {
        matches!(self, Self::Change(content) if content.subject() == Some(agent.as_str()))
    }
}

/// The message that carries an update.
pub(crate) struct CarrierMessage<'a> {
    /// Message id on the wire.
    pub(crate) message_id: &'a str,
    /// Start of the time window; the door refuses older messages.
    pub(crate) window_start: Timestamp,
}

impl LatestUpdates {
    fn latest(&self) -> Timestamp {
        let ordered = self.ordered.as_ref().map(|(_, at)| *at);
        [ordered, self.left, self.rekeyed].into_iter().flatten().max().unwrap_or(Timestamp::MIN)
    }
}

impl AppliedUpdates {
    fn is_replay(&self, context: &UpdateContext<'_>, message_id: &str) -> bool {
        self.floor.is_some_and(|floor| context.at <= floor)
            || self.applied.contains_key(&key(context, message_id))
    }

    /// Records an applied update for replay protection, and discards updates that the time window excludes.
    fn record(&mut self, context: &UpdateContext<'_>, carrier: &CarrierMessage<'_>) {
        self.applied.insert(key(context, carrier.message_id), context.at);
        let mut times: Vec<Timestamp> =
            self.applied.values().copied().chain(self.marks.values().map(LatestUpdates::latest)).collect();
        times.sort_unstable();
        let excess = times.len().saturating_sub(MAX_UPDATES);
        let expired = times.iter().take_while(|at| **at < carrier.window_start).count();
        let Some(last) = excess.max(expired).checked_sub(1) else { return };
        let floor = times[last];
        self.applied.retain(|_, at| *at > floor);
        self.marks.retain(|_, mark| mark.latest() > floor);
        self.floor = self.floor.max(Some(floor));
    }

    /// Records the signing time of a master's update about a member.
    pub(super) fn record_master_update(&mut self, context: &UpdateContext<'_>, id: &PeerId) {
        let ordered = &mut self.marks.entry(id.clone()).or_default().ordered;
        let known = ordered.as_ref().filter(|(by, _)| by == context.sender).map(|(_, at)| *at);
        *ordered = Some((context.sender.clone(), known.map_or(context.at, |known| known.max(context.at))));
    }

    /// Records a member's own departure.
    pub(super) fn record_departure(&mut self, context: &UpdateContext<'_>, id: &PeerId) {
        // The member's clock may be ahead, but the member has left by now.
        self.marks.entry(id.clone()).or_default().left = Some(context.at.min(context.now));
    }

    /// Records a member's own key rotation.
    pub(super) fn record_rekey(&mut self, context: &UpdateContext<'_>, id: &PeerId) {
        self.marks.entry(id.clone()).or_default().rekeyed = Some(context.at.min(context.now));
    }

    /// Returns the signing time of the same master's latest update about a member.
    pub(super) fn master_update_at(&self, context: &UpdateContext<'_>, id: &PeerId) -> Option<Timestamp> {
        let ordered = self.marks.get(id)?.ordered.as_ref();
        ordered.filter(|(by, _)| by == context.sender).map(|(_, at)| *at)
    }

    /// Returns the time of a member's own departure.
    pub(super) fn departed_at(&self, id: &PeerId) -> Option<Timestamp> {
        self.marks.get(id)?.left
    }

    /// Returns the time of a member's own key rotation.
    pub(super) fn rekeyed_at(&self, id: &PeerId) -> Option<Timestamp> {
        self.marks.get(id)?.rekeyed
    }
}

fn key(context: &UpdateContext<'_>, message_id: &str) -> String {
    format!("{}/{message_id}", context.sender)
}

impl Swarm {
    /// Applies a roster update once. A replay has no effect.
    pub(crate) fn apply_once(
        &mut self,
        context: &UpdateContext<'_>,
        carrier: &CarrierMessage<'_>,
        update: &RosterUpdate,
    ) -> Result<UpdateOutcome, UpdateError> {
        if self.orders.is_replay(context, carrier.message_id) {
            return Ok(UpdateOutcome::Nothing);
        }
        let is_master = *context.sender == self.master;
        let applied = match update {
            RosterUpdate::Change(content) => self.apply(context, content)?,
            RosterUpdate::Roster(roster) if self.replace_roster(context, roster)? => UpdateOutcome::Changed,
            RosterUpdate::Roster(_) => UpdateOutcome::Nothing,
        };
        // A roster request changes nothing, and members may repeat messages about themselves that had no effect, so
        // neither is recorded.
        let has_effect = !matches!(applied, UpdateOutcome::Nothing | UpdateOutcome::RosterRequested);
        if has_effect || (is_master && applied != UpdateOutcome::RosterRequested) {
            self.orders.record(context, carrier);
        }
        Ok(applied)
    }
}

#[cfg(test)]
#[path = "updates_tests.rs"]
mod tests;
