//! Snapshot of the directory and `state.json` for one tool call.

use std::sync::Arc;

use serde_json::{Map, Value};
use switchboard_core::{AgentId, Directory, Name};
use switchboard_hub::{HubError, MailboxMessage, MailboxQuery, Page, Part, View};

use crate::error::WorkspaceError;
use crate::intake::LastScan;
use crate::workspace::{Workspace, blocking};

/// Snapshot of the directory and `state.json`, read once per call.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The registered agents and teams.
    pub directory: Arc<Directory>,
    /// The content of `state.json`.
    pub state: Arc<Map<String, Value>>,
    /// The mailbox of the calling agent, if the call lists the mailbox.
    pub mailbox: Option<MailboxView>,
}

/// An agent's mailbox at the time of the snapshot.
#[derive(Debug, Clone)]
pub struct MailboxView {
    /// Number of unseen messages; counting stops at [`COUNTED`].
    pub unseen: usize,
    /// The waiting messages; `None` if reading them would block an async thread for too long.
    pub inbox: Option<Inbox>,
}

/// The oldest waiting messages of an agent, and the last scan of the agent's mailbox folder.
#[derive(Debug, Clone)]
pub struct Inbox {
    /// The first [`INBOX_PAGE`] messages.
    pub page: Page<MailboxMessage>,
    /// The last scan of the mailbox folder.
    pub last_scan: LastScan,
}

/// Upper bound of the unseen count.
///
/// An exact number above 99 is of no use to readers.
pub const COUNTED: usize = 100;

/// Default number of messages in a listing.
pub const INBOX_PAGE: usize = 20;

/// Maximum total size in bytes of the bodies on an inbox page.
///
/// A page is read and checked on the session's thread, which takes some 100 microseconds for this size.
const INBOX_BYTES: usize = 64 << 10;

impl Snapshot {
    /// Returns the current name of an agent, as given in the agent's record.
    pub fn current_name(&self, agent: Option<&Name>) -> Option<Name> {
        agent.map(|name| self.directory.canonical(&AgentId::local(name.clone())).name)
    }
}

impl Workspace {
    /// Takes a snapshot of the directory and `state.json`.
    pub async fn snapshot(&self) -> Result<Snapshot, WorkspaceError> {
        let directory = self.hub().directory().await?;
        Ok(Snapshot { directory, state: self.read_state_json().await, mailbox: None })
    }

    /// Takes a snapshot that includes an agent's mailbox, in one read transaction.
    pub async fn snapshot_with_inbox(&self, agent: &AgentId) -> Result<Snapshot, WorkspaceError> {
        let agent = agent.clone();
        let seen = self.hub().view(move |view| {
            let unseen = view.count(&agent, Part::Unseen, COUNTED)?;
            Ok((view.directory().clone(), MailboxView { unseen, inbox: inbox(view, &agent)? }))
        });
        let (directory, mailbox) = seen.await?;
        Ok(Snapshot { directory, state: self.read_state_json().await, mailbox: Some(mailbox) })
    }

    /// Reads all of `state.json`.
    ///
    /// An unreadable file counts as empty, so that messaging still works.
    pub async fn read_state_json(&self) -> Arc<Map<String, Value>> {
        // On a local disk, reading a file's metadata is faster than waking another thread.
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

/// Reads the inbox of an agent that is registered in this spelling.
///
/// Returns `None` for any other spelling, and if reading would take too long.
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
