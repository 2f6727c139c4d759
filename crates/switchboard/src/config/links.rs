//! The section `links`: what a person has joined that would otherwise be apart.

use std::collections::BTreeMap;

use serde::Deserialize;
use switchboard_core::{AgentId, Links, Name};

/// The keys of the section.
pub(super) const KEYS: &[&str] = &["forwards", "teams", "channels"];

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct LinksSection {
    /// Whose mail goes to whom instead.
    forwards: Option<BTreeMap<String, String>>,
    /// Members that teams have beside those that were assigned to them.
    teams: Option<BTreeMap<String, Vec<String>>>,
    /// The swarms, or other hubs, that read channels along.
    channels: Option<BTreeMap<String, Vec<String>>>,
}

/// The links that the section asks for, or what is wrong with one of them.
pub(super) fn resolve(section: LinksSection) -> Result<Links, String> {
    let mut links = Links::default();
    for (from, to) in section.forwards.unwrap_or_default() {
        let key = format!("links.forwards.{from}");
        let linked = links.forward(agent(&key, &from)?, agent(&key, &to)?);
        linked.map_err(|error| format!("'{key}' is refused: {error}"))?;
    }
    for (team, members) in section.teams.unwrap_or_default() {
        let key = format!("links.teams.{team}");
        let team = name(&key, team.strip_prefix("team:").unwrap_or(&team))?;
        for member in members {
            links.include(team.clone(), agent(&key, &member)?);
        }
    }
    for (channel, realms) in section.channels.unwrap_or_default() {
        let key = format!("links.channels.{channel}");
        let channel = name(&key, channel.strip_prefix('#').unwrap_or(&channel))?;
        for realm in realms {
            links.join(channel.clone(), name(&key, realm.strip_prefix('@').unwrap_or(&realm))?);
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
