//! Orders that were applied: a replayed system message changes nothing.
//!
//! A message is accepted while its signed time lies within the window of the door. Each applied order is remembered for
//! as long, in the same transaction as the change it made. An order that is forgotten leaves its time as a floor: nothing
//! signed up to then is applied again, whatever the window is set to later.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Applied, NoAuthority, Said};
use crate::agent_id::PeerId;
use crate::ledger::Swarm;
use crate::wire::{Roster, SystemContent};

/// Most orders that are remembered: twice what the default limit of a swarm lets in within the window.
const MOST_ORDERS: usize = 4096;

/// Memory of the orders that a swarm has applied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orders {
    /// Orders signed up to this time are old, whether they were applied or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    floor: Option<Timestamp>,
    /// Signed times of applied orders, by sender and message id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    applied: BTreeMap<String, Timestamp>,
    /// Signed times of the latest orders about each member.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    marks: BTreeMap<PeerId, Mark>,
    /// True if orders before the latest one were missed, so that a roster of the same count is still wanted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_behind: bool,
    /// The part of a roster that is expected next, while one comes in parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next_part: Option<NextPart>,
}

/// Signed times of the latest orders about one member. Times of different clocks are kept apart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    /// The latest order of a master, and which master's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ordered: Option<(PeerId, Timestamp)>,
    /// The member's own farewell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left: Option<Timestamp>,
    /// The member's own latest change of its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rekeyed: Option<Timestamp>,
}

/// The part of a roster that is expected next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NextPart {
    pub(super) epoch: u64,
    /// The first id that it is about.
    pub(super) from: PeerId,
}

/// An order as a system message carries it.
pub(crate) enum Order {
    /// One change.
    Change(Box<SystemContent>),
    /// The whole roster, or a part of it.
    Roster(Roster),
}

impl Order {
    /// True if the order names this agent as its subject.
    pub(crate) fn names(&self, agent: &PeerId) -> bool {
        matches!(self, Self::Change(content) if content.subject() == Some(agent.as_str()))
    }
}

/// A message that carries an order.
pub(crate) struct Carrier<'a> {
    /// Its id on the wire.
    pub(crate) message_id: &'a str,
    /// Messages signed before this time are refused at the door.
    pub(crate) window_start: Timestamp,
}

impl Mark {
    fn latest(&self) -> Timestamp {
        let ordered = self.ordered.as_ref().map(|(_, at)| *at);
        [ordered, self.left, self.rekeyed].into_iter().flatten().max().unwrap_or(Timestamp::MIN)
    }
}

impl Orders {
    fn is_replay(&self, said: &Said<'_>, message_id: &str) -> bool {
        self.floor.is_some_and(|floor| said.at <= floor) || self.applied.contains_key(&key(said, message_id))
    }

    /// Remembers an order, and forgets those that the door refuses by their time.
    fn remember(&mut self, said: &Said<'_>, carrier: &Carrier<'_>) {
        self.applied.insert(key(said, carrier.message_id), said.at);
        let mut times: Vec<Timestamp> =
            self.applied.values().copied().chain(self.marks.values().map(Mark::latest)).collect();
        times.sort_unstable();
        let excess = times.len().saturating_sub(MOST_ORDERS);
        let expired = times.iter().take_while(|at| **at < carrier.window_start).count();
        let Some(last) = excess.max(expired).checked_sub(1) else { return };
        let floor = times[last];
        self.applied.retain(|_, at| *at > floor);
        self.marks.retain(|_, mark| mark.latest() > floor);
        self.floor = self.floor.max(Some(floor));
    }

    /// Notes that the master has given an order about a member.
    pub(super) fn note_ordered(&mut self, said: &Said<'_>, id: &PeerId) {
        let ordered = &mut self.marks.entry(id.clone()).or_default().ordered;
        let known = ordered.as_ref().filter(|(by, _)| by == said.sender).map(|(_, at)| *at);
        *ordered = Some((said.sender.clone(), known.map_or(said.at, |known| known.max(said.at))));
    }

    /// Notes that a member has left by its own word.
    pub(super) fn note_left(&mut self, said: &Said<'_>, id: &PeerId) {
        // Its clock may be ahead; it has left by now.
        self.marks.entry(id.clone()).or_default().left = Some(said.at.min(said.now));
    }

    /// Notes that a member has changed its key by its own word.
    pub(super) fn note_rekeyed(&mut self, said: &Said<'_>, id: &PeerId) {
        self.marks.entry(id.clone()).or_default().rekeyed = Some(said.at.min(said.now));
    }

    /// Signed time of the latest order of the same master about a member.
    pub(super) fn ordered_at(&self, said: &Said<'_>, id: &PeerId) -> Option<Timestamp> {
        let ordered = self.marks.get(id)?.ordered.as_ref();
        ordered.filter(|(by, _)| by == said.sender).map(|(_, at)| *at)
    }

    /// When a member has left by its own word.
    pub(super) fn left_at(&self, id: &PeerId) -> Option<Timestamp> {
        self.marks.get(id)?.left
    }

    /// When a member has changed its key by its own word.
    pub(super) fn rekeyed_at(&self, id: &PeerId) -> Option<Timestamp> {
        self.marks.get(id)?.rekeyed
    }
}

fn key(said: &Said<'_>, message_id: &str) -> String {
    format!("{}/{message_id}", said.sender)
}

impl Swarm {
    /// Applies an order that has not been applied before.
    pub(crate) fn apply_once(
        &mut self,
        said: &Said<'_>,
        carrier: &Carrier<'_>,
        order: &Order,
    ) -> Result<Applied, NoAuthority> {
        if self.orders.is_replay(said, carrier.message_id) {
            return Ok(Applied::Nothing);
        }
        let is_master = *said.sender == self.master;
        let applied = match order {
            Order::Change(content) => self.apply(said, content)?,
            Order::Roster(roster) if self.replace_roster(said, roster)? => Applied::Changed,
            Order::Roster(_) => Applied::Nothing,
        };
        // A question changes nothing, and members say of themselves what leaves no trace as often as they like.
        let has_effect = !matches!(applied, Applied::Nothing | Applied::RosterWanted);
        if has_effect || (is_master && applied != Applied::RosterWanted) {
            self.orders.remember(said, carrier);
        }
        Ok(applied)
    }
}

#[cfg(test)]
#[path = "orders_tests.rs"]
mod tests;
