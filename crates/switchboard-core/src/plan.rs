//! Delivery planning: recipients and routes of a message.

use serde_json::Value;

use crate::{
    Address, AgentId, AgentRecord, Directory, GroupId, Message, RECEIVED_BY, Recipient, ResolveError,
    ResolvedVia, Route, resolve::resolve_readers, resolve_recipients,
};

/// Delivery plan of a message (fan-out).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Planned deliveries, one per recipient, in name order.
    pub deliveries: Vec<PlanEntry>,
}

/// Planned delivery to one recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanEntry {
    /// The recipient.
    pub agent: AgentId,
    /// The selected route.
    pub route: Route,
    /// True if the message arrived as a file at the target of the route, in the mailbox or the channel.
    ///
    /// In this case nothing is sent, and the delivery counts as delivered.
    pub in_place: bool,
}

/// One recipient with all candidate routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteCandidates {
    /// The recipient, and why the address resolves to it.
    pub recipient: Recipient,
    /// The candidate routes with their ranks, in no particular order.
    pub routes: Vec<(Route, RouteRank)>,
}

/// Rank of a route. Variants are ordered from best to worst; the last two exclude the route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RouteRank {
    /// The message arrived by this route, as a file that the recipient can already read.
    InPlace,
    /// The message is addressed to this channel, where all readers see it.
    AddressedChannel,
    /// The route is usable. A lower number means a more direct route.
    Available(u8),
    /// Excluded: the message arrived by this route.
    Inbound,
    /// Excluded: the hub that accepted the message relays it to all other hubs.
    AlreadyRelayed,
}

impl RouteRank {
    /// Returns true if the route may be used.
    pub fn is_usable(self) -> bool {
        matches!(self, Self::InPlace | Self::AddressedChannel | Self::Available(_))
    }
}

impl RouteCandidates {
    /// Returns the route with the best rank. Of several such routes it is the first one.
    pub fn best(&self) -> Option<&(Route, RouteRank)> {
        self.routes.get(self.chosen()?)
    }

    fn chosen(&self) -> Option<usize> {
        let open = self.routes.iter().enumerate().filter(|(_, (_, rank))| rank.is_usable());
        open.min_by_key(|(_, (_, rank))| *rank).map(|(number, _)| number)
    }

    fn planned(mut self) -> Option<PlanEntry> {
        let (route, rank) = self.routes.swap_remove(self.chosen()?);
        Some(PlanEntry { agent: self.recipient.agent, route, in_place: rank == RouteRank::InPlace })
    }
}

/// Plans the deliveries of `message` (fan-out), with the best route for each recipient.
#[doc(alias = "fan-out")]
#[doc(alias = "route")]
pub fn plan(
    message: &Message,
    directory: &Directory,
    allow_unregistered: bool,
) -> Result<Plan, ResolveError> {
    let candidates = rank_routes(message, directory, allow_unregistered)?;
    Ok(Plan { deliveries: candidates.into_iter().filter_map(RouteCandidates::planned).collect() })
}

