//! What a call goes by: who is known, and what `state.json` says.

use std::sync::Arc;

use serde_json::{Map, Value};
use switchboard_core::{AgentId, Directory, Name};
use switchboard_hub::{HubError, MailboxMessage, MailboxQuery, Page, Part, View};

use crate::error::WorkspaceError;
use crate::intake::LastScan;
use crate::workspace::{Workspace, blocking};

/// The directory and `state.json` as of one moment. Taken once for a whole call.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) directory: Arc<Directory>,
    pub(crate) state: Arc<Map<String, Value>>,
    /// The mailbox of the agent that calls, for a call that lists it.
    pub(crate) mailbox: Option<MailboxView>,
}

/// An agent's mailbox as of the same moment.
#[derive(Debug, Clone)]
pub(crate) struct MailboxView {
    /// How many messages the agent has not seen; counting stops at [`COUNTED`].
    pub(crate) unseen: usize,
    /// What the agent is to read; `None` where reading it takes too long for a thread that must not wait.
    pub(crate) inbox: Option<Inbox>,
}

/// The oldest messages that wait for an agent, and whether its folder may hold more.
#[derive(Debug, Clone)]
pub(crate) struct Inbox {
    /// A page of [`INBOX_PAGE`] messages.
    pub(crate) page: Page<MailboxMessage>,
    pub(crate) last_scan: LastScan,
}

/// Counting unseen messages stops here: a reader needs no exact number above 99.
pub(crate) const COUNTED: usize = 100;

/// How many messages a listing shows if its caller does not say.
pub(crate) const INBOX_PAGE: usize = 20;

/// Bodies of a page that are read and checked on the thread of the session; takes some 100 microseconds.
const INBOX_BYTES: usize = 64 << 10;

impl Snapshot {
    /// The name that an agent goes by now, which is the one its record has.
    pub(crate) fn current_name(&self, agent: Option<&Name>) -> Option<Name> {
        agent.map(|name| self.directory.canonical(&AgentId::local(name.clone())).name)
    }
}

impl Workspace {
    /// Looks at both now.
    pub(crate) async fn snapshot(&self) -> Result<Snapshot, WorkspaceError> {
        let directory = self.hub().directory().await?;
        Ok(Snapshot { directory, state: self.read_state_json().await, mailbox: None })
    }

    /// The same with an agent's mailbox, in one read transaction.
    pub(crate) async fn snapshot_with_inbox(&self, agent: &AgentId) -> Result<Snapshot, WorkspaceError> {
        let agent = agent.clone();
        let seen = self.hub().view(move |view| {
            let unseen = view.count(&agent, Part::Unseen, COUNTED)?;
            Ok((view.directory().clone(), MailboxView { unseen, inbox: inbox(view, &agent)? }))
        });
        let (directory, mailbox) = seen.await?;
        Ok(Snapshot { directory, state: self.read_state_json().await, mailbox: Some(mailbox) })
    }

    /// All of `state.json`. A file that cannot be read says nothing; mail goes on without it.
    pub(crate) async fn read_state_json(&self) -> Arc<Map<String, Value>> {
        // Asking a disk of this machine for a file's stamp takes less time than having another thread do it.
        if self.hub().is_local()
            && let Some(state) = self.state().read_cached()
        {
            return state;
        }
        let state = self.state().clone();
        blocking(move || state.read_all()).await.unwrap_or_else(|error| {
            tracing::debug!(error = %error, "state.json cannot be read; going on without it");
            Arc::default()
        })
    }
}

/// The inbox of an agent that is registered in this spelling; `None` also where reading it takes too long.
fn inbox(view: &View<'_>, agent: &AgentId) -> Result<Option<Inbox>, HubError> {
    let is_own_name =
        view.directory().agent(agent).is_some_and(|known| known.id.name.as_str() == agent.name.as_str());
    if !is_own_name {
        return Ok(None);
    }
    let query = MailboxQuery { agent: agent.clone(), after: 0, limit: INBOX_PAGE, part: Part::Waiting };
    let Some(page) = view.mailbox(&query, INBOX_BYTES)? else { return Ok(None) };
    Ok(Some(Inbox { page, last_scan: LastScan::read(view, agent.name.as_str())? }))
}

#[cfg(test)]
#[path = "snapshot_tests.rs"]
mod tests;
