//! Mail to a team: one message for each member, each with an id of its own and the persona of its role.
//!
//! `send` to `team:NAME` is one message that reaches every member. This is for those who want to know
//! what became of each member's copy, reach only those with a role, or hand out personas.

use serde_json::{Map, Value};
use switchboard_core::{AgentId, AgentRecord, GroupId, Kind, MessageId, Name, ResolveError, Stop, nearest};
use switchboard_hub::HubError;

use crate::delivery::describe;
use crate::error::WorkspaceError;
use crate::personas::role_for;
use crate::roles::{self, Role, RoleError, role_of};
use crate::translate::set_team;
use crate::workspace::{OutgoingMessage, Workspace};

/// A message that somebody writes to a team.
#[derive(Debug, Clone)]
pub struct OutgoingTeamMessage {
    /// The team.
    pub team: Name,
    /// Who writes. A member gets no copy of its own mail.
    pub from: AgentId,
    /// What for.
    pub kind: Kind,
    /// The text.
    pub body: String,
    /// Only for members with this role.
    pub role_filter: Option<String>,
    /// The message it answers.
    pub in_reply_to: Option<MessageId>,
    /// Whatever else it carries.
    pub metadata: Map<String, Value>,
    /// By what a retry is recognised, so that no member gets it twice.
    pub key: Option<String>,
}

impl OutgoingTeamMessage {
    /// A plain letter to the whole team.
    pub fn new(team: Name, from: AgentId, kind: Kind, body: impl Into<String>) -> Self {
        let (role_filter, in_reply_to, metadata) = (None, None, Map::new());
        Self { team, from, kind, body: body.into(), role_filter, in_reply_to, metadata, key: None }
    }
}

/// What became of a message to a team.
#[derive(Debug)]
pub struct TeamSendResult {
    /// The team, as it is spelled.
    pub team: Name,
    /// How many members the team has.
    pub total_members: usize,
    /// How many copies were accepted and are on their way.
    pub sent: usize,
    /// What became of each copy, in the order of the names.
    pub members: Vec<MemberSendResult>,
}

/// What became of one member's copy.
#[derive(Debug)]
pub struct MemberSendResult {
    /// The member.
    pub member: AgentId,
    /// The copy's id, or why there is none.
    pub message: Result<MessageId, WorkspaceError>,
    /// Why the copy was accepted and goes no further, where a rule against storms stopped it.
    pub stopped: Option<Stop>,
    /// Whether a persona went along.
    pub has_persona: bool,
    /// Why a persona that is there did not go along.
    pub persona_problem: Option<String>,
}

/// Why nobody of a team was sent a message.
#[derive(Debug, thiserror::Error)]
pub enum TeamSendError {
    /// No member but perhaps the sender has the role.
    #[error("role_filter '{role}': no member of team '{team}' but perhaps the sender has that role; roles there: {}", if .present.is_empty() { "none".to_owned() } else { roles::join(.present) })]
    NoneWithRole {
        /// The team.
        team: Name,
        /// The role asked for.
        role: Role,
        /// The roles that its members have.
        present: Vec<Role>,
    },
    /// Every copy was refused.
    #[error("team '{team}': none of {} copies was accepted: {}", .failed.len(), reasons(.failed))]
    NoneAccepted {
        /// The team.
        team: Name,
        /// What became of each copy.
        failed: Vec<MemberSendResult>,
    },
}

fn reasons(failed: &[MemberSendResult]) -> String {
    let reason = |sent: &MemberSendResult| {
        let error = sent.message.as_ref().err()?;
        Some(format!("{}: {}", sent.member, describe(error)))
    };
    failed.iter().filter_map(reason).collect::<Vec<_>>().join("; ")
}

impl OutgoingMessage {
    /// The letter with the team it was written to.
    #[must_use]
    pub fn with_team(mut self, team: &Name) -> Self {
        set_team(&mut self.metadata, team);
        self
    }
}

