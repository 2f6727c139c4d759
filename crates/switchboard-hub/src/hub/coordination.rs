//! Coordination of agents: breakers, budgets, task claims, reservations and the activity log.

use jiff::SignedDuration;
use switchboard_core::{AgentId, MessageId, Pattern, TaskName};
use switchboard_sys::clock::timestamp_from_micros;
use tokio::time::Instant;

use super::Hub;
use crate::activity::{self, Activity};
use crate::breakers::{self, ResumedMessage, StoppedMessage};
use crate::claims::reservations::{self, Reservation, ReservationRequest};
use crate::claims::work_tree::WorkTree;
use crate::claims::{self, CLAIM_LEASE, ClaimAction, ClaimAnswer, ClaimRequest, TaskClaim};
use crate::error::HubError;

/// Selection of stopped messages to resume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// Everything.
    All,
    /// The messages that concern an agent.
    Agent(AgentId),
    /// The conversation of a message.
    Thread(MessageId),
}

impl Hub {
    /// Lists the messages that breakers have stopped, oldest first.
    pub async fn stopped(&self) -> Result<Vec<StoppedMessage>, HubError> {
        self.read(breakers::list).await
    }

    /// Resumes stopped messages: they are delivered, and their breakers reset. Only a person may request it.
    pub async fn resume(&self, selection: Selection) -> Result<Vec<ResumedMessage>, HubError> {
        self.write(move |tx| {
            let agent = match &selection {
                Selection::Agent(agent) => Some(tx.directory.value.canonical(agent)),
                _ => None,
            };
            let resumed = breakers::resume(tx, |stopped| match (&selection, &agent) {
                (Selection::All, _) => true,
                (Selection::Thread(thread), _) => stopped.stored.message.thread == *thread,
                (_, Some(agent)) => stopped.concerns(agent),
                (_, None) => false,
            })?;
            for one in &resumed {
                let id = one.stopped.stored.message.id.to_string();
                activity::note(tx, &AgentId::human(), "resumed", &id, Some(&one.stopped.reason))?;
            }
            Ok(resumed)
        })
        .await
    }

    /// Records tokens that an agent's model has used, as reported to its door. They count for its budget.
    pub async fn record_tokens(&self, agent: AgentId, tokens: u64) -> Result<(), HubError> {
        self.write(move |tx| {
            let agent = tx.directory.value.canonical(&agent);
            breakers::charge(tx, &agent, 0, tokens)
        })
        .await
    }

    /// Claims a task for an agent. Of concurrent claims in any process of this hub, one wins; the others fail
    /// with the holder.
    pub async fn claim_task(
        &self,
        task: TaskName,
        agent: AgentId,
        lease: SignedDuration,
        note: Option<String>,
    ) -> Result<TaskClaim, HubError> {
        claims::check_lease(lease)?;
        self.write(move |tx| claims::claim(tx, task, &agent, lease, note)).await
    }

    /// Claims a task among all linked hubs. The process that runs the link must answer within seconds.
    pub async fn claim_globally(
        &self,
        task: TaskName,
        agent: AgentId,
        lease: SignedDuration,
        note: Option<String>,
    ) -> Result<TaskClaim, HubError> {
        claims::check_lease(lease)?;
        self.request_globally(ClaimAction::Claim, task, agent, (0, lease, note)).await
    }

    async fn is_global(&self, task: &TaskName) -> Result<bool, HubError> {
        let task = task.clone();
        self.read(move |db| claims::is_global(db, &task)).await
    }

