//! Agents and teams of a workspace, in the hub and in the shared `state.json`.

use serde_json::{Map, Value};
use switchboard_core::{AgentId, AgentRecord, Heartbeat, Name, TeamRecord, error_chain};
use switchboard_hub::Registration;

use super::{Workspace, blocking};
use crate::error::WorkspaceError;
use crate::mailbox::{merge_folder, merge_spellings};
use crate::registration::{check_title, parse_role};
use crate::state::is_heartbeat_due;
use crate::tree::Section;

impl Workspace {
    /// Registers an agent with the hub and in `state.json`.
    pub async fn register(&self, registration: Registration) -> Result<AgentRecord, WorkspaceError> {
        let role = parse_role(registration.role.as_deref())?;
        let record = self.hub.agents().register(Registration { role, ..registration }).await?;
        let directory = self.hub.directory().await?;
        let (tree, state) = (self.tree.clone(), self.state.clone());
        let agent = record.clone();
        blocking(move || {
            tree.create_own_folder(Section::Inbox, &agent.id.name)?;
            merge_spellings(&tree, &agent.id.name)?;
            state.put_agent(&agent, &directory)
        })
        .await?;
        Ok(record)
    }

    /// Removes an agent from the hub and from `state.json`. The agent's messages stay.
    pub async fn deregister(&self, name: Name) -> Result<bool, WorkspaceError> {
        // Remove the agent from the file first; otherwise it would be imported again.
        let name = self.hub.directory().await?.canonical(&AgentId::local(name)).name;
        let (state, removed) = (self.state.clone(), name.clone());
        blocking(move || state.remove_agent(&removed)).await?;
        let known = self.hub.agents().deregister(name).await?;
        if known {
            self.write_teams().await?;
        }
        Ok(known)
    }

    /// Renames an agent and moves its waiting and archived messages.
    pub async fn rename(&self, from: Name, to: Name) -> Result<AgentRecord, WorkspaceError> {
        let old = self.hub.directory().await?.canonical(&AgentId::local(from.clone())).name;
        let record = self.hub.agents().rename(from, to).await?;
        let directory = self.hub.directory().await?;
        let (tree, state) = (self.tree.clone(), self.state.clone());
        let agent = record.clone();
        blocking(move || {
            crate::mailbox::move_renamed(&tree, &old, &agent.id.name)?;
            state.rename_agent(&old, &agent, &directory)
        })
        .await?;
        Ok(record)
    }

    /// Finishes an interrupted [`rename`](Self::rename).
    ///
    /// Moves archived messages and receipts, and renames the records. A scan of the mailboxes moves the waiting
    /// messages.
    pub(crate) async fn finish_renaming(&self) -> Result<(), WorkspaceError> {
        let directory = self.hub.directory().await?;
        let (tree, state) = (self.tree.clone(), self.state.clone());
        blocking(move || {
            for section in [Section::Archive, Section::Outbox] {
                for folder in tree.folders(section)? {
                    let Ok(name) = Name::parse(&folder) else { continue };
                    let Some(known) = directory.agent(&AgentId::local(name)) else { continue };
                    if let Err(error) = merge_folder(&tree, section, &folder, &known.id.name) {
                        tracing::warn!(error = %error_chain(&error), "a folder could not be moved to its agent's new name");
                    }
                }
            }
            // Skip an unreadable file: it is rebuilt later, with the current names.
            let Ok(whole) = state.read_all() else { return Ok(()) };
            for (former, agent) in directory.aliases() {
                if let Some(known) = directory.agent(&AgentId::local(agent.clone()))
                    && crate::state::record(&whole, former).is_some()
                {
                    state.rename_agent(former, known, &directory)?;
                }
            }
            Ok(())
        })
        .await
    }

    /// Creates a team in the hub and in `state.json`.
    pub async fn create_team(
        &self,
        id: Name,
        title: Option<String>,
        composite: bool,
    ) -> Result<TeamRecord, WorkspaceError> {
        title.as_deref().map_or(Ok(()), |title| check_title("name", title))?;
        let team = self.hub.agents().create_team(id, title, composite).await?;
        self.write_teams().await?;
        Ok(team)
    }

