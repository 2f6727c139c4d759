//! MCP resources (active rules, inbox and roster) and notifications of their changes.

use std::time::Duration;

use door_workspace::Workspace;
use door_workspace::render::{BodyLimit, PREVIEW, render_mail};
use rmcp::model::{
    ErrorCode, ReadResourceResult, Resource, ResourceContents, ResourceTemplate,
    ResourceUpdatedNotificationParam, SubscriptionFilter,
};
use rmcp::service::{Peer, SubscriptionContext};
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};
use switchboard_core::{AgentId, Name};
use switchboard_hub::{Hub, MailboxQuery, Part};
use switchboard_sys::debounce::Debounce;

use super::answer::ToolError;
use super::tools::roster;

const RULES: &str = "switchboard://active-rules";
const ROSTER: &str = "switchboard://roster";
const INBOX: &str = "switchboard://inbox/";

/// Maximum number of messages in the inbox resource; `check_inbox` shows the rest.
const INBOX_LIMIT: usize = 50;

/// Poll interval of resources that are read from files.
///
/// The inbox needs no polling, because the journal signals changes.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Kind of resource that a URI refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ResourceKind {
    /// The active rules for an agent, or for a session without an agent.
    Rules(Option<AgentId>),
    Roster,
    Inbox(AgentId),
}

/// Lists the resources that an agent may read.
pub(super) fn list(agent: Option<&AgentId>) -> Vec<Resource> {
    let mut list = vec![
        Resource::new(RULES, "active-rules")
            .with_description("The rules of the workflow that you are under")
            .with_mime_type("text/plain"),
        Resource::new(ROSTER, "roster")
            .with_description("Agents and teams")
            .with_mime_type("application/json"),
    ];
    if let Some(agent) = agent {
        list.push(
            Resource::new(inbox_uri(agent), "inbox")
                .with_description("Your mail")
                .with_mime_type("application/json"),
        );
    }
    list
}

pub(super) fn templates() -> Vec<ResourceTemplate> {
    vec![
        ResourceTemplate::new(format!("{INBOX}{{agent}}"), "inbox")
            .with_description("The mail of an agent, for that agent")
            .with_mime_type("application/json"),
    ]
}

/// Returns the URI of an agent's inbox.
///
/// The space is the only character in names that needs escaping.
fn inbox_uri(agent: &AgentId) -> String {
    format!("{INBOX}{}", agent.name.as_str().replace(' ', "%20"))
}

/// Resolves a URI and checks that the agent may read the resource.
async fn resolve_uri(
    workspace: &Workspace,
    agent: Option<&AgentId>,
    uri: &str,
) -> Result<ResourceKind, ErrorData> {
    let unknown = || not_found(uri, "there is no such resource; resources/list lists those that are there");
    match uri {
        RULES => return Ok(ResourceKind::Rules(agent.cloned())),
        ROSTER => return Ok(ResourceKind::Roster),
        _ => {}
    }
    let name = uri.strip_prefix(INBOX).ok_or_else(unknown)?.replace("%20", " ");
    let owner = AgentId::local(Name::parse(&name).map_err(|error| not_found(uri, &error.to_string()))?);
    let directory = workspace.hub().directory().await.map_err(internal)?;
    let owner = directory.canonical(&owner);
    match agent.map(|agent| directory.canonical(agent)) {
        Some(agent) if agent == owner => Ok(ResourceKind::Inbox(owner)),
        // Do not report "forbidden": the existence of a mailbox is private as well.
        _ => Err(not_found(uri, "an agent reads its own inbox only, in a session that speaks for it")),
    }
}

fn not_found(uri: &str, reason: &str) -> ErrorData {
    ErrorData::new(ErrorCode::RESOURCE_NOT_FOUND, format!("{uri}: {reason}"), Some(json!({ "uri": uri })))
}

fn internal(error: impl Into<ToolError>) -> ErrorData {
    ErrorData::internal_error(error.into().into_text(), None)
}

/// Reads a resource.
///
/// Marks no message as seen, because a client may read ahead without showing the resource to its model.
pub(super) async fn read(
    workspace: &Workspace,
    agent: Option<&AgentId>,
    uri: &str,
) -> Result<ReadResourceResult, ErrorData> {
    let contents = match resolve_uri(workspace, agent, uri).await? {
        ResourceKind::Rules(agent) => {
            ResourceContents::text(workspace.active_rules(agent.as_ref()).await.map_err(internal)?, uri)
        }
        ResourceKind::Roster => {
            let roster = roster(workspace, agent).await.map_err(internal)?;
            json_contents(&roster.into_data(), uri)
        }
        ResourceKind::Inbox(owner) => json_contents(&inbox(workspace, &owner).await.map_err(internal)?, uri),
    };
    Ok(ReadResourceResult::new(vec![contents]))
}

fn json_contents(value: &Value, uri: &str) -> ResourceContents {
    ResourceContents::text(value.to_string(), uri).with_mime_type("application/json")
}

