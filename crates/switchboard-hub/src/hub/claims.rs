//! Access to task claims and file reservations.

use jiff::SignedDuration;
use switchboard_core::{AgentId, Pattern, TaskName};
use switchboard_sys::clock::timestamp_from_micros;
use tokio::time::Instant;

use super::Hub;
use crate::claims::reservations::{self, Reservation, ReservationRequest};
use crate::claims::work_tree::WorkTree;
use crate::claims::{self, CLAIM_LEASE, ClaimAction, ClaimAnswer, ClaimRequest, TaskClaim};
use crate::error::HubError;

/// Access to claims: claims tasks and reserves files for agents.
#[derive(Clone, Copy)]
pub struct Claims<'h> {
    pub(super) hub: &'h Hub,
}

impl Claims<'_> {
    /// Claims a task for an agent.
    ///
    /// Of concurrent claims in any processes of this hub, exactly one wins; the others fail with the holder.
    pub async fn claim(
        self,
        task: TaskName,
        agent: AgentId,
        lease: SignedDuration,
        note: Option<String>,
    ) -> Result<TaskClaim, HubError> {
        claims::check_lease(lease)?;
        self.hub.write(move |tx| claims::claim(tx, task, &agent, lease, note)).await
    }

    /// Claims a task among all linked hubs. The process that runs the link must answer within seconds.
    pub async fn claim_globally(
        self,
        task: TaskName,
        agent: AgentId,
        lease: SignedDuration,
        note: Option<String>,
    ) -> Result<TaskClaim, HubError> {
        claims::check_lease(lease)?;
        self.request_globally(ClaimAction::Claim, task, agent, (0, lease, note)).await
    }

    async fn is_global(self, task: &TaskName) -> Result<bool, HubError> {
        let task = task.clone();
        self.hub.read(move |db| claims::is_global(db, &task)).await
    }

    async fn request_globally(
        self,
        act: ClaimAction,
        task: TaskName,
        agent: AgentId,
        terms: (i64, SignedDuration, Option<String>),
    ) -> Result<TaskClaim, HubError> {
        let mut changes = self.hub.changes();
        let deadline = Instant::now() + claims::ANSWER_TIMEOUT;
        let (named, of, (fence, lease, note)) = (task.clone(), agent.clone(), terms.clone());
        let id = self.hub.write(move |tx| claims::enqueue_request(tx, act, &named, &of, terms)).await?;
        let until = self.hub.now().saturating_add(claims::bounded(lease)).unwrap_or(self.hub.now());
        while Instant::now() < deadline
            && self.hub.read(move |db| claims::find_answer(db, id)).await?.is_none()
        {
            let _ = tokio::time::timeout_at(deadline, changes.next()).await;
        }
        match self.hub.write(move |tx| claims::withdraw(tx, id)).await? {
            Some(ClaimAnswer::Done { fence }) => {
                let holder = self.hub.directory().await?.canonical(&agent);
                let now = self.hub.now();
                let found = self.list().await?.into_iter().find(|claim| claim.task == task);
                Ok(found.unwrap_or(TaskClaim { task, holder, fence, note, claimed_at: now, until }))
            }
            Some(ClaimAnswer::Held { holder, until }) => {
                let holder = holder.parse().unwrap_or(agent);
                Err(HubError::ClaimHeld { task, holder, until: timestamp_from_micros(until), own: None })
            }
            Some(ClaimAnswer::Stale { holder }) => {
                let holder = holder.and_then(|holder| holder.parse().ok());
                Err(HubError::StaleClaim { task, fence, holder, was_claimed: true })
            }
            None => Err(HubError::NoLink { task }),
        }
    }

    /// Lists claim requests that the link has to answer.
    pub async fn requests(self) -> Result<Vec<(i64, ClaimRequest)>, HubError> {
        let now = self.hub.now();
        self.hub.read(move |db| claims::pending_requests(db, now)).await
    }

    /// Applies an answer of the link.
    ///
    /// Returns false if the request has timed out, or if another agent of this hub claimed the task in the meantime.
    /// The link then has to undo its part.
    pub async fn answer(self, id: i64, answer: ClaimAnswer) -> Result<bool, HubError> {
        self.hub.write(move |tx| claims::apply_answer(tx, id, &answer)).await
    }

    /// Renews the lease of a claim in force.
    ///
    /// By default, the new lease is as long as the last one.
    pub async fn renew(
        self,
        task: TaskName,
        agent: AgentId,
        fence: i64,
        lease: Option<SignedDuration>,
    ) -> Result<TaskClaim, HubError> {
        let lease = if let Some(lease) = lease {
            claims::check_lease(lease)?;
            lease
        } else {
            let task = task.clone();
            self.hub.read(move |db| claims::lease_of(db, &task)).await?.unwrap_or(CLAIM_LEASE)
        };
        if self.is_global(&task).await? {
            return self.request_globally(ClaimAction::Renew, task, agent, (fence, lease, None)).await;
        }
        self.hub.write(move |tx| claims::renew(tx, &task, &agent, fence, lease)).await
    }

    /// Releases a claim in force.
    pub async fn release(self, task: TaskName, agent: AgentId, fence: i64) -> Result<TaskClaim, HubError> {
        if self.is_global(&task).await? {
            let terms = (fence, CLAIM_LEASE, None);
            return self.request_globally(ClaimAction::Release, task, agent, terms).await;
        }
        self.hub.write(move |tx| claims::release(tx, &task, &agent, fence)).await
    }

    /// Returns the claim with this fencing token if this agent holds it and it is in force.
    ///
    /// Check the claim before every step that two agents must not both take.
    pub async fn check(self, task: TaskName, agent: AgentId, fence: i64) -> Result<TaskClaim, HubError> {
        self.hub.write(move |tx| claims::check(tx, &task, &agent, fence)).await
    }

    /// Lists the claims in force.
    pub async fn list(self) -> Result<Vec<TaskClaim>, HubError> {
        let now = self.hub.now();
        self.hub.read(move |db| claims::list(db, now)).await
    }

    /// Reserves files: all of them, or none if any of them is reserved by another agent.
    pub async fn reserve(self, request: ReservationRequest) -> Result<Vec<Reservation>, HubError> {
        claims::check_lease(request.lease)?;
        self.hub.write(move |tx| reservations::reserve(tx, &request)).await
    }

    /// Releases an agent's reservations in a tree: those with these patterns, or all of them.
    ///
    /// Returns how many reservations were released.
    pub async fn unreserve(
        self,
        agent: AgentId,
        tree: WorkTree,
        patterns: Vec<Pattern>,
    ) -> Result<usize, HubError> {
        self.hub.write(move |tx| reservations::unreserve(tx, &agent, &tree, &patterns)).await
    }

    /// Lists the reservations in force.
    pub async fn reservations(self) -> Result<Vec<Reservation>, HubError> {
        let now = self.hub.now();
        self.hub.read(move |db| reservations::list(db, now)).await
    }
}
