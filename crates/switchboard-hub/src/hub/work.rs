//! What agents take on, and what keeps them from taking on too much.

use jiff::SignedDuration;
use switchboard_core::{AgentId, MessageId, Pattern, TaskName};
use switchboard_sys::clock::from_micros;
use tokio::time::Instant;

use super::Hub;
use crate::activity::{self, Activity};
use crate::breakers::{self, ResumedMessage, StoppedMessage};
use crate::claims::{self, CLAIM_LEASE, ClaimAction, ClaimAnswer, ClaimRequest, TaskClaim};
use crate::error::HubError;
use crate::reservations::{self, Reservation, ReservationRequest};
use crate::work_tree::WorkTree;

/// What a person lets go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// Everything.
    All,
    /// What concerns an agent.
    Agent(AgentId),
    /// The conversation of a message.
    Thread(MessageId),
}

impl Hub {
    /// What the rules against storms and costs have stopped, oldest first.
    pub async fn stopped(&self) -> Result<Vec<StoppedMessage>, HubError> {
        self.read(breakers::list).await
    }

    /// Lets what was stopped go on: it is delivered, and its rules count anew. Only for a person to ask.
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

    /// Notes tokens that an agent's model has used, as its door was told. They count for its budget.
    pub async fn record_tokens(&self, agent: AgentId, tokens: u64) -> Result<(), HubError> {
        self.write(move |tx| {
            let agent = tx.directory.value.canonical(&agent);
            breakers::charge(tx, &agent, 0, tokens)
        })
        .await
    }

    /// Takes a task on for an agent. Of all who ask at once, in whichever process of this hub, one gets it; the others
    /// are told who has it.
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

    /// The same among all linked hubs. The process that has the link is asked, and must answer within seconds.
    pub async fn claim_globally(
        &self,
        task: TaskName,
        agent: AgentId,
        lease: SignedDuration,
        note: Option<String>,
    ) -> Result<TaskClaim, HubError> {
        claims::check_lease(lease)?;
        self.ask_everywhere(ClaimAction::Claim, task, agent, (0, lease, note)).await
    }

    async fn is_everywhere(&self, task: &TaskName) -> Result<bool, HubError> {
        let task = task.clone();
        self.read(move |db| claims::is_everywhere(db, &task)).await
    }

    async fn ask_everywhere(
        &self,
        act: ClaimAction,
        task: TaskName,
        agent: AgentId,
        asked: (i64, SignedDuration, Option<String>),
    ) -> Result<TaskClaim, HubError> {
        let mut changes = self.changes();
        let deadline = Instant::now() + claims::PATIENCE;
        let (named, of, (fence, lease, note)) = (task.clone(), agent.clone(), asked.clone());
        let id = self.write(move |tx| claims::ask(tx, act, &named, &of, asked)).await?;
        let until = self.now().saturating_add(claims::bounded(lease)).unwrap_or(self.now());
        while Instant::now() < deadline && self.read(move |db| claims::answer_of(db, id)).await?.is_none() {
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
                Err(HubError::ClaimHeld { task, holder, until: from_micros(until), own: None })
            }
            Some(ClaimAnswer::Stale { holder }) => {
                let holder = holder.and_then(|holder| holder.parse().ok());
                Err(HubError::StaleClaim { task, fence, holder, was_claimed: true })
            }
            None => Err(HubError::NoLink { task }),
        }
    }

    /// What the link to other hubs is asked now.
    pub async fn claim_requests(&self) -> Result<Vec<(i64, ClaimRequest)>, HubError> {
        let now = self.now();
        self.read(move |db| claims::asks(db, now)).await
    }

    /// Takes the link's answer. False where the link is to take back what it did: nobody waits for it any more, or
    /// somebody of this hub has been quicker.
    pub async fn answer_claim(&self, id: i64, answer: ClaimAnswer) -> Result<bool, HubError> {
        self.write(move |tx| claims::answer(tx, id, &answer)).await
    }

    /// Begins the lease of a claim anew, while it is in force; as long as it was given for, where nobody says.
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
        if self.is_everywhere(&task).await? {
            return self.ask_everywhere(ClaimAction::Renew, task, agent, (fence, lease, None)).await;
        }
        self.write(move |tx| claims::renew(tx, &task, &agent, fence, lease)).await
    }

    /// Gives a task back, while the claim is in force.
    pub async fn release_claim(
        &self,
        task: TaskName,
        agent: AgentId,
        fence: i64,
    ) -> Result<TaskClaim, HubError> {
        if self.is_everywhere(&task).await? {
            let asked = (fence, CLAIM_LEASE, None);
            return self.ask_everywhere(ClaimAction::Release, task, agent, asked).await;
        }
        self.write(move |tx| claims::release(tx, &task, &agent, fence)).await
    }

    /// The claim of this number, while it is in force and that agent's: ask before every step that must not be taken
    /// by two.
    pub async fn check_claim(
        &self,
        task: TaskName,
        agent: AgentId,
        fence: i64,
    ) -> Result<TaskClaim, HubError> {
        self.write(move |tx| claims::check(tx, &task, &agent, fence)).await
    }

    /// Who has which task.
    pub async fn claims(&self) -> Result<Vec<TaskClaim>, HubError> {
        let now = self.now();
        self.read(move |db| claims::list(db, now)).await
    }

    /// Reserves files, all or none.
    pub async fn reserve(&self, asked: ReservationRequest) -> Result<Vec<Reservation>, HubError> {
        claims::check_lease(asked.lease)?;
        self.write(move |tx| reservations::reserve(tx, &asked)).await
    }

    /// Gives up an agent's reservations in a tree: these, or all. Returns how many there were.
    pub async fn unreserve(
        &self,
        agent: AgentId,
        tree: WorkTree,
        patterns: Vec<Pattern>,
    ) -> Result<usize, HubError> {
        self.write(move |tx| reservations::unreserve(tx, &agent, &tree, &patterns)).await
    }

    /// Who works at which files.
    pub async fn reservations(&self) -> Result<Vec<Reservation>, HubError> {
        let now = self.now();
        self.read(move |db| reservations::list(db, now)).await
    }

    /// What agents did after a cursor that is no message, and after a message of the journal, in order.
    pub async fn activity(&self, after: i64, seq: i64, limit: usize) -> Result<Vec<Activity>, HubError> {
        self.read(move |db| activity::list(db, after, seq, limit)).await
    }

    /// The cursor behind everything that agents did.
    pub async fn last_activity(&self) -> Result<i64, HubError> {
        self.read(activity::last).await
    }
}
