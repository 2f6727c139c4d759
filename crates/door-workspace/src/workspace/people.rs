//! Who is in a workspace, in the hub and in `state.json`: the file is shared with other programs.

use serde_json::{Map, Value};
use switchboard_core::{AgentId, AgentRecord, Heartbeat, Name, TeamRecord};
use switchboard_hub::Registration;

use super::{Workspace, blocking};
use crate::delivery::describe;
use crate::error::WorkspaceError;
use crate::mailbox::{adopt, gather};
use crate::registration::{check_title, role};
use crate::state::is_heartbeat_due;
use crate::tree::Section;

impl Workspace {
    /// Registers an agent, here and in `state.json`.
    pub async fn register(&self, registration: Registration) -> Result<AgentRecord, WorkspaceError> {
        let role = role(registration.role.as_deref())?;
        let record = self.hub.register(Registration { role, ..registration }).await?;
        let directory = self.hub.directory().await?;
        let (tree, state) = (self.tree.clone(), self.state.clone());
        let agent = record.clone();
        blocking(move || {
            tree.create_own_folder(Section::Inbox, &agent.id.name)?;
            adopt(&tree, &agent.id.name)?;
            state.put_agent(&agent, &directory)
        })
        .await?;
        Ok(record)
    }

    /// Removes an agent, here and from `state.json`. Its mail stays.
    pub async fn deregister(&self, name: Name) -> Result<bool, WorkspaceError> {
        // First from the file: what stands there would be taken over again.
        let name = self.hub.directory().await?.canonical(&AgentId::local(name)).name;
        let (state, removed) = (self.state.clone(), name.clone());
        blocking(move || state.remove_agent(&removed)).await?;
        let known = self.hub.deregister(name).await?;
        if known {
            self.write_teams().await?;
        }
        Ok(known)
    }

    /// Gives an agent another name. Its waiting and archived mail goes along.
    pub async fn rename(&self, from: Name, to: Name) -> Result<AgentRecord, WorkspaceError> {
        let old = self.hub.directory().await?.canonical(&AgentId::local(from.clone())).name;
        let record = self.hub.rename(from, to).await?;
        let directory = self.hub.directory().await?;
        let (tree, state) = (self.tree.clone(), self.state.clone());
        let agent = record.clone();
        blocking(move || {
            crate::mailbox::move_all(&tree, &old, &agent.id.name)?;
            state.rename_agent(&old, &agent, &directory)
        })
        .await?;
        Ok(record)
    }

    /// Finishes what a program that was killed in [`rename`](Self::rename) has left. What waits is brought home by a
    /// look at the mailboxes.
    pub(crate) async fn finish_renaming(&self) -> Result<(), WorkspaceError> {
        let directory = self.hub.directory().await?;
        let (tree, state) = (self.tree.clone(), self.state.clone());
        blocking(move || {
            for section in [Section::Archive, Section::Outbox] {
                for folder in tree.folders(section)? {
                    let Ok(name) = Name::parse(&folder) else { continue };
                    let Some(known) = directory.agent(&AgentId::local(name)) else { continue };
                    if let Err(error) = gather(&tree, section, &folder, &known.id.name) {
                        tracing::warn!(error = %describe(&error), "a folder could not be gone through");
                    }
                }
            }
            // One that cannot be read is made anew, with the names of now.
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

    /// Makes a team, here and in `state.json`.
    pub async fn create_team(
        &self,
        id: Name,
        title: Option<String>,
        composite: bool,
    ) -> Result<TeamRecord, WorkspaceError> {
        title.as_deref().map_or(Ok(()), |title| check_title("name", title))?;
        let team = self.hub.create_team(id, title, composite).await?;
        self.write_teams().await?;
        Ok(team)
    }

    /// Puts an agent into a team, or out of any, here and in `state.json`.
    pub async fn assign(&self, agent: Name, team: Option<Name>) -> Result<AgentRecord, WorkspaceError> {
        let record = self.hub.assign(agent, team).await?;
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

    /// Notes what an agent says it is doing.
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
        self.hub.announce(agent.clone(), status, message);
        let (state, now, record) = (self.state.clone(), self.hub.now(), directory.agent(&agent).cloned());
        let (status, message) = (status.to_owned(), message.map(str::to_owned));
        blocking(move || state.set_status(&agent.name, record.as_ref(), &status, message.as_deref(), now))
            .await
    }

    /// Notes that an agent is there, at most once a minute and never at the cost of what it asked for.
    pub async fn record_heartbeat(&self, agent: &AgentId) {
        self.record_heartbeat_in(&*self.read_state_json().await, agent).await;
    }

    /// The same, where `known` is what `state.json` said a moment ago.
    pub(crate) async fn record_heartbeat_in(&self, known: &Map<String, Value>, agent: &AgentId) {
        if !is_heartbeat_due(known, &agent.name, self.hub.now()) {
            return;
        }
        let (state, now, name) = (self.state.clone(), self.hub.now(), agent.name.clone());
        let noted = blocking(move || state.touch(&name, now)).await;
        if let Err(error) = noted {
            tracing::debug!(error = %error, "a sign of life was not noted");
        }
    }

    /// Takes over agents, teams and signs of life that other programs wrote into `state.json`.
    pub async fn import_state(&self) -> Result<(), WorkspaceError> {
        let state = self.state.clone();
        let known = match blocking(move || state.read()).await {
            Ok(known) => known,
            Err(WorkspaceError::DamagedState { problem }) => {
                tracing::warn!(%problem, "state.json cannot be read; it will be moved aside at the next change");
                return Ok(());
            }
            Err(WorkspaceError::File(error)) => {
                tracing::warn!(error = %describe(&error), "state.json cannot be read; mail goes on without it");
                return Ok(());
            }
            Err(other) => return Err(other),
        };
        let directory = self.hub.directory().await?;
        for team in known.teams {
            if directory.team(&team.id).is_none() {
                self.hub.create_team(team.id, Some(team.title), team.composite).await?;
            }
        }
        for agent in known.agents {
            let id = AgentId::local(agent.name.clone());
            if directory.agent(&id).is_none() && !id.is_human() {
                let registration =
                    Registration { role: agent.role, team: agent.team, ..Registration::mailbox(agent.name) };
                if let Err(error) = self.hub.register(registration).await {
                    tracing::warn!(error = %error, "an agent in state.json could not be taken over");
                }
            }
            if let Some(at) = agent.last_seen {
                let status = agent.status.unwrap_or_else(|| "active".to_owned());
                self.hub.record_heartbeat(Heartbeat {
                    agent: directory.canonical(&id),
                    at,
                    status,
                    message: agent.message,
                });
            }
        }
        Ok(())
    }

    /// Writes `state.json` anew from what the hub knows, keeping what is there; a damaged one goes aside.
    pub async fn rewrite_state(&self) -> Result<(), WorkspaceError> {
        let directory = self.hub.directory().await?;
        let state = self.state.clone();
        blocking(move || state.rewrite(&directory)).await
    }
}