async fn inbox(workspace: &Workspace, owner: &AgentId) -> Result<Value, ToolError> {
    workspace.scan_mailbox(owner).await?;
    let query = MailboxQuery { agent: owner.clone(), after: 0, limit: INBOX_LIMIT, part: Part::Waiting };
    let page = workspace.hub().mailboxes().page(query).await?;
    let mut messages = Vec::with_capacity(page.items.len());
    for mail in &page.items {
        let limit = BodyLimit { from: 0, most: PREVIEW, everything: false };
        messages.push(render_mail(workspace, owner, mail, limit).await?.data);
    }
    let unread = workspace.hub().mailboxes().count(owner.clone(), Part::Unseen, 1000).await?;
    Ok(json!({ "agent": owner.to_string(), "unread": unread, "messages": messages, "more": page.more }))
}

/// A subscription to one resource.
pub(super) struct Subscription {
    workspace: Workspace,
    kind: ResourceKind,
    uri: String,
}

impl Subscription {
    pub(super) async fn new(
        workspace: &Workspace,
        agent: Option<&AgentId>,
        uri: &str,
    ) -> Result<Self, ErrorData> {
        let kind = resolve_uri(workspace, agent, uri).await?;
        Ok(Self { workspace: workspace.clone(), kind, uri: uri.to_owned() })
    }

    /// Sends debounced change notifications until the client disconnects.
    pub(super) async fn notify_changes<F, T>(self, notify: F)
    where
        F: Fn(String) -> T,
        T: Future<Output = bool>,
    {
        let mut changes = self.workspace.hub().changes();
        let mut known = self.fingerprint().await;
        loop {
            match self.kind {
                ResourceKind::Inbox(_) => changes.next().await,
                ResourceKind::Rules(_) | ResourceKind::Roster => tokio::time::sleep(POLL_INTERVAL).await,
            }
            let now = self.fingerprint().await;
            if now == known {
                continue;
            }
            Debounce::NOTIFIED_RESOURCES.wait().await;
            known = self.fingerprint().await;
            if !notify(self.uri.clone()).await {
                return;
            }
        }
    }

    /// Returns a fingerprint that differs whenever the resource has changed.
    async fn fingerprint(&self) -> Option<String> {
        match &self.kind {
            ResourceKind::Inbox(owner) => inbox_fingerprint(self.workspace.hub(), owner).await,
            ResourceKind::Rules(agent) => self.workspace.active_rules(agent.as_ref()).await.ok(),
            ResourceKind::Roster => {
                roster(&self.workspace, None).await.ok().map(|roster| roster.into_data().to_string())
            }
        }
    }
}

/// Returns the newest message and the message counts of an inbox.
///
/// This is enough to detect new and archived messages.
async fn inbox_fingerprint(hub: &Hub, owner: &AgentId) -> Option<String> {
    /// Upper bound of the counts.
    ///
    /// Counting every message at each change would cost more than it is worth.
    const COUNTED: usize = 1000;
    let waiting = hub.mailboxes().count(owner.clone(), Part::Waiting, COUNTED).await.ok()?;
    let unseen = hub.mailboxes().count(owner.clone(), Part::Unseen, COUNTED).await.ok()?;
    let newest = hub.mailboxes().newest_waiting(owner.clone()).await.ok()?;
    Some(format!("{waiting} {unseen} {newest:?}"))
}

/// Notifies the client of a session; returns false if the client has disconnected.
pub(super) async fn notify(peer: &Peer<RoleServer>, uri: String) -> bool {
    peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri)).await.is_ok()
}

/// Filters a requested subscription to the resources that a client without a session may subscribe to.
pub(super) fn accepted(requested: &SubscriptionFilter) -> SubscriptionFilter {
    let ours = |uri: &&String| matches!(uri.as_str(), RULES | ROSTER) || uri.starts_with(INBOX);
    let uris: Vec<String> = requested.resource_subscriptions.iter().flatten().filter(ours).cloned().collect();
    let mut accepted = SubscriptionFilter::new();
    accepted.resource_subscriptions = (!uris.is_empty()).then_some(uris);
    accepted
}

/// Serves one subscription request of a client without a session, until the client ends the subscription.
pub(super) async fn listen(
    workspace: &Workspace,
    agent: Option<&AgentId>,
    subscription: &SubscriptionContext,
) -> Result<(), ErrorData> {
    let mut subscriptions = tokio::task::JoinSet::new();
    for uri in subscription.accepted().resource_subscriptions.iter().flatten() {
        let changes = Subscription::new(workspace, agent, uri).await?;
        let sink = subscription.sink().clone();
        subscriptions.spawn(changes.notify_changes(move |uri| {
            let sink = sink.clone();
            async move { sink.notify_resource_updated(uri).await.is_ok() }
        }));
    }
    subscription.cancelled().await;
    Ok(())
}
