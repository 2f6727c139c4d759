//! The actions that claim a task, and renew, check and release the claim.

use jiff::SignedDuration;
use switchboard_core::TaskName;
use switchboard_hub::{CLAIM_LEASE, TaskClaim};

use crate::actor::Actor;
use crate::error::{ActionError, check_line};
use crate::send::check_lifetime;

/// Request to claim a task.
#[derive(Debug, Clone, Default)]
pub struct Claim {
    /// Name of the task, the same for all agents.
    pub task: String,
    /// Lease of the claim: how long it lasts without a renewal. The default is [`CLAIM_LEASE`].
    pub lease: Option<SignedDuration>,
    /// One line about the claim that other agents see.
    pub note: Option<String>,
    /// True to claim the task among all linked hubs.
    pub everywhere: bool,
}

/// Claims a task: the agent gets a lease with a fencing token.
pub async fn claim(actor: Actor<'_>, request: Claim) -> Result<TaskClaim, ActionError> {
    let task = TaskName::parse(&request.task)?;
    check_line("note", request.note.as_deref())?;
    check_lifetime("lease", request.lease)?;
    let lease = request.lease.unwrap_or(CLAIM_LEASE);
    let me = actor.registered().await?;
    let hub = actor.workspace.hub();
    Ok(if request.everywhere {
        hub.claims().claim_globally(task, me, lease, request.note).await?
    } else {
        hub.claims().claim(task, me, lease, request.note).await?
    })
}

/// Renews a claim from now on. The default duration is that of the claim's last lease.
pub async fn renew(
    actor: Actor<'_>,
    task: &str,
    fence: i64,
    lease: Option<SignedDuration>,
) -> Result<TaskClaim, ActionError> {
    let task = TaskName::parse(task)?;
    check_lifetime("lease", lease)?;
    Ok(actor.workspace.hub().claims().renew(task, actor.agent.clone(), fence, lease).await?)
}

/// Releases a claim that is in force with this fencing token.
pub async fn release(actor: Actor<'_>, task: &str, fence: i64) -> Result<TaskClaim, ActionError> {
    let task = TaskName::parse(task)?;
    Ok(actor.workspace.hub().claims().release(task, actor.agent.clone(), fence).await?)
}

/// Checks that a claim is in force with this fencing token.
pub async fn check_claim(actor: Actor<'_>, task: &str, fence: i64) -> Result<TaskClaim, ActionError> {
    let task = TaskName::parse(task)?;
    Ok(actor.workspace.hub().claims().check(task, actor.agent.clone(), fence).await?)
}
