//! Commands of clients, with one function per command.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Map, json};
use switchboard_core::{Address, AgentId, Door, Kind, NodeId, TripReason};
use switchboard_hub::{Accepted, Draft, HubError};
use tokio::sync::oneshot;

use super::{QueueSlot, Router, reject_unknown_job};
use crate::delivery::METADATA;
use crate::intake::reject;
use crate::job::{Job, NodeShared};
use crate::node::NodeOrder;
use crate::wire::command::{Approve, Command, Inject, JobFilter, Launch, NodeNumber, Nodes};
use crate::wire::event::{
    ApprovalsList, CommandRejected, EventBody, Injection, InjectionRef, InjectionReply, JobStatusReply,
    JobTerminated, JobsList, QueueList, RejectCode,
};

/// The client that sends a command.
#[derive(Debug, Clone)]
pub(crate) struct Requester {
    /// The client's name.
    pub(crate) client: String,
    /// The agent that sends the client's injections.
    pub(crate) agent: AgentId,
    /// The owner whose jobs the client may access; `None` for all jobs.
    pub(crate) owner: Option<String>,
}

/// Origin of an injection: requester and request id.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestContext<'a> {
    pub(crate) requester: &'a Requester,
    pub(crate) request_id: &'a str,
}

/// Events for the requester, or the rejection of the command.
pub(crate) type Handled = Result<Vec<EventBody>, CommandRejected>;

impl Requester {
    /// Returns the owner of jobs that this client launches.
    fn owner_name(&self) -> &str {
        self.owner.as_deref().unwrap_or("local")
    }

    /// Returns true if the client may see and change a job.
    pub(crate) fn can_access(&self, job: &Job) -> bool {
        self.owner.as_ref().is_none_or(|owner| *owner == job.owner)
    }
}

impl Router {
    /// Executes a command and returns the answers for this client alone.
    ///
    /// Results that concern other clients go to the log. The session handles `hello`, `subscribe`, `inject` and the
    /// commands that exist only in the legacy dialect.
    pub(crate) async fn handle(
        &self,
        requester: &Requester,
        request_id: String,
        command: Command,
    ) -> Handled {
        match command {
            Command::Launch(launch) => {
                let (router, requester) = (self.clone(), requester.clone());
                let (answer, reply) = oneshot::channel();
                // The launch is spawned, because a client may disconnect after it has read the job id and before the
                // prompt is in the journal.
                self.spawn(async move {
                    let _ = answer.send(router.do_launch(&requester, *launch, request_id).await);
                });
                reply.await.unwrap_or_else(|_| Err(reject_not_now("the router is being stopped".to_owned())))
            }
            Command::JobsList(_) => {
                let jobs =
                    self.jobs().into_iter().filter(|job| requester.can_access(job)).map(|job| job.info());
                Ok(vec![EventBody::JobsList(JobsList { request_id, jobs: jobs.collect() })])
            }
            Command::JobStatus(asked) => {
                let job = self.find_job(requester, &asked.job_id)?;
                Ok(vec![EventBody::JobStatus(JobStatusReply { request_id, job: job.info() })])
            }
            Command::Terminate(asked) => {
                let job = self.find_job(requester, &asked.job_id)?;
                if self.terminate(&job, &request_id).await {
                    return Ok(Vec::new());
                }
                Err(reject_job_over(format!("job '{}' has already ended", job.id)))
            }
            Command::Interrupt(asked) => {
                let (_, node) = self.find_node(requester, &asked.job_id, asked.node_id)?;
                let (answer, reply) = oneshot::channel();
                send_order(&node, NodeOrder::Interrupt { answer }).await?;
                let at = reply
                    .await
                    .ok()
                    .flatten()
                    .ok_or_else(|| reject_not_now("no turn runs there".to_owned()))?;
                Ok(vec![EventBody::InterruptAck(InjectionReply { request_id, at })])
            }
            Command::Steer(asked) => self.steer(requester, asked, request_id).await,
            Command::Approve(asked) => self.approve(requester, asked, request_id).await,
            Command::ApprovalsList(filter) => self.list_approvals(requester, &filter, request_id),
            Command::QueueList(filter) => self.list_queues(requester, &filter, request_id),
            Command::Hello(_)
            | Command::Inject(_)
            | Command::Subscribe(_)
            | Command::ProvidersList(_)
            | Command::ProjectList(_) => Ok(Vec::new()),
        }
    }

