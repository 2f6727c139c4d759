//! Directory in the database: agents, aliases and teams.

mod peers;
mod remote_agents;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use switchboard_core::{
    AgentId, AgentRecord, Directory, Name, ResolveError, Route, TeamRecord, suggest_similar,
};
use switchboard_sys::clock::timestamp_from_micros;

use crate::activity;
use crate::error::HubError;
use crate::events::HubEvent;
use crate::store::rows;
use crate::store::writer::Transaction;

pub use self::peers::Peer;
pub(crate) use self::peers::put_peers;
pub(crate) use self::remote_agents::put_remote_agents;

/// Name under which the hub itself writes notices.
pub const HUB_NAME: &str = "switchboard";

/// Action in the activity log for an agent that was removed.
const LEFT: &str = "left";

/// Registration of an agent. Registering a known agent again changes only the given fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// Name of the agent.
    pub name: Name,
    /// Role of the agent.
    pub role: Option<String>,
    /// Team of the agent, which is created if it does not exist.
    pub team: Option<Name>,
    /// Routes to the agent, added to those already known.
    pub routes: Vec<Route>,
}

impl Registration {
    /// Creates the registration of an agent that has only a mailbox.
    pub fn mailbox(name: Name) -> Self {
        let routes = vec![Route::Mailbox { agent: name.clone() }];
        Self { name, role: None, team: None, routes }
    }
}

/// Agent of another hub, as described by that hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteAgent {
    /// Name of the agent in its hub.
    pub name: Name,
    /// Role of the agent.
    pub role: Option<String>,
    /// Team of the agent.
    pub team: Option<Name>,
    /// Channels that the agent reads.
    pub channels: Vec<Name>,
}

/// Returns the version of the directory.
///
/// The version rises with every change, so that each process knows when to reload its cache.
pub(crate) fn version(db: &Connection) -> rusqlite::Result<i64> {
    db.prepare_cached("SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'directory'")?
        .query_row([], |row| row.get(0))
        .optional()
        .map(|version| version.unwrap_or(0))
}

/// Resolves a former name of an agent to its current name.
///
/// Returns any other name unchanged.
pub(crate) fn canonical(db: &Connection, agent: &AgentId) -> rusqlite::Result<AgentId> {
    if agent.realm.is_some() {
        return Ok(agent.clone());
    }
    let current: Option<String> = db
        .prepare_cached(
            "SELECT agent FROM aliases WHERE alias = ?1 AND NOT EXISTS (SELECT 1 FROM agents WHERE name = ?1)",
        )?
        .query_row([agent.name.as_str()], |row| row.get(0))
        .optional()?;
    Ok(current.and_then(|name| Name::parse(&name).ok()).map_or_else(|| agent.clone(), AgentId::local))
}

/// Loads the directory. An unreadable row is skipped and logged.
pub(crate) fn load(db: &Connection) -> rusqlite::Result<Directory> {
    let mut directory = Directory::default();
    let mut agents = db.prepare("SELECT name, role, team, routes, registered_at FROM agents")?;
    let mut rows = agents.query([])?;
    while let Some(row) = rows.next()? {
        if let Some(record) = agent(row) {
            directory.put_agent(record);
        } else {
            tracing::warn!("skipped a damaged agent record");
        }
    }
    let mut aliases = db.prepare("SELECT alias, agent FROM aliases")?;
    let mut rows = aliases.query([])?;
    while let Some(row) = rows.next()? {
        if let (Some(alias), Some(agent)) = (name(row, 0), name(row, 1)) {
            directory.put_alias(alias, agent);
        }
    }
    let mut teams = db.prepare("SELECT id, title, composite, created_at FROM teams")?;
    let mut rows = teams.query([])?;
    while let Some(row) = rows.next()? {
        if let Some(record) = team(row) {
            directory.put_team(record);
        }
    }
    peers::load_swarms(db, &mut directory)?;
    Ok(directory)
}

fn name(row: &Row<'_>, column: usize) -> Option<Name> {
    Name::parse(&row.get::<_, String>(column).ok()?).ok()
}

fn agent(row: &Row<'_>) -> Option<AgentRecord> {
    Some(AgentRecord {
        id: row.get::<_, String>(0).ok()?.parse().ok()?,
        role: row.get(1).ok()?,
        team: match row.get::<_, Option<String>>(2).ok()? {
            Some(team) => Some(Name::parse(&team).ok()?),
            None => None,
        },
        routes: serde_json::from_str(&row.get::<_, String>(3).ok()?).ok()?,
        registered_at: timestamp_from_micros(row.get(4).ok()?),
    })
}

fn team(row: &Row<'_>) -> Option<TeamRecord> {
    Some(TeamRecord {
        id: name(row, 0)?,
        title: row.get(1).ok()?,
        composite: row.get(2).ok()?,
        created_at: timestamp_from_micros(row.get(3).ok()?),
    })
}