impl Workspace {
    /// Sends a copy to each member. An error only where no copy was accepted.
    pub async fn send_team_message(
        &self,
        letter: OutgoingTeamMessage,
    ) -> Result<TeamSendResult, WorkspaceError> {
        let directory = self.hub().directory().await?;
        let Some(team) = directory.team(&letter.team) else {
            let near = nearest(letter.team.as_str(), directory.teams().map(|team| team.id.as_str()));
            return Err(HubError::from(ResolveError::UnknownTeam { team: letter.team, near }).into());
        };
        let role = match &letter.role_filter {
            None => None,
            Some(text) => Some(Role::read(text).ok_or_else(|| unknown_role(text))?),
        };
        let state = self.read_state_json().await;
        let from = directory.canonical(&letter.from);
        let everyone: Vec<&AgentRecord> = directory.members(&team.id).collect();
        let others: Vec<&AgentRecord> = everyone.iter().filter(|member| member.id != from).copied().collect();
        if others.is_empty() {
            let group = GroupId::Team(team.id.clone());
            return Err(HubError::from(ResolveError::EmptyGroup { group }).into());
        }
        let fits = |member: &&&AgentRecord| {
            role.is_none_or(|role| role_of(member, &state).is_some_and(|has| has.answers_to(role)))
        };
        let meant: Vec<&AgentRecord> = others.iter().filter(fits).copied().collect();
        if let (true, Some(role)) = (meant.is_empty(), role) {
            let present = roles::present(others.into_iter(), &state);
            return Err(TeamSendError::NoneWithRole { team: team.id.clone(), role, present }.into());
        }
        let mut members = Vec::with_capacity(meant.len());
        for member in meant {
            let role = role_for(&member.id.name, role_of(member, &state), &letter.metadata);
            members.push(self.send_copy(&letter, &team.id, &member.id, role).await);
        }
        if members.iter().all(|member| member.message.is_err()) {
            return Err(TeamSendError::NoneAccepted { team: team.id.clone(), failed: members }.into());
        }
        let is_on_its_way = |member: &&MemberSendResult| member.message.is_ok() && member.stopped.is_none();
        let sent = members.iter().filter(is_on_its_way).count();
        Ok(TeamSendResult { team: team.id.clone(), total_members: everyone.len(), sent, members })
    }

    async fn send_copy(
        &self,
        letter: &OutgoingTeamMessage,
        team: &Name,
        member: &AgentId,
        role: Option<Role>,
    ) -> MemberSendResult {
        let (persona, problem) = match self.persona_of(role).await {
            Ok(persona) => (persona.text, persona.problem),
            Err(error) => (None, Some(describe(&error))),
        };
        let has_persona = persona.is_some();
        let copy = OutgoingMessage {
            in_reply_to: letter.in_reply_to,
            metadata: letter.metadata.clone(),
            key: letter.key.as_ref().map(|key| format!("{key} {member}")),
            ..OutgoingMessage::new(
                letter.from.clone(),
                member.clone().into(),
                letter.kind.clone(),
                letter.body.as_str(),
            )
        };
        let copy = copy.with_team(team);
        let copy = match persona {
            Some(text) => copy.with_persona(text),
            None => copy,
        };
        let accepted = match self.check_execute(&copy.kind, &copy.to).await {
            Ok(()) => self.send(copy).await,
            Err(refused) => Err(refused),
        };
        let (message, stopped) = match accepted {
            Ok(accepted) => (Ok(accepted.id), accepted.stopped),
            Err(error) => (Err(error), None),
        };
        MemberSendResult { member: member.clone(), message, stopped, has_persona, persona_problem: problem }
    }
}

/// A filter that is no role; `none` filters for nothing and is refused as well.
fn unknown_role(text: &str) -> RoleError {
    let near = nearest(text, Role::ALL.map(Role::as_str));
    RoleError::Unknown { given: text.to_owned(), near }
}

#[cfg(test)]
#[path = "team_send_tests.rs"]
mod tests;