    async fn do_launch(&self, requester: &Requester, launch: Launch, request_id: String) -> Handled {
        let prompt = launch.prompt.clone();
        let job = self.launch(launch, &request_id, &requester.client, requester.owner_name()).await?;
        let mut answers = Vec::new();
        if let Some(prompt) = prompt {
            let context = RequestContext { requester, request_id: &request_id };
            let draft = |node: &Arc<NodeShared>| {
                (self.build_draft(context, node, prompt.clone()), QueueSlot::unreserved(node))
            };
            let drafts = job.nodes.iter().map(draft);
            for answer in self.submit(drafts.collect()).await {
                let rejected = match answer {
                    Ok(Accepted { stopped: None, .. }) => continue,
                    Ok(Accepted { stopped: Some(stop), .. }) => reject_stopped(&stop),
                    Err(error) => reject_submission(&error),
                };
                let request_id = Some(request_id.clone());
                answers.push(EventBody::CommandRejected(CommandRejected { request_id, ..rejected }));
            }
        }
        Ok(answers)
    }

    /// Builds the drafts of an injection, one per node, each with a slot in the node's queue.
    ///
    /// If any draft or slot is impossible, the whole injection is rejected.
    pub(crate) async fn build_drafts(
        &self,
        context: RequestContext<'_>,
        inject: Inject,
    ) -> Result<Vec<(Draft, QueueSlot)>, CommandRejected> {
        let job = self.find_job(context.requester, &inject.job_id)?;
        let nodes = nodes_of(&job, inject.node_id, inject.nodes)?;
        let (slots, refusal) = match self.reserve_slots(&job, &nodes) {
            Ok(slots) => (slots, None),
            Err(refusal) => (nodes.iter().map(QueueSlot::unreserved).collect(), Some(refusal)),
        };
        let draft = |node| self.build_draft(context, node, inject.content.clone());
        let drafts: Vec<_> = nodes.iter().map(|node| draft(node)).zip(slots).collect();
        match refusal {
            // A retry of an accepted injection stays accepted, whatever the state of the job.
            Some(refusal) if !self.were_accepted(&drafts).await => Err(refusal),
            _ => Ok(drafts),
        }
    }

    /// Reserves one queue slot per node, or rejects the injection.
    fn reserve_slots(&self, job: &Job, nodes: &[Arc<NodeShared>]) -> Result<Vec<QueueSlot>, CommandRejected> {
        if job.is_terminated() {
            return Err(reject_job_over(format!("job '{}' was terminated", job.id)));
        }
        if job.is_over_budget.load(Ordering::Relaxed) {
            return Err(reject(RejectCode::OverBudget, None, over_budget_reason(job)));
        }
        let reserve = |node| {
            QueueSlot::reserve(node, self.config().queue).map_err(|waiting| {
                let reason = format!("{waiting} injections wait for {} already; try again later", node.id);
                reject(RejectCode::QueueFull, None, reason)
            })
        };
        nodes.iter().map(reserve).collect()
    }

    /// Returns true if all of these drafts were accepted before, according to their idempotency keys.
    async fn were_accepted(&self, drafts: &[(Draft, QueueSlot)]) -> bool {
        for key in drafts.iter().map(|(draft, _)| draft.key.as_deref().unwrap_or_default()) {
            match self.hub().native_ids().find(Some(Door::Workers), key).await {
                Ok(found) if !found.is_empty() => {}
                _ => return false,
            }
        }
        true
    }

