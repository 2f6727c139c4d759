//! The settings section `links`: forwards, additional team members, and shared channels.

use std::collections::BTreeMap;

use serde::Deserialize;
use switchboard_core::{AgentId, Name, RoutingRules};

/// Keys of the section `links`.
pub(super) const KEYS: &[&str] = &["forwards", "teams", "channels"];

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct LinksSection {
    /// Agents whose messages go to another agent instead.
    forwards: Option<BTreeMap<String, String>>,
    /// Additional members of teams.
    teams: Option<BTreeMap<String, Vec<String>>>,
    /// Swarms or other hubs that also read a channel.
    channels: Option<BTreeMap<String, Vec<String>>>,
}

/// Resolves the section, or describes the invalid value.
pub(super) fn resolve(section: LinksSection) -> Result<RoutingRules, String> {
    let mut links = RoutingRules::default();
    for (from, to) in section.forwards.unwrap_or_default() {
        let key = format!("links.forwards.{from}");
        let linked = links.forward(agent(&key, &from)?, agent(&key, &to)?);
        linked.map_err(|error| format!("'{key}' is refused: {error}"))?;
    }
    for (team, members) in section.teams.unwrap_or_default() {
        let key = format!("links.teams.{team}");
        let team = name(&key, team.strip_prefix("team:").unwrap_or(&team))?;
        for member in members {
            links.add_member(team.clone(), agent(&key, &member)?);
        }
    }
    for (channel, realms) in section.channels.unwrap_or_default() {
        let key = format!("links.channels.{channel}");
        let channel = name(&key, channel.strip_prefix('#').unwrap_or(&channel))?;
        for realm in realms {
            links.subscribe(channel.clone(), name(&key, realm.strip_prefix('@').unwrap_or(&realm))?);
        }
    }
    Ok(links)
}

fn agent(key: &str, text: &str) -> Result<AgentId, String> {
    text.parse().map_err(|error| format!("'{key}' is refused: {error}"))
}

fn name(key: &str, text: &str) -> Result<Name, String> {
    Name::parse(text).map_err(|error| format!("'{key}' is refused: {error}"))
}
