//! Claims a task, renews, checks and releases the claim.

use jiff::SignedDuration;
use switchboard_core::TaskName;
use switchboard_hub::{CLAIM_LEASE, TaskClaim};

use crate::actor::Actor;
use crate::error::{ActionError, check_line};
use crate::send::check_lifetime;

/// A task to claim.
#[derive(Debug, Clone, Default)]
pub struct Claim {
    /// Its name, the same for all agents.
    pub task: String,
    /// How long the claim lasts without a renewal; [`CLAIM_LEASE`] by default.
    pub lease: Option<SignedDuration>,
    /// One line that other agents see.
    pub note: Option<String>,
    /// True to claim among all linked hubs.
    pub everywhere: bool,
}

/// Claims a task.
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

/// Extends a claim from now on; without a lease, for as long as it was claimed.
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

/// Releases a claim.
pub async fn release(actor: Actor<'_>, task: &str, fence: i64) -> Result<TaskClaim, ActionError> {
    let task = TaskName::parse(task)?;
    Ok(actor.workspace.hub().claims().release(task, actor.agent.clone(), fence).await?)
}

/// Checks that a claim is in force.
pub async fn check_claim(actor: Actor<'_>, task: &str, fence: i64) -> Result<TaskClaim, ActionError> {
    let task = TaskName::parse(task)?;
    Ok(actor.workspace.hub().claims().check(task, actor.agent.clone(), fence).await?)
}