    pub(super) fn build_draft(
        &self,
        context: RequestContext<'_>,
        node: &NodeShared,
        content: String,
    ) -> Draft {
        let RequestContext { requester, request_id } = context;
        let context = json!({ "request_id": request_id, "client": requester.client });
        let mut metadata = Map::new();
        metadata.insert(METADATA.to_owned(), context);
        let (from, to) = (requester.agent.clone(), Address::Node(node.id.clone()));
        Draft {
            metadata,
            key: Some(format!("{}/{request_id}/{}", requester.client, node.id)),
            ..self.hub().draft(Door::Workers, from, to, Kind::delegate_task(), content)
        }
    }

    async fn approve(&self, requester: &Requester, command: Approve, request_id: String) -> Handled {
        let unknown = || {
            let id = command.approval_id.escape_debug();
            let reason =
                format!("payload.approval_id: no approval '{id}' is open; it may have been answered");
            reject(RejectCode::UnknownApproval, Some("payload.approval_id"), reason)
        };
        let node = self
            .jobs()
            .iter()
            .filter(|job| requester.can_access(job))
            .find_map(|job| job.approval_node(&command.approval_id))
            .ok_or_else(unknown)?;
        let (answer, reply) = oneshot::channel();
        let (approval, by) = (command.approval_id.clone(), requester.client.clone());
        send_order(&node, NodeOrder::Decide { approval, decision: command.decision, by, request_id, answer })
            .await?;
        // The log already has the decision, with the request id.
        if reply.await.unwrap_or(false) { Ok(Vec::new()) } else { Err(unknown()) }
    }

    fn filter_jobs(
        &self,
        requester: &Requester,
        filter: &JobFilter,
    ) -> Result<Vec<Arc<Job>>, CommandRejected> {
        match &filter.job_id {
            Some(id) => Ok(vec![self.find_job(requester, id)?]),
            None => Ok(self.jobs().into_iter().filter(|job| requester.can_access(job)).collect()),
        }
    }

    fn list_approvals(&self, requester: &Requester, filter: &JobFilter, request_id: String) -> Handled {
        let jobs = self.filter_jobs(requester, filter)?;
        let waiting = |job: &Arc<Job>| job.record.lock().approvals.values().cloned().collect::<Vec<_>>();
        let approvals = jobs.iter().flat_map(waiting).collect();
        Ok(vec![EventBody::ApprovalsList(ApprovalsList { request_id, approvals })])
    }

    fn list_queues(&self, requester: &Requester, filter: &JobFilter, request_id: String) -> Handled {
        let jobs = self.filter_jobs(requester, filter)?;
        let queue = jobs.iter().flat_map(|job| &job.nodes).flat_map(|node| node.queued()).collect();
        Ok(vec![EventBody::QueueList(QueueList { request_id, queue })])
    }

    fn find_job(&self, requester: &Requester, id: &str) -> Result<Arc<Job>, CommandRejected> {
        let job = self.job(id).ok_or_else(|| {
            let known: Vec<_> = self.jobs().into_iter().filter(|job| requester.can_access(job)).collect();
            reject_unknown_job(id, &known)
        })?;
        if requester.can_access(&job) {
            return Ok(job);
        }
        let reason = format!("job '{}' belongs to another client", job.id);
        Err(reject(RejectCode::NotAllowed, Some("payload.job_id"), reason))
    }

    pub(super) fn find_node(
        &self,
        requester: &Requester,
        job: &str,
        node: NodeNumber,
    ) -> Result<(Arc<Job>, Arc<NodeShared>), CommandRejected> {
        let job = self.find_job(requester, job)?;
        let node = node_of(&job, node.0)?;
        Ok((job, node))
    }
}

