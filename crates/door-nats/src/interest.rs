//! Interest: the channels and teams that agents of this hub read, and thereby the subjects that the hub receives.
//!
//! The interest in force is stored with the cursor. The hub announces the channels and teams of its agents only once it
//! receives them, so a sender that sees a reader can also reach that reader.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use switchboard_core::{Directory, GroupId, Name, Route};
use switchboard_sys::debounce::Debounce;

use crate::error::NatsError;
use crate::session::Session;
use crate::subject::{Subjects, group_token};

/// Maximum number of channels and teams, together, that a consumer filters individually.
///
/// A hub with more of them receives all groups.
const MAX_GROUPS: usize = 512;

/// Wildcard filters for every channel and every team.
const WILDCARDS: [&str; 2] = ["channel.*", "team.*"];

/// Set of groups that a hub receives, each as the last tokens of its subject.
///
/// The empty set is the interest of a hub that was never linked, which receives direct messages only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Interest(BTreeSet<String>);

impl Interest {
    /// Collects the groups that agents of this hub belong to.
    ///
    /// Agents behind a swarm are included, because this hub forwards their messages.
    pub(crate) fn of(directory: &Directory) -> Self {
        let links = directory.routing_rules();
        let mut channels: BTreeSet<&Name> = links.channels().collect();
        let mut teams: BTreeSet<&Name> = links.teams().collect();
        for agent in directory.agents().filter(|agent| agent.hub().is_none()) {
            teams.extend(&agent.team);
            channels.extend(agent.routes.iter().filter_map(|route| match route {
                Route::Channel { channel } => Some(channel),
                _ => None,
            }));
        }
        // The channel `team-NAME` belongs to the team NAME.
        let of_teams: Vec<Name> =
            teams.iter().filter_map(|team| Name::parse(&format!("team-{team}")).ok()).collect();
        channels.extend(&of_teams);
        let groups = channels.into_iter().cloned().map(GroupId::Channel);
        let groups = groups.chain(teams.into_iter().cloned().map(GroupId::Team));
        let mut groups: BTreeSet<String> = groups.filter_map(|group| group_token(&group)).collect();
        if groups.len() > MAX_GROUPS {
            groups = WILDCARDS.map(str::to_owned).into();
        }
        groups.extend(group_token(&GroupId::Everyone));
        Self(groups)
    }

    /// Returns true if the hub receives this group.
    pub(crate) fn covers(&self, group: &GroupId) -> bool {
        group_token(group).is_some_and(|group| self.covers_token(&group))
    }

    /// Returns true if the hub receives the group with this [`group_token`].
    pub(crate) fn covers_token(&self, group: &str) -> bool {
        let every = || WILDCARDS.iter().find(|every| group.starts_with(every.trim_end_matches('*')));
        self.0.contains(group) || every().is_some_and(|every| self.0.contains(*every))
    }

    /// Returns the filter subjects of the hub's consumer.
    pub(crate) fn filters(&self, subjects: &Subjects, me: &Name) -> Vec<String> {
        let groups = self.0.iter().map(|group| subjects.to_group(group));
        std::iter::once(subjects.to_hub(me)).chain(groups).collect()
    }

    /// Parses the text that [`fmt::Display`] wrote.
    pub(crate) fn parse<'t>(groups: impl Iterator<Item = &'t str>) -> Self {
        Self(groups.filter(|group| !group.is_empty()).map(str::to_owned).collect())
    }
}

impl fmt::Display for Interest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, group) in self.0.iter().enumerate() {
            let space = if number == 0 { "" } else { " " };
            write!(f, "{space}{group}")?;
        }
        Ok(())
    }
}

/// Waits until the hub receives a group that its agents belong to. Returns at once for any other group.
///
/// Messages to the group are published only after that, because a reply may arrive as soon as another hub has the
/// message.
pub(crate) async fn wait_until_received(session: &Session, group: &GroupId) -> Result<(), NatsError> {
    let mut received = session.received.subscribe();
    let mut changes = session.hub.changes();
    while !received.borrow_and_update().covers(group) {
        if !Interest::of(&*session.hub.directory().await?).covers(group) {
            return Ok(());
        }
        tokio::select! {
            changed = received.changed() => changed.map_err(|_| NatsError::Lost)?,
            () = changes.next() => {}
        }
    }
    Ok(())
}

/// Follows the directory and publishes the interest to which the intake must switch, until an error occurs.
pub(crate) async fn follow(session: &Session) -> Result<Infallible, NatsError> {
    let mut changes = session.hub.changes();
    let mut seen: Option<Arc<Directory>> = None;
    loop {
        let directory = session.hub.directory().await?;
        if !seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, &directory)) {
            let interest = Interest::of(&directory);
            session.wanted.send_if_modified(|wanted| {
                let is_other = *wanted != interest;
                *wanted = interest;
                is_other
            });
            seen = Some(directory);
            Debounce::SUBSCRIPTIONS.wait().await;
        }
        changes.next().await;
    }
}

#[cfg(test)]
#[path = "interest_tests.rs"]
mod tests;