/// Registers an agent, or updates its registration.
pub(crate) fn register(tx: &mut Transaction<'_>, new: Registration) -> Result<AgentRecord, HubError> {
    check_reserved(&new.name)?;
    let directory = tx.directory.value.clone();
    let known = directory.agent(&AgentId::local(new.name.clone()));
    let name = known.map_or(&new.name, |record| &record.id.name);
    if let Some(team) = &new.team {
        if directory.team(team).is_none() {
            put_team(
                tx,
                &TeamRecord {
                    id: team.clone(),
                    title: team.to_string(),
                    composite: false,
                    created_at: tx.now,
                },
            )?;
        }
        check_room(&directory, team, name)?;
    }
    let mut record = known.cloned().unwrap_or_else(|| AgentRecord {
        id: AgentId::local(new.name.clone()),
        role: None,
        team: None,
        routes: Vec::new(),
        registered_at: tx.now,
    });
    record.role = new.role.or(record.role);
    record.team = new.team.or(record.team);
    for route in new.routes {
        let route = match route {
            Route::Mailbox { .. } => Route::Mailbox { agent: record.id.name.clone() },
            other => other,
        };
        if !record.routes.contains(&route) {
            record.routes.push(route);
        }
    }
    if known != Some(&record) {
        put_agent(tx, &record)?;
        bump_version(tx)?;
    }
    Ok(record)
}

/// Removes an agent, its aliases and its team membership. Its messages stay.
pub(crate) fn deregister(tx: &mut Transaction<'_>, name: &Name) -> Result<bool, HubError> {
    let Some(record) = tx.directory.value.agent(&AgentId::local(name.clone())).cloned() else {
        return Ok(false);
    };
    let name = record.id.to_string();
    tx.db.execute("DELETE FROM agents WHERE name = ?1", [&name])?;
    tx.db.execute("DELETE FROM aliases WHERE agent = ?1", [&name])?;
    activity::note(tx, &record.id, LEFT, "", None)?;
    bump_version(tx)?;
    Ok(true)
}

/// Returns when an agent was removed, as far back as the activity log goes.
///
/// The log entry of the removal is the agent's tombstone.
pub(crate) fn retired_at(db: &Connection, agent: &AgentId) -> Result<Option<Timestamp>, HubError> {
    let at = db
        .prepare_cached("SELECT max(at) FROM activity WHERE what = ?1 AND agent = ?2 COLLATE NOCASE")?
        .query_row([LEFT, &agent.to_string()], |row| row.get::<_, Option<i64>>(0))?;
    Ok(at.map(timestamp_from_micros))
}

/// Removes a route to an agent, such as a session that ended.
pub(crate) fn remove_route(tx: &mut Transaction<'_>, name: &Name, route: &Route) -> Result<(), HubError> {
    if let Some(mut record) = tx.directory.value.agent(&AgentId::local(name.clone())).cloned() {
        record.routes.retain(|known| known != route);
        put_agent(tx, &record)?;
        bump_version(tx)?;
    }
    Ok(())
}

/// Renames an agent. The old name becomes an alias, and its waiting messages are moved to the new name.
pub(crate) fn rename(tx: &mut Transaction<'_>, from: &Name, to: &Name) -> Result<AgentRecord, HubError> {
    check_reserved(to)?;
    let directory = tx.directory.value.clone();
    let known = known_agent(&directory, from)?;
    let (old, new) = (known.id.name.clone(), AgentId::local(to.clone()));
    if directory.agent(&new).is_some_and(|other| other.id != known.id) {
        return Err(HubError::NameTaken { name: to.clone() });
    }
    let mut record = known.clone();
    record.id = new;
    for route in &mut record.routes {
        if let Route::Mailbox { agent } = route {
            *agent = to.clone();
        }
    }
    tx.db.execute("DELETE FROM agents WHERE name = ?1", [old.as_str()])?;
    tx.db.execute("DELETE FROM aliases WHERE alias = ?1", [to.as_str()])?;
    tx.db.execute("UPDATE aliases SET agent = ?2 WHERE agent = ?1", [old.as_str(), to.as_str()])?;
    if old != *to {
        tx.db.execute(
            "INSERT OR REPLACE INTO aliases (alias, agent) VALUES (?1, ?2)",
            [old.as_str(), to.as_str()],
        )?;
    }
    let mailbox = rows::json(&Route::Mailbox { agent: to.clone() });
    let old_mailbox = rows::json(&Route::Mailbox { agent: old.clone() });
    tx.db.execute(
        "UPDATE deliveries SET agent = ?2, route = CASE route WHEN ?3 THEN ?4 ELSE route END WHERE agent = ?1",
        [old.as_str(), to.as_str(), &old_mailbox, &mailbox],
    )?;
    for table in ["claims", "reservations", "spending"] {
        let column = if table == "spending" { "agent" } else { "holder" };
        let sql = format!("UPDATE OR REPLACE {table} SET {column} = ?2 WHERE {column} = ?1");
        tx.db.execute(&sql, [old.as_str(), to.as_str()])?;
    }
    put_agent(tx, &record)?;
    bump_version(tx)?;
    Ok(record)
}

