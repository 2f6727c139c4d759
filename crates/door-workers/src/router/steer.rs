//! Steering: text that is added to a running turn. It is journaled like an injection but never starts a turn.

use std::sync::Arc;

use serde_json::json;
use switchboard_core::{Message, NodeId, Outcome};
use switchboard_hub::{Accepted, Handoff};
use tokio::sync::oneshot;

use super::commands::{Handled, reject_not_now, reject_stopped, reject_submission};
use super::{QueueSlot, RequestContext, Requester, Router};
use crate::delivery::METADATA;
use crate::intake::reject;
use crate::job::NodeShared;
use crate::node::NodeOrder;
use crate::wire::command::Steer;
use crate::wire::event::{EventBody, InjectionRef, InjectionReply, RejectCode};

/// Metadata key that marks a steering message, nested below the router's own key.
const STEER: &str = "steer";

/// The turn to which the text was added, or the reason why it was not added.
pub(super) type SteerResult = Result<InjectionRef, String>;

/// Returns true for a steering message.
pub(crate) fn is_steering(message: &Message) -> bool {
    message.metadata.get(METADATA).is_some_and(|metadata| metadata.get(STEER).is_some())
}

impl Router {
    /// Journals text for the running turn of a node, and waits until the agent has accepted the text.
    ///
    /// The log has the confirmation, with the request id.
    pub(super) async fn steer(&self, requester: &Requester, command: Steer, request_id: String) -> Handled {
        let (_, node) = self.find_node(requester, &command.job_id, command.node_id)?;
        if node.state.lock().injection.is_none() {
            return Err(reject_not_now("no turn runs there".to_owned()));
        }
        let by = RequestContext { requester, request_id: &request_id };
        let mut draft = self.build_draft(by, &node, command.content);
        if let Some(noted) = draft.metadata.get_mut(METADATA) {
            noted[STEER] = json!(true);
        }
        let (answer, reply) = oneshot::channel();
        let id = draft.id.to_string();
        self.inner.steering.lock().insert(id.clone(), Some(answer));
        let accepted = self.submit(vec![(draft, QueueSlot::unreserved(&node))]).await.pop();
        let refusal = match accepted {
            Some(Ok(Accepted { stopped: Some(stop), .. })) => Some(reject_stopped(&stop)),
            Some(Ok(accepted)) if !accepted.duplicate => None,
            Some(Err(error)) => Some(reject_submission(&error)),
            _ => {
                let reason = "request_id: it was used before".to_owned();
                Some(reject(RejectCode::DuplicateRequestId, Some("request_id"), reason))
            }
        };
        if let Some(refusal) = refusal {
            self.inner.steering.lock().remove(&id);
            return Err(refusal);
        }
        match tokio::time::timeout(self.config().steer, reply).await {
            Ok(steered) => {
                steered.unwrap_or_else(|_| Err("the node has ended".to_owned())).map_err(reject_not_now)?;
                Ok(Vec::new())
            }
            Err(_) => Err(reject_not_now("the agent did not confirm that it received it".to_owned())),
        }
    }

    /// Sends the steering text of a handoff to the agent, at most once.
    pub(crate) fn steer_turn(&self, id: &NodeId, handoff: Handoff) {
        let message = handoff.message.id.to_string();
        let waiter = self.inner.steering.lock().get_mut(&message).map(Option::take);
        let Some(waiter) = waiter else {
            let reason = "the router was stopped; whether the agent received it is unknown".to_owned();
            return self.report_outcome(&message, handoff, Outcome::Refused { reason });
        };
        let Some(waiter) = waiter else {
            // The lease expired while the agent had not answered yet.
            return self.hold_redelivery(message, handoff);
        };
        let (router, node) = (self.clone(), self.node(id).map(|(_, node)| node));
        let request_id =
            handoff.message.metadata.get(METADATA).and_then(|metadata| metadata.get("request_id"));
        let request_id = request_id.and_then(|id| id.as_str()).unwrap_or_default().to_owned();
        self.spawn(async move {
            let steered = send_steer(node, handoff.message.body.clone()).await;
            let outcome = match &steered {
                Ok(at) => {
                    let answer = InjectionReply { request_id, at: at.clone() };
                    router.log().publish(&EventBody::SteerAck(answer));
                    Outcome::Shown
                }
                Err(reason) => Outcome::Refused { reason: reason.clone() },
            };
            router.inner.steering.lock().remove(&message);
            router.report_outcome(&message, handoff, outcome);
            // The send fails if the requester has timed out.
            let _ = waiter.send(steered);
        });
    }
}

async fn send_steer(node: Option<Arc<NodeShared>>, content: String) -> SteerResult {
    let gone = || "the job has ended".to_owned();
    let node = node.ok_or_else(gone)?;
    let (answer, reply) = oneshot::channel();
    node.orders.send(NodeOrder::Steer { content, answer }).await.map_err(|_| gone())?;
    reply.await.unwrap_or_else(|_| Err("the node has ended".to_owned()))
}

#[cfg(test)]
#[path = "steer_tests.rs"]
mod tests;