/// Returns the recipients of `message` in name order, each with its ranked routes.
///
/// Each recipient gets the message once, by its most direct route, and never by the inbound route. A group member
/// without another route is skipped. With `allow_unregistered`, an unknown local agent is reached through the channel
/// in which the message was found, otherwise through its mailbox.
///
/// A message to a channel is delivered in the channel, so that every reader sees it there. The same holds for a message
/// that an agent of another hub posted in the channel, whatever the address of the message. A message that is already
/// in its channel needs no reader, because later readers find it. A routing rule that subscribes an unknown swarm to
/// the channel does not stop delivery to the other readers.
///
/// A message from another hub is not relayed to further hubs, because the hub that accepted the message relays it to
/// all of them. If rules of both hubs subscribe an agent, the agent gets the message from the hub that accepted it.
pub fn rank_routes(
    message: &Message,
    directory: &Directory,
    allow_unregistered: bool,
) -> Result<Vec<RouteCandidates>, ResolveError> {
    let is_in_its_channel = is_in_its_channel(message);
    let resolve_recipients = if is_in_its_channel { resolve_readers } else { resolve_recipients };
    let recipients = match resolve_recipients(&message.to, &message.from, directory) {
        Err(ResolveError::UnknownAgent { agent, .. }) if allow_unregistered && agent.realm.is_none() => {
            vec![Recipient { agent, resolved_via: ResolvedVia::Unregistered, forwarded_from: None }]
        }
        Err(ResolveError::EmptyGroup { .. }) if is_in_its_channel => Vec::new(),
        traced => traced?,
    };
    let inbound = message.origin.route.as_ref();
    let addressed_channel = channel_of(message);
    let candidates = |recipient: Recipient| {
        let routes = routes_of(&recipient.agent, directory, inbound).into_iter();
        let ranked = routes.map(|route| {
            let rank = rank(&route, message, addressed_channel.as_ref());
            (route, rank)
        });
        RouteCandidates { routes: ranked.collect(), recipient }
    };
    let has_it = |one: &Recipient| {
        one.resolved_via == ResolvedVia::Subscribed && is_already_delivered(message, &one.agent)
    };
    let candidates: Vec<_> = recipients.into_iter().filter(|one| !has_it(one)).map(candidates).collect();
    if candidates.iter().all(|one| one.best().is_none()) && !is_in_its_channel {
        return Err(match &message.to {
            Address::Group(group) => ResolveError::EmptyGroup { group: group.clone() },
            direct => ResolveError::NoRoute { to: direct.clone() },
        });
    }
    Ok(candidates)
}

/// Returns true if another linked hub reports that it delivered the message to this agent.
fn is_already_delivered(message: &Message, agent: &AgentId) -> bool {
    let receivers =
        message.metadata.get(RECEIVED_BY).and_then(Value::as_array).filter(|_| message.is_from_other_hub());
    let is_agent = |name: &Value| name.as_str().and_then(|name| name.parse().ok()).as_ref() == Some(agent);
    receivers.is_some_and(|receivers| receivers.iter().any(is_agent))
}

/// Returns the route of the channel that a message is addressed to, or in which it was posted on another hub.
fn channel_of(message: &Message) -> Option<Route> {
    let channel = match (&message.to, &message.origin.route) {
        (Address::Group(GroupId::Channel(channel)), _) => channel.clone(),
        (_, Some(Route::Hub { .. })) => message.posted_in()?,
        _ => return None,
    };
    Some(Route::Channel { channel })
}

/// Returns true if a message to a channel arrived as a file of that channel.
fn is_in_its_channel(message: &Message) -> bool {
    message.origin.route.is_some() && message.origin.route == channel_of(message)
}

/// Ranks a route for a message.
fn rank(route: &Route, message: &Message, addressed_channel: Option<&Route>) -> RouteRank {
    // Recipients read files in mailboxes and channels. Other inbound routes do not lead to a recipient.
    let is_readable = matches!(route, Route::Mailbox { .. } | Route::Channel { .. });
    if message.origin.route.as_ref() == Some(route) {
        return if is_readable { RouteRank::InPlace } else { RouteRank::Inbound };
    }
    if addressed_channel == Some(route) {
        return RouteRank::AddressedChannel;
    }
    if matches!(route, Route::Hub { .. }) && message.is_from_other_hub() {
        return RouteRank::AlreadyRelayed;
    }
    RouteRank::Available(route.preference())
}

fn routes_of(agent: &AgentId, directory: &Directory, inbound: Option<&Route>) -> Vec<Route> {
    let record = directory.agent(agent);
    if let Some(hub) = record.and_then(AgentRecord::hub) {
        return vec![Route::Hub { hub: hub.clone() }];
    }
    match record {
        None if agent.realm.is_none() && !agent.is_human() => match inbound {
            Some(channel @ Route::Channel { .. }) => vec![channel.clone()],
            _ => vec![Route::Mailbox { agent: agent.name.clone() }],
        },
        Some(record) if !record.routes.is_empty() => record.routes.clone(),
        _ if agent.realm.is_some() => vec![Route::Peer { agent: agent.clone() }],
        _ => vec![Route::Mailbox { agent: agent.name.clone() }],
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