/// Creates a team, or changes its title.
pub(crate) fn create_team(
    tx: &mut Transaction<'_>,
    id: Name,
    title: Option<String>,
    composite: bool,
) -> Result<TeamRecord, HubError> {
    let known = tx.directory.value.team(&id).cloned();
    if composite {
        let members: Vec<Name> =
            tx.directory.value.members(&id).map(|member| member.id.name.clone()).collect();
        if members.len() > 1 {
            return Err(HubError::SeveralMembers { team: id, members });
        }
    }
    let record = TeamRecord {
        title: title.or_else(|| known.as_ref().map(|t| t.title.clone())).unwrap_or_else(|| id.to_string()),
        composite,
        created_at: known.as_ref().map_or(tx.now, |t| t.created_at),
        id: known.map_or(id, |t| t.id),
    };
    put_team(tx, &record)?;
    bump_version(tx)?;
    Ok(record)
}

/// Assigns an agent to a team, or removes it from its team.
pub(crate) fn assign(
    tx: &mut Transaction<'_>,
    agent: &Name,
    team: Option<&Name>,
) -> Result<AgentRecord, HubError> {
    let directory = tx.directory.value.clone();
    let mut record = known_agent(&directory, agent)?.clone();
    record.team = match team {
        None => None,
        Some(team) => {
            let Some(team) = directory.team(team) else {
                let near = suggest_similar(team.as_str(), directory.teams().map(|t| t.id.as_str()));
                return Err(ResolveError::UnknownTeam { team: team.clone(), near }.into());
            };
            check_room(&directory, &team.id, &record.id.name)?;
            Some(team.id.clone())
        }
    };
    put_agent(tx, &record)?;
    bump_version(tx)?;
    Ok(record)
}

/// Sets or clears the role of an agent.
pub(crate) fn set_role(
    tx: &mut Transaction<'_>,
    agent: &Name,
    role: Option<String>,
) -> Result<AgentRecord, HubError> {
    let mut record = known_agent(&tx.directory.value, agent)?.clone();
    if record.role != role {
        record.role = role;
        put_agent(tx, &record)?;
        bump_version(tx)?;
    }
    Ok(record)
}

fn known_agent<'d>(directory: &'d Directory, name: &Name) -> Result<&'d AgentRecord, HubError> {
    let id = AgentId::local(name.clone());
    directory.agent(&id).ok_or_else(|| {
        let known: Vec<String> = directory.agents().map(|record| record.id.to_string()).collect();
        let near = suggest_similar(name.as_str(), known.iter().map(String::as_str));
        ResolveError::UnknownAgent { agent: id, near, known }.into()
    })
}

fn check_reserved(name: &Name) -> Result<(), HubError> {
    if name.is_human() {
        return Err(HubError::ReservedName { name: name.clone(), reserved_for: "the person" });
    }
    if name.as_str().eq_ignore_ascii_case(HUB_NAME) {
        return Err(HubError::ReservedName { name: name.clone(), reserved_for: "the hub" });
    }
    Ok(())
}

/// Refuses a second member of a composite team.
///
/// A composite team is one agent that plays the whole team.
fn check_room(directory: &Directory, team: &Name, newcomer: &Name) -> Result<(), HubError> {
    if !directory.team(team).is_some_and(|team| team.composite) {
        return Ok(());
    }
    match directory.members(team).find(|member| &member.id.name != newcomer) {
        Some(member) => Err(HubError::CompositeTeam { team: team.clone(), member: member.id.name.clone() }),
        None => Ok(()),
    }
}

fn put_agent(tx: &Transaction<'_>, record: &AgentRecord) -> Result<(), HubError> {
    let team = record.team.as_ref().map(Name::as_str);
    tx.db.execute(
        "INSERT OR REPLACE INTO agents (name, role, team, routes, registered_at) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![
            record.id.to_string(),
            record.role,
            team,
            rows::json(&record.routes),
            record.registered_at.as_microsecond()
        ],
    )?;
    Ok(())
}

fn put_team(tx: &Transaction<'_>, record: &TeamRecord) -> Result<(), HubError> {
    let created: Timestamp = record.created_at;
    tx.db.execute(
        "INSERT OR REPLACE INTO teams (id, title, composite, created_at) VALUES (?1, ?2, ?3, ?4)",
        params![record.id.as_str(), record.title, record.composite, created.as_microsecond()],
    )?;
    Ok(())
}

fn bump_version(tx: &mut Transaction<'_>) -> Result<(), HubError> {
    let next = version(tx.db)? + 1;
    tx.db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('directory', ?1)", [next.to_string()])?;
    tx.directory.refresh(tx.db)?;
    tx.post_commit.events.push(HubEvent::Directory);
    Ok(())
}