    /// Moves an agent into a team, or out of its team, in the hub and in `state.json`.
    pub async fn assign(&self, agent: Name, team: Option<Name>) -> Result<AgentRecord, WorkspaceError> {
        let record = self.hub.agents().assign(agent, team).await?;
        let directory = self.hub.directory().await?;
        let (state, agent) = (self.state.clone(), record.clone());
        blocking(move || state.put_agent(&agent, &directory)).await?;
        Ok(record)
    }

    async fn write_teams(&self) -> Result<(), WorkspaceError> {
        let directory = self.hub.directory().await?;
        let state = self.state.clone();
        blocking(move || state.put_teams(&directory)).await
    }

    /// Records the status that an agent reports.
    pub async fn set_status(
        &self,
        agent: &AgentId,
        status: &str,
        message: Option<&str>,
    ) -> Result<(), WorkspaceError> {
        check_title("status", status)?;
        message.map_or(Ok(()), |message| check_title("message", message))?;
        let directory = self.hub.directory().await?;
        let agent = directory.canonical(agent);
        self.hub.agents().announce(agent.clone(), status, message);
        let (state, now, record) = (self.state.clone(), self.hub.now(), directory.agent(&agent).cloned());
        let (status, message) = (status.to_owned(), message.map(str::to_owned));
        blocking(move || state.set_status(&agent.name, record.as_ref(), &status, message.as_deref(), now))
            .await
    }

    /// Records a heartbeat of an agent, at most once a minute. A failure does not fail the caller.
    pub async fn record_heartbeat(&self, agent: &AgentId) {
        self.record_heartbeat_in(&*self.read_state_json().await, agent).await;
    }

    /// Records a heartbeat of an agent, given the current content of `state.json`.
    ///
    /// Otherwise like [`record_heartbeat`](Self::record_heartbeat).
    pub async fn record_heartbeat_in(&self, known: &Map<String, Value>, agent: &AgentId) {
        if !is_heartbeat_due(known, &agent.name, self.hub.now()) {
            return;
        }
        let (state, now, name) = (self.state.clone(), self.hub.now(), agent.name.clone());
        let noted = blocking(move || state.touch(&name, now)).await;
        if let Err(error) = noted {
            tracing::debug!(error = %error, "a heartbeat was not recorded");
        }
    }

    /// Imports agents, teams and heartbeats that other programs wrote into `state.json`.
    pub async fn import_state(&self) -> Result<(), WorkspaceError> {
        let state = self.state.clone();
        let known = match blocking(move || state.read()).await {
            Ok(known) => known,
            Err(WorkspaceError::DamagedState { problem }) => {
                tracing::warn!(%problem, "state.json cannot be read; it will be moved aside at the next change");
                return Ok(());
            }
            Err(WorkspaceError::File(error)) => {
                tracing::warn!(error = %error_chain(&error), "state.json cannot be read; mail works without it");
                return Ok(());
            }
            Err(other) => return Err(other),
        };
        let directory = self.hub.directory().await?;
        for team in known.teams {
            if directory.team(&team.id).is_none() {
                self.hub.agents().create_team(team.id, Some(team.title), team.composite).await?;
            }
        }
        for agent in known.agents {
            let id = AgentId::local(agent.name.clone());
            if directory.agent(&id).is_none() && !id.is_human() {
                let registration =
                    Registration { role: agent.role, team: agent.team, ..Registration::mailbox(agent.name) };
                if let Err(error) = self.hub.agents().register(registration).await {
                    tracing::warn!(error = %error, "an agent in state.json could not be imported");
                }
            }
            if let Some(at) = agent.last_seen {
                let status = agent.status.unwrap_or_else(|| "active".to_owned());
                self.hub.agents().record_heartbeat(Heartbeat {
                    agent: directory.canonical(&id),
                    at,
                    status,
                    message: agent.message,
                });
            }
        }
        Ok(())
    }

    /// Rewrites `state.json` from the hub's directory and retains unknown keys.
    ///
    /// A damaged file is quarantined (moved aside).
    pub async fn rewrite_state(&self) -> Result<(), WorkspaceError> {
        let directory = self.hub.directory().await?;
        let state = self.state.clone();
        blocking(move || state.rewrite(&directory)).await
    }
}
