//! From a message to deliveries.

use serde_json::Value;

use crate::{
    Address, AgentId, AgentRecord, Because, Directory, GroupId, HEARD, Message, Recipient, ResolveError,
    Route, resolve::trace_readers, trace,
};

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

/// One recipient, with all the ways to reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Considered {
    /// To whom, and why.
    pub recipient: Recipient,
    /// The ways that there are, in no order, and what speaks for and against each.
    pub routes: Vec<(Route, Fit)>,
}

/// What speaks for a route, the best first; or against it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    /// The message came in there: a file that lies before its reader.
    InPlace,
    /// The message is written to that channel, where it stands for all of its readers.
    WrittenTo,
    /// It can be taken; the lowest number is the most direct.
    Open(u8),
    /// Never: the message came in by it.
    CameBy,
    /// Never: what came from another hub is brought to all hubs by the link that brought it.
    FurtherHub,
}

impl Fit {
    /// Whether the route may be taken.
    pub fn may_be_taken(self) -> bool {
        matches!(self, Self::InPlace | Self::WrittenTo | Self::Open(_))
    }
}

impl Considered {
    /// The way to take: the one that most speaks for, of several the first.
    pub fn choice(&self) -> Option<&(Route, Fit)> {
        self.routes.get(self.chosen()?)
    }

    fn chosen(&self) -> Option<usize> {
        let open = self.routes.iter().enumerate().filter(|(_, (_, fit))| fit.may_be_taken());
        open.min_by_key(|(_, (_, fit))| *fit).map(|(number, _)| number)
    }

    fn planned(mut self) -> Option<Planned> {
        let (route, fit) = self.routes.swap_remove(self.chosen()?);
        Some(Planned { agent: self.recipient.agent, route, in_place: fit == Fit::InPlace })
    }
}

/// The deliveries that `message` calls for: of each recipient that is considered, the way to take.
pub fn plan(
    message: &Message,
    directory: &Directory,
    allow_unregistered: bool,
) -> Result<Plan, ResolveError> {
    let considered = consider(message, directory, allow_unregistered)?;
    Ok(Plan { deliveries: considered.into_iter().filter_map(Considered::planned).collect() })
}

/// Everyone who is to get `message`, in name order, and the ways to reach each.
///
/// Each recipient gets it once, by the most direct of its routes, and never by the route the message
/// came in by; a member of a group that has no other is left out. With `allow_unregistered`, an unknown
/// local agent is reached through the channel that the message lies in, or else through its mailbox.
///
/// A message to a channel reaches those who read the channel there, so that it stands in the channel for all
/// of them; so does what another hub's agent posted in it, whomever it is for. One that lies in its channel already
/// needs no reader: who comes later finds it. A link of that channel to an unknown swarm does not keep it from its readers.
///
/// What came from another hub goes to no further one: the link that brought it brings it to all of them. And who reads a
/// channel along by a link of that hub as well as by one of ours has it from that hub.
pub fn consider(
    message: &Message,
    directory: &Directory,
    allow_unregistered: bool,
) -> Result<Vec<Considered>, ResolveError> {
    let is_in_its_channel = is_in_its_channel(message);
    let trace = if is_in_its_channel { trace_readers } else { trace };
    let recipients = match trace(&message.to, &message.from, directory) {
        Err(ResolveError::UnknownAgent { agent, .. }) if allow_unregistered && agent.realm.is_none() => {
            vec![Recipient { agent, because: Because::Unregistered, forwarded_from: None }]
        }
        Err(ResolveError::EmptyGroup { .. }) if is_in_its_channel => Vec::new(),
        traced => traced?,
    };
    let came_by = message.origin.route.as_ref();
    let written_to = channel_of(message);
    let considered = |recipient: Recipient| {
        let routes = routes_of(&recipient.agent, directory, came_by).into_iter();
        let judged = routes.map(|route| {
            let fit = fit(&route, message, written_to.as_ref());
            (route, fit)
        });
        Considered { routes: judged.collect(), recipient }
    };
    let is_told = |one: &Recipient| one.because == Because::Joined && has_heard(message, &one.agent);
    let considered: Vec<_> = recipients.into_iter().filter(|one| !is_told(one)).map(considered).collect();
    if considered.iter().all(|one| one.choice().is_none()) && !is_in_its_channel {
        return Err(match &message.to {
            Address::Group(group) => ResolveError::EmptyGroup { group: group.clone() },
            direct => ResolveError::NoRoute { to: direct.clone() },
        });
    }
    Ok(considered)
}

/// Whether another hub of ours says that somebody has it.
fn has_heard(message: &Message, agent: &AgentId) -> bool {
    let told = message.metadata.get(HEARD).and_then(Value::as_array).filter(|_| message.is_of_another_hub());
    let is_it = |name: &Value| name.as_str().and_then(|name| name.parse().ok()).as_ref() == Some(agent);
    told.is_some_and(|told| told.iter().any(is_it))
}

/// The channel that a message was written to, or posted in on the hub that it comes from, as a way to its readers.
fn channel_of(message: &Message) -> Option<Route> {
    let channel = match (&message.to, &message.origin.route) {
        (Address::Group(GroupId::Channel(channel)), _) => channel.clone(),
        (_, Some(Route::Hub { .. })) => message.posted_in()?,
        _ => return None,
    };
    Some(Route::Channel { channel })
}

/// Whether a message to a channel came in as a file of that channel.
fn is_in_its_channel(message: &Message) -> bool {
    message.origin.route.is_some() && message.origin.route == channel_of(message)
}

/// What speaks for a route, or against it.
fn fit(route: &Route, message: &Message, written_to: Option<&Route>) -> Fit {
    // A file in a mailbox or a channel lies before its reader; any other way in is not a way to a reader.
    let is_place = matches!(route, Route::Mailbox { .. } | Route::Channel { .. });
    if message.origin.route.as_ref() == Some(route) {
        return if is_place { Fit::InPlace } else { Fit::CameBy };
    }
    if written_to == Some(route) {
        return Fit::WrittenTo;
    }
    if matches!(route, Route::Hub { .. }) && message.is_of_another_hub() {
        return Fit::FurtherHub;
    }
    Fit::Open(route.preference())
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
