//! The resources: the rules in force, a mailbox, the roster; and telling clients when they change.

use std::time::Duration;

use rmcp::model::{
    ErrorCode, ReadResourceResult, Resource, ResourceContents, ResourceTemplate,
    ResourceUpdatedNotificationParam, SubscriptionFilter,
};
use rmcp::service::{Peer, SubscriptionContext};
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};
use switchboard_core::{AgentId, Name};
use switchboard_hub::{Hub, MailboxQuery, Part};

use super::answer::ToolError;
use super::tools::roster;
use crate::render::{BodyLimit, PREVIEW, render_mail};
use crate::workspace::Workspace;

const RULES: &str = "switchboard://active-rules";
const ROSTER: &str = "switchboard://roster";
const INBOX: &str = "switchboard://inbox/";

/// Most messages that the inbox resource shows; `check_inbox` goes on from there.
const SHOWN: usize = 50;

/// Changes within this time are told as one: clients read the whole resource each time.
const TOGETHER: Duration = Duration::from_millis(20);

/// How often what lies in files is looked at for changes. Mail is told at once, by the journal.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What an address of ours stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// The rules for an agent, or for whoever is none.
    Rules(Option<AgentId>),
    Roster,
    Inbox(AgentId),
}

/// The resources that an agent may read.
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

/// An agent's mailbox as an address. Of what names may have, only the space needs to be written otherwise.
fn inbox_uri(agent: &AgentId) -> String {
    format!("{INBOX}{}", agent.name.as_str().replace(' ', "%20"))
}

/// What an address stands for, and whether this agent may see it.
async fn place(workspace: &Workspace, agent: Option<&AgentId>, uri: &str) -> Result<Place, ErrorData> {
    let unknown = || not_found(uri, "there is no such resource; resources/list lists those that are there");
    match uri {
        RULES => return Ok(Place::Rules(agent.cloned())),
        ROSTER => return Ok(Place::Roster),
        _ => {}
    }
    let name = uri.strip_prefix(INBOX).ok_or_else(unknown)?.replace("%20", " ");
    let owner = AgentId::local(Name::parse(&name).map_err(|error| not_found(uri, &error.to_string()))?);
    let directory = workspace.hub().directory().await.map_err(internal)?;
    let owner = directory.canonical(&owner);
    match agent.map(|agent| directory.canonical(agent)) {
        Some(agent) if agent == owner => Ok(Place::Inbox(owner)),
        // Not "forbidden": whether somebody has a mailbox is nobody else's business either.
        _ => Err(not_found(uri, "an agent reads its own inbox only, in a session that speaks for it")),
    }
}

fn not_found(uri: &str, why: &str) -> ErrorData {
    ErrorData::new(ErrorCode::RESOURCE_NOT_FOUND, format!("{uri}: {why}"), Some(json!({ "uri": uri })))
}

fn internal(error: impl Into<ToolError>) -> ErrorData {
    ErrorData::internal_error(error.into().into_text(), None)
}

/// Reads a resource. Nothing is marked as seen: a client may read ahead without its model.
pub(super) async fn read(
    workspace: &Workspace,
    agent: Option<&AgentId>,
    uri: &str,
) -> Result<ReadResourceResult, ErrorData> {
    let contents = match place(workspace, agent, uri).await? {
        Place::Rules(agent) => {
            ResourceContents::text(workspace.active_rules(agent.as_ref()).await.map_err(internal)?, uri)
        }
        Place::Roster => {
            let roster = roster(workspace, agent).await.map_err(internal)?;
            json_contents(&roster.into_data(), uri)
        }
        Place::Inbox(owner) => json_contents(&inbox(workspace, &owner).await.map_err(internal)?, uri),
    };
    Ok(ReadResourceResult::new(vec![contents]))
}

fn json_contents(value: &Value, uri: &str) -> ResourceContents {
    ResourceContents::text(value.to_string(), uri).with_mime_type("application/json")
}

