//! Team send: one message per team member.
//!
//! Each message has its own id and the persona of the member's role. In contrast, `send` to `team:NAME` creates a
//! single message that reaches every member. A team send reports an outcome per member, filters by role and attaches
//! personas.

use serde_json::{Map, Value};
use switchboard_core::{
    AgentId, AgentRecord, GroupId, Kind, MessageId, Name, ResolveError, TripReason, error_chain,
    suggest_similar,
};
use switchboard_hub::HubError;

use crate::error::WorkspaceError;
use crate::personas::role_for;
use crate::roles::{self, Role, RoleError, role_of};
use crate::translate::set_team;
use crate::workspace::{OutgoingMessage, Workspace};

/// A message to send to each member of a team.
#[derive(Debug, Clone)]
pub struct OutgoingTeamMessage {
    /// The team.
    pub team: Name,
    /// The sender, who gets no copy of the message.
    pub from: AgentId,
    /// The kind of message.
    pub kind: Kind,
    /// Text of the message.
    pub body: String,
    /// Restricts the message to members with this role.
    pub role_filter: Option<String>,
    /// The message to which this message replies.
    pub in_reply_to: Option<MessageId>,
    /// Additional metadata.
    pub metadata: Map<String, Value>,
    /// Idempotency key: a retry with the same key sends no member a second copy.
    pub key: Option<String>,
}

impl OutgoingTeamMessage {
    /// Creates a message to the whole team, without optional fields.
    pub fn new(team: Name, from: AgentId, kind: Kind, body: impl Into<String>) -> Self {
        let (role_filter, in_reply_to, metadata) = (None, None, Map::new());
        Self { team, from, kind, body: body.into(), role_filter, in_reply_to, metadata, key: None }
    }
}

/// Outcome of a message to a team.
#[derive(Debug)]
pub struct TeamSendResult {
    /// The team's canonical name.
    pub team: Name,
    /// Number of members of the team.
    pub total_members: usize,
    /// Number of copies that were accepted and not stopped.
    pub sent: usize,
    /// Outcome per member, sorted by name.
    pub members: Vec<MemberSendResult>,
}

/// Outcome of one member's copy.
#[derive(Debug)]
pub struct MemberSendResult {
    /// The member.
    pub member: AgentId,
    /// The copy's id, or the error.
    pub message: Result<MessageId, WorkspaceError>,
    /// The loop limit that stopped the accepted copy, if one did.
    pub stopped: Option<TripReason>,
    /// True if a persona was attached.
    pub has_persona: bool,
    /// Reason why an existing persona was not attached.
    pub persona_problem: Option<String>,
}

/// Reason why no member received a copy.
#[derive(Debug, thiserror::Error)]
pub enum TeamSendError {
    /// No member other than the sender has the role.
    #[error("role_filter '{role}': no member of team '{team}' but perhaps the sender has that role; roles there: {}", if .present.is_empty() { "none".to_owned() } else { roles::join(.present) })]
    NoneWithRole {
        /// The team.
        team: Name,
        /// The requested role.
        role: Role,
        /// The roles that the team's members have.
        present: Vec<Role>,
    },
    /// Every copy was rejected.
    #[error("team '{team}': none of {} copies was accepted: {}", .failed.len(), reasons(.failed))]
    NoneAccepted {
        /// The team.
        team: Name,
        /// Outcome per member.
        failed: Vec<MemberSendResult>,
    },
}

fn reasons(failed: &[MemberSendResult]) -> String {
    let reason = |sent: &MemberSendResult| {
        let error = sent.message.as_ref().err()?;
        Some(format!("{}: {}", sent.member, error_chain(error)))
    };
    failed.iter().filter_map(reason).collect::<Vec<_>>().join("; ")
}

impl OutgoingMessage {
    /// Records the team to which the message was sent.
    #[must_use]
    pub fn with_team(mut self, team: &Name) -> Self {
        set_team(&mut self.metadata, team);
        self
    }
}

impl Workspace {
    /// Sends a copy of the message to each member. Returns an error only if no copy was accepted.
    pub async fn send_team_message(
        &self,
        outgoing: OutgoingTeamMessage,
    ) -> Result<TeamSendResult, WorkspaceError> {
        let directory = self.hub().directory().await?;
        let Some(team) = directory.team(&outgoing.team) else {
            let near =
                suggest_similar(outgoing.team.as_str(), directory.teams().map(|team| team.id.as_str()));
            return Err(HubError::from(ResolveError::UnknownTeam { team: outgoing.team, near }).into());
        };
        let role = match &outgoing.role_filter {
            None => None,
            Some(text) => Some(Role::read(text).ok_or_else(|| unknown_role(text))?),
        };
        let state = self.read_state_json().await;
        let from = directory.canonical(&outgoing.from);
        let everyone: Vec<&AgentRecord> = directory.members(&team.id).collect();
        let others: Vec<&AgentRecord> = everyone.iter().filter(|member| member.id != from).copied().collect();
        if others.is_empty() {
            let group = GroupId::Team(team.id.clone());
            return Err(HubError::from(ResolveError::EmptyGroup { group }).into());
        }
        let fits = |member: &&&AgentRecord| {
            role.is_none_or(|role| role_of(member, &state).is_some_and(|has| has.matches(role)))
        };
        let recipients: Vec<&AgentRecord> = others.iter().filter(fits).copied().collect();
        if let (true, Some(role)) = (recipients.is_empty(), role) {
            let present = roles::assigned_roles(others.into_iter(), &state);
            return Err(TeamSendError::NoneWithRole { team: team.id.clone(), role, present }.into());
        }
        let mut members = Vec::with_capacity(recipients.len());
        for member in recipients {
            let role = role_for(&member.id.name, role_of(member, &state), &outgoing.metadata);
            members.push(self.send_copy(&outgoing, &team.id, &member.id, role).await);
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
        outgoing: &OutgoingTeamMessage,
        team: &Name,
        member: &AgentId,
        role: Option<Role>,
    ) -> MemberSendResult {
        let (persona, problem) = match self.persona_of(role).await {
            Ok(persona) => (persona.text, persona.problem),
            Err(error) => (None, Some(error_chain(&error))),
        };
        let has_persona = persona.is_some();
        let copy = OutgoingMessage {
            in_reply_to: outgoing.in_reply_to,
            metadata: outgoing.metadata.clone(),
            key: outgoing.key.as_ref().map(|key| format!("{key} {member}")),
            ..OutgoingMessage::new(
                outgoing.from.clone(),
                member.clone().into(),
                outgoing.kind.clone(),
                outgoing.body.as_str(),
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

/// Returns the error for a filter that is not a known role.
///
/// `none` selects no member, so it is also an error.
fn unknown_role(text: &str) -> RoleError {
    let near = suggest_similar(text, Role::ALL.map(Role::as_str));
    RoleError::Unknown { given: text.to_owned(), near }
}

#[cfg(test)]
#[path = "team_send_tests.rs"]
mod tests;
