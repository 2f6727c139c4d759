//! From a message to deliveries.

use crate::{Address, AgentId, AgentRecord, Directory, GroupId, Message, ResolveError, Route, resolve};

/// Who gets a message, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// One entry per recipient, in name order.
    pub deliveries: Vec<Planned>,
}

/// One recipient's delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// To whom.
    pub agent: AgentId,
    /// By which way.
    pub route: Route,
    /// Whether the message already is where this route leads, because it came in there: a file that
    /// someone put into the mailbox or the channel. Nothing is sent, and the delivery counts as made.
    pub in_place: bool,
}

/// The deliveries that `message` calls for.
///
/// Each recipient gets it once, by the most direct of its routes, and never by the route the message
/// came in by; a member of a group that has no other is left out. With `allow_unregistered`, an unknown
/// local agent is reached through the channel that the message lies in, or else through its mailbox.
///
/// A message to a channel reaches those who read the channel there, so that it stands in the channel for all
/// of them. One that lies in its channel already needs no reader: who comes later finds it.
///
/// What came from another hub goes to no further one: the link that brought it brings it to all of them.
pub fn plan(
    message: &Message,
    directory: &Directory,
    allow_unregistered: bool,
) -> Result<Plan, ResolveError> {
    let agents = match resolve(&message.to, &message.from, directory) {
        Err(ResolveError::UnknownAgent { agent, .. }) if allow_unregistered && agent.realm.is_none() => {
            vec![agent]
        }
        Err(ResolveError::EmptyGroup { .. }) if is_in_its_channel(message) => Vec::new(),
        resolved => resolved?,
    };
    let came_by = message.origin.route.as_ref();
    let deliveries: Vec<_> = agents
        .into_iter()
        .filter_map(|agent| {
            let routes = routes_of(&agent, directory, came_by);
            let (route, in_place) = choose(routes, came_by, channel_of(message))?;
            Some(Planned { agent, route, in_place })
        })
        .collect();
    if deliveries.is_empty() && !is_in_its_channel(message) {
        return Err(match &message.to {
            Address::Group(group) => ResolveError::EmptyGroup { group: group.clone() },
            direct => ResolveError::NoRoute { to: direct.clone() },
        });
    }
    Ok(Plan { deliveries })
}

/// The channel that a message was written to, as a way to its readers.
fn channel_of(message: &Message) -> Option<Route> {
    match &message.to {
        Address::Group(GroupId::Channel(channel)) => Some(Route::Channel { channel: channel.clone() }),
        _ => None,
    }
}

/// Whether a message to a channel came in as a file of that channel.
fn is_in_its_channel(message: &Message) -> bool {
    message.origin.route.is_some() && message.origin.route == channel_of(message)
}

/// The route to take, and whether the message is there already.
fn choose(routes: Vec<Route>, came_by: Option<&Route>, written_to: Option<Route>) -> Option<(Route, bool)> {
    // A file in a mailbox or a channel lies before its reader; any other way in is not a way to a reader.
    let is_place = |route: &Route| matches!(route, Route::Mailbox { .. } | Route::Channel { .. });
    if let Some(route) = routes.iter().find(|route| is_place(route) && came_by == Some(route)) {
        return Some((route.clone(), true));
    }
    if let Some(route) = routes.iter().find(|route| written_to.as_ref() == Some(*route)) {
        return Some((route.clone(), false));
    }
    let is_hub = |route: &Route| matches!(route, Route::Hub { .. });
    let is_passed_on = came_by.is_some_and(is_hub);
    let is_open = |route: &Route| came_by != Some(route) && !(is_passed_on && is_hub(route));
    let route = routes.into_iter().filter(is_open).min_by_key(Route::preference)?;
    Some((route, false))
}

fn routes_of(agent: &AgentId, directory: &Directory, came_by: Option<&Route>) -> Vec<Route> {
    let record = directory.agent(agent);
    if let Some(hub) = record.and_then(AgentRecord::hub) {
        return vec![Route::Hub { hub: hub.clone() }];
    }
    match record {
        None if agent.realm.is_none() && !agent.is_human() => match came_by {
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