async fn inbox(workspace: &Workspace, owner: &AgentId) -> Result<Value, ToolError> {
    workspace.scan_mailbox(owner).await?;
    let query = MailboxQuery { agent: owner.clone(), after: 0, limit: SHOWN, part: Part::Waiting };
    let page = workspace.hub().mailbox(query).await?;
    let mut messages = Vec::with_capacity(page.items.len());
    for mail in &page.items {
        let extent = BodyLimit { from: 0, most: PREVIEW, everything: false };
        messages.push(render_mail(workspace, owner, mail, extent).await?.data);
    }
    let unread = workspace.hub().count(owner.clone(), Part::Unseen, 1000).await?;
    Ok(json!({ "agent": owner.to_string(), "unread": unread, "messages": messages, "more": page.more }))
}

/// Looks out for changes of one resource.
pub(super) struct Watch {
    workspace: Workspace,
    place: Place,
    uri: String,
}

impl Watch {
    pub(super) async fn new(
        workspace: &Workspace,
        agent: Option<&AgentId>,
        uri: &str,
    ) -> Result<Self, ErrorData> {
        let place = place(workspace, agent, uri).await?;
        Ok(Self { workspace: workspace.clone(), place, uri: uri.to_owned() })
    }

    /// Tells of every change, several at once where they come together. Ends when nobody listens.
    pub(super) async fn tell<F, T>(self, tell: F)
    where
        F: Fn(String) -> T,
        T: Future<Output = bool>,
    {
        let mut changes = self.workspace.hub().changes();
        let mut known = self.mark().await;
        loop {
            match self.place {
                Place::Inbox(_) => changes.next().await,
                Place::Rules(_) | Place::Roster => tokio::time::sleep(LOOK_EVERY).await,
            }
            let now = self.mark().await;
            if now == known {
                continue;
            }
            tokio::time::sleep(TOGETHER).await;
            known = self.mark().await;
            if !tell(self.uri.clone()).await {
                return;
            }
        }
    }

    /// Something that differs when the resource does.
    async fn mark(&self) -> Option<String> {
        match &self.place {
            Place::Inbox(owner) => inbox_mark(self.workspace.hub(), owner).await,
            Place::Rules(agent) => self.workspace.active_rules(agent.as_ref()).await.ok(),
            Place::Roster => {
                roster(&self.workspace, None).await.ok().map(|roster| roster.into_data().to_string())
            }
        }
    }
}

/// The newest message of a mailbox, and how many wait: enough to see mail come and go.
async fn inbox_mark(hub: &Hub, owner: &AgentId) -> Option<String> {
    /// Counting every message at each change would cost more than it tells.
    const COUNTED: usize = 1000;
    let waiting = hub.count(owner.clone(), Part::Waiting, COUNTED).await.ok()?;
    let unseen = hub.count(owner.clone(), Part::Unseen, COUNTED).await.ok()?;
    let newest = hub.newest_waiting(owner.clone()).await.ok()?;
    Some(format!("{waiting} {unseen} {newest:?}"))
}

/// Tells a client of a session; false once it is gone.
pub(super) async fn notify(peer: &Peer<RoleServer>, uri: String) -> bool {
    peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri)).await.is_ok()
}

/// What a client without a session may subscribe to.
pub(super) fn accepted(requested: &SubscriptionFilter) -> SubscriptionFilter {
    let ours = |uri: &&String| matches!(uri.as_str(), RULES | ROSTER) || uri.starts_with(INBOX);
    let uris: Vec<String> = requested.resource_subscriptions.iter().flatten().filter(ours).cloned().collect();
    let mut accepted = SubscriptionFilter::new();
    accepted.resource_subscriptions = (!uris.is_empty()).then_some(uris);
    accepted
}

/// Serves one subscription of a client without a session, until it ends it.
pub(super) async fn listen(
    workspace: &Workspace,
    agent: Option<&AgentId>,
    subscription: &SubscriptionContext,
) -> Result<(), ErrorData> {
    let mut watches = tokio::task::JoinSet::new();
    for uri in subscription.accepted().resource_subscriptions.iter().flatten() {
        let watch = Watch::new(workspace, agent, uri).await?;
        let sink = subscription.sink().clone();
        watches.spawn(watch.tell(move |uri| {
            let sink = sink.clone();
            async move { sink.notify_resource_updated(uri).await.is_ok() }
        }));
    }
    subscription.cancelled().await;
    Ok(())
}
