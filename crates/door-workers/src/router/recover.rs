//! Recovery after a restart: restores jobs from the hub's notes and running injections from the log.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error, StrDeserializer};
use switchboard_core::{JobId, NodeId};

use super::Router;
use super::replies::PendingReplies;
use crate::error::RouterError;
use crate::job::{FinishedTurn, JobRecord};
use crate::turn::Turn;
use crate::wire::EventHead;
use crate::wire::event::{EventBody, Injection, InjectionRef, TurnStatus};

/// Maximum number of finished injections that are remembered.
///
/// The hub redelivers a handoff with an expired lease within a minute.
const FINISHED: usize = 50_000;

/// State of injections that the hub may redeliver, used to deduplicate them.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Injections that were acknowledged before this router started.
    acked: HashMap<String, Acked>,
    finished: HashSet<String>,
    /// Finished injections in the order in which they finished, so that the oldest can be forgotten.
    order: VecDeque<String>,
}

/// Progress of an injection that an earlier router acknowledged.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Acked {
    /// The injection was queued; the number is its first event, which is pinned.
    Waiting(u64),
    /// The prompt was sent to the agent, or was about to be sent.
    ///
    /// The hub may redeliver the injection before the outcome of the prompt is known.
    Sent,
}

impl History {
    /// Records that an injection has finished.
    pub(crate) fn finish(&mut self, injection: &str) {
        self.acked.remove(injection);
        if self.finished.insert(injection.to_owned()) {
            self.order.push_back(injection.to_owned());
        }
        if self.order.len() > FINISHED
            && let Some(oldest) = self.order.pop_front()
        {
            self.finished.remove(&oldest);
        }
    }

    /// Returns true if the injection has finished.
    pub(crate) fn is_finished(&self, injection: &str) -> bool {
        self.finished.contains(injection)
    }

    /// Returns true if an injection was acknowledged before this router started and has not been redelivered since.
    pub(crate) fn is_acked(&self, injection: &str) -> bool {
        self.acked.contains_key(injection)
    }

    /// Removes and returns the progress of an injection that an earlier router acknowledged.
    pub(crate) fn remove_acked(&mut self, injection: &str) -> Option<Acked> {
        self.acked.remove(injection)
    }
}

/// Progress of an injection, as reconstructed from the log.
struct InjectionTrace {
    injection: Injection,
    pin: u64,
    was_sent: bool,
    was_delivered: bool,
    answer: Option<String>,
}

#[derive(Default)]
struct Traces {
    open: HashMap<String, InjectionTrace>,
    /// Approvals that were decided.
    answered: HashSet<String>,
    history: History,
    answers: PendingReplies,
}

impl Traces {
    fn apply(&mut self, head: EventHead) {
        let EventHead { seq, timestamp, event, data } = head;
        let Some(id) = data.injection_id else { return };
        match event.as_str() {
            "inject_ack" => {
                let (Some(job_id), Some(node_id), Some(request_id)) =
                    (data.job_id, data.node_id, data.request_id)
                else {
                    return;
                };
                let at = InjectionRef { job_id, node_id, injection_id: id.clone() };
                let injection = Injection { request_id, client: data.client.unwrap_or_default(), at };
                let trace = InjectionTrace {
                    injection,
                    pin: seq,
                    was_sent: false,
                    was_delivered: false,
                    answer: None,
                };
                self.open.insert(id, trace);
            }
            "node_status" if data.status.as_deref() == Some("busy") => {
                self.open.entry(id).and_modify(|trace| trace.was_sent = true);
            }
            "inject_delivered" => drop(self.open.entry(id).and_modify(|trace| trace.was_delivered = true)),
            "approval_resolved" => self.answered.extend(data.approval_id),
            "assistant" => drop(self.open.entry(id).and_modify(|trace| trace.answer = data.content)),
            "turn_complete" => {
                self.history.finish(&id);
                let status = data.status.as_deref().and_then(parse_status);
                let at = timestamp.parse::<Timestamp>().ok();
                if let (Some(trace), Some(status), Some(at)) = (self.open.remove(&id), status, at) {
                    let InjectionTrace { injection, answer, .. } = trace;
                    self.answers.push(at, FinishedTurn { injection, status, error: data.error, answer });
                }
            }
            _ => {}
        }
    }
}

impl Router {
    /// Resumes the jobs that were running, and ends the injections of jobs that no longer exist.
    pub(super) async fn recover(&self, records: Vec<(String, String)>) -> Result<(), RouterError> {
        let mut traces = Traces::default();
        self.log().scan(|head| traces.apply(head))?;
        let Traces { open, answered, mut history, answers } = traces;
        let mut unconfirmed: HashMap<NodeId, InjectionTrace> = HashMap::new();
        for (id, trace) in open {
            self.log().pin(trace.pin);
            let job = JobId::parse(&trace.injection.at.job_id);
            match job {
                Some(job) if trace.was_sent => {
                    history.acked.insert(id, Acked::Sent);
                    unconfirmed.insert(NodeId { job, node: trace.injection.at.node_id }, trace);
                }
                _ => drop(history.acked.insert(id, Acked::Waiting(trace.pin))),
            }
        }
        *self.history().lock() = history;
        for (id, record) in records {
            let (Some(id), Ok(mut record)) = (JobId::parse(&id), serde_json::from_str::<JobRecord>(&record))
            else {
                tracing::warn!(job = id, "skipped a job record that cannot be read");
                continue;
            };
            let is_over = record.terminated_at.is_some();
            let approvals = std::mem::take(&mut record.approvals);
            let was_asked = !approvals.is_empty();
            for required in approvals.into_values() {
                if !answered.contains(&required.approval_id) {
                    self.log().append(&EventBody::ApprovalResolved(required.into_cancelled()));
                }
            }
            let mut taken = |node: u32| {
                let trace = unconfirmed.remove(&NodeId { job: id.clone(), node })?;
                self.log().unpin(trace.pin);
                Some(restore_turn(trace))
            };
            let turns: Vec<_> =
                (0..record.launch.nodes).map(|n| if is_over { None } else { taken(n) }).collect();
            let job = self.build_job(id.clone(), record)?;
            job.0.is_dirty.store(was_asked, Ordering::Relaxed);
            self.inner.jobs.lock().insert(id.clone(), Arc::clone(&job.0));
            if !is_over {
                self.start_nodes(job, turns);
            }
        }
        // No node will run the injections of unknown jobs.
        for (_, trace) in unconfirmed {
            self.log().unpin(trace.pin);
            let mut turn = restore_turn(trace);
            let reason = "the record of the job is gone".to_owned();
            for event in turn.end(TurnStatus::WorkerLost, Some(reason), 0) {
                self.log().append(&event);
            }
            self.history().lock().finish(&turn.at().injection_id);
        }
        self.log().flush();
        self.send_pending_replies(answers).await;
        self.forget_old_jobs().await;
        Ok(())
    }
}

fn parse_status(word: &str) -> Option<TurnStatus> {
    let word: StrDeserializer<'_, Error> = word.into_deserializer();
    TurnStatus::deserialize(word).ok()
}

fn restore_turn(trace: InjectionTrace) -> Turn {
    if trace.was_delivered { Turn::delivered(trace.injection) } else { Turn::new(trace.injection) }
}