    async fn request_globally(
        &self,
        act: ClaimAction,
        task: TaskName,
        agent: AgentId,
        terms: (i64, SignedDuration, Option<String>),
    ) -> Result<TaskClaim, HubError> {
        let mut changes = self.changes();
        let deadline = Instant::now() + claims::ANSWER_TIMEOUT;
        let (named, of, (fence, lease, note)) = (task.clone(), agent.clone(), terms.clone());
        let id = self.write(move |tx| claims::enqueue_request(tx, act, &named, &of, terms)).await?;
        let until = self.now().saturating_add(claims::bounded(lease)).unwrap_or(self.now());
        while Instant::now() < deadline && self.read(move |db| claims::find_answer(db, id)).await?.is_none() {
            let _ = tokio::time::timeout_at(deadline, changes.next()).await;
        }
        match self.write(move |tx| claims::withdraw(tx, id)).await? {
            Some(ClaimAnswer::Done { fence }) => {
                let holder = self.directory().await?.canonical(&agent);
                let now = self.now();
                let found = self.claims().await?.into_iter().find(|claim| claim.task == task);
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
    pub async fn claim_requests(&self) -> Result<Vec<(i64, ClaimRequest)>, HubError> {
        let now = self.now();
        self.read(move |db| claims::pending_requests(db, now)).await
    }

    /// Applies an answer of the link. False if the link has to undo its part: the request has timed out, or
    /// another agent of this hub claimed the task in the meantime.
    pub async fn answer_claim(&self, id: i64, answer: ClaimAnswer) -> Result<bool, HubError> {
        self.write(move |tx| claims::apply_answer(tx, id, &answer)).await
    }

    /// Renews a claim in force; by default for as long as it was last leased.
    pub async fn renew_claim(
        &self,
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
            self.read(move |db| claims::lease_of(db, &task)).await?.unwrap_or(CLAIM_LEASE)
        };
        if self.is_global(&task).await? {
            return self.request_globally(ClaimAction::Renew, task, agent, (fence, lease, None)).await;
        }
        self.write(move |tx| claims::renew(tx, &task, &agent, fence, lease)).await
    }

    /// Releases a claim in force.
    pub async fn release_claim(
        &self,
        task: TaskName,
        agent: AgentId,
        fence: i64,
    ) -> Result<TaskClaim, HubError> {
        if self.is_global(&task).await? {
            let terms = (fence, CLAIM_LEASE, None);
            return self.request_globally(ClaimAction::Release, task, agent, terms).await;
        }
        self.write(move |tx| claims::release(tx, &task, &agent, fence)).await
    }

    /// Returns the claim with this fence if it is in force and held by this agent. To be checked before every
    /// step that two agents must not both take.
    pub async fn check_claim(
        &self,
        task: TaskName,
        agent: AgentId,
        fence: i64,
    ) -> Result<TaskClaim, HubError> {
        self.write(move |tx| claims::check(tx, &task, &agent, fence)).await
    }

    /// Lists the claims in force.
    pub async fn claims(&self) -> Result<Vec<TaskClaim>, HubError> {
        let now = self.now();
        self.read(move |db| claims::list(db, now)).await
    }

    /// Reserves files, all or none.
    pub async fn reserve(&self, request: ReservationRequest) -> Result<Vec<Reservation>, HubError> {
        claims::check_lease(request.lease)?;
        self.write(move |tx| reservations::reserve(tx, &request)).await
    }

    /// Releases an agent's reservations in a tree: those with these patterns, or all. Returns how many were
    /// released.
    pub async fn unreserve(
        &self,
        agent: AgentId,
        tree: WorkTree,
        patterns: Vec<Pattern>,
    ) -> Result<usize, HubError> {
        self.write(move |tx| reservations::unreserve(tx, &agent, &tree, &patterns)).await
    }

    /// Lists the reservations in force.
    pub async fn reservations(&self) -> Result<Vec<Reservation>, HubError> {
        let now = self.now();
        self.read(move |db| reservations::list(db, now)).await
    }

    /// Lists actions of agents after a cursor of the activity log, or after a message of the journal, in order.
    pub async fn activity(&self, after: i64, seq: i64, limit: usize) -> Result<Vec<Activity>, HubError> {
        self.read(move |db| activity::list(db, after, seq, limit)).await
    }

    /// Returns the cursor after the last action.
    pub async fn last_activity(&self) -> Result<i64, HubError> {
        self.read(activity::last).await
    }
}