/// Builds the acknowledgement for the retry of an accepted injection.
pub(crate) fn duplicate_ack(context: RequestContext<'_>, node: &NodeId, id: String) -> EventBody {
    let at = InjectionRef { job_id: node.job.to_string(), node_id: node.node, injection_id: id };
    let (request_id, client) = (context.request_id.to_owned(), context.requester.client.clone());
    EventBody::InjectAck(Injection { request_id, client, at })
}

fn node_of(job: &Job, node: u32) -> Result<Arc<NodeShared>, CommandRejected> {
    let found = usize::try_from(node).ok().and_then(|node| job.nodes.get(node));
    found.cloned().ok_or_else(|| {
        let reason = format!("payload.node_id: job '{}' has nodes 0 to {}", job.id, job.nodes.len() - 1);
        reject(RejectCode::UnknownNode, Some("payload.node_id"), reason)
    })
}

/// Resolves the nodes of an injection, without duplicates.
fn nodes_of(
    job: &Job,
    node: Option<NodeNumber>,
    nodes: Option<Nodes>,
) -> Result<Vec<Arc<NodeShared>>, CommandRejected> {
    let bad = |field, problem| reject(RejectCode::BadField, Some(field), format!("{field}: {problem}"));
    let mut numbers: Vec<u32> = match (node, nodes) {
        (Some(node), None) | (None, Some(Nodes::One(node))) => vec![node.0],
        (None, Some(Nodes::Some(nodes))) => nodes.into_iter().map(|node| node.0).collect(),
        (None, Some(Nodes::All(_))) => return Ok(job.nodes.clone()),
        (None, None) => return Err(bad("payload.node_id", "missing; it must be an integer, 0 or more")),
        (Some(_), Some(_)) => return Err(bad("payload.nodes", "give either node_id or nodes")),
    };
    if numbers.is_empty() {
        return Err(bad("payload.nodes", "has no node in it"));
    }
    numbers.sort_unstable();
    numbers.dedup();
    numbers.into_iter().map(|number| node_of(job, number)).collect()
}

/// Builds the `job_terminated` event of a job.
pub(crate) fn terminated(job: &Job, request_id: String) -> JobTerminated {
    JobTerminated {
        request_id,
        job_id: job.id.to_string(),
        total_tokens: job.total_tokens.load(Ordering::Relaxed),
    }
}

async fn send_order(node: &NodeShared, order: NodeOrder) -> Result<(), CommandRejected> {
    let sent = node.orders.send(order).await;
    sent.map_err(|_| reject_job_over("the job has ended".to_owned()))
}

pub(super) fn reject_not_now(reason: String) -> CommandRejected {
    reject(RejectCode::NotNow, None, reason)
}

fn reject_job_over(reason: String) -> CommandRejected {
    reject(RejectCode::JobOver, Some("payload.job_id"), reason)
}

/// Returns the reason why a job accepts no further prompts.
pub(crate) fn over_budget_reason(job: &Job) -> String {
    let limit = job.launch.limits.total_tokens.unwrap_or_default();
    format!("job '{}' has used its {limit} tokens and accepts no further prompts", job.id)
}

/// Rejects an injection that a circuit breaker, such as a budget, has stopped.
pub(crate) fn reject_stopped(stop: &TripReason) -> CommandRejected {
    let reason = format!("{stop}. It is stored, and runs when the person resumes it");
    reject(RejectCode::OverBudget, None, reason)
}

/// Rejects an injection because the hub did not accept it.
pub(crate) fn reject_submission(error: &HubError) -> CommandRejected {
    let (code, field) = match error {
        HubError::Conflict { .. } => (RejectCode::DuplicateRequestId, Some("request_id")),
        HubError::BodyTooLarge { .. } => (RejectCode::BadField, Some("payload.content")),
        HubError::Unresolved(_) => (RejectCode::UnknownNode, Some("payload.node_id")),
        _ => (RejectCode::NotAccepted, None),
    };
    let reason = match error {
        HubError::Conflict { .. } => "request_id: another injection used it already".to_owned(),
        error => error.to_string(),
    };
    reject(code, field, reason)
}
