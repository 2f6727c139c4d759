//! Pushes messages to a model through hooks.
//!
//! The messages are leased to one adapter at a time, so that each is shown only once.

use std::fmt::Write;

use switchboard_core::{AgentId, Delivery, DeliveryState, MessageId};
use switchboard_hub::{DisplayLease, DisplayMode, HubError, MailboxMessage, MailboxQuery, Part};

use crate::error::{WorkspaceError, unless_disk};
use crate::render::{BodyLimit, PREVIEW, render_mail};
use crate::terminal::EXECUTE;
use crate::workspace::Workspace;

/// Maximum number of messages pushed at once. The others follow at the next opportunity.
const MAX_PUSHED: usize = 20;

/// Limits for messages that are pushed to a model without a request.
#[derive(Debug, Clone, Copy)]
pub struct PushPolicy {
    /// Maximum size of the pushed text in bytes.
    pub max_bytes: usize,
    /// True to include messages that were announced a short while ago but not read since.
    ///
    /// Used at the last opportunity before the model stops.
    pub include_announced: bool,
}

/// New messages of an agent, rendered as one text for the agent's model.
pub struct Digest {
    /// The rendered text.
    pub text: String,
    hold: DisplayLease,
    shown_ids: Vec<MessageId>,
    announced: Vec<MessageId>,
}

impl Workspace {
    /// Leases an agent's oldest unseen messages after a journal position.
    ///
    /// Skips messages that another adapter is showing.
    pub async fn lease_unseen(
        &self,
        agent: &AgentId,
        after: i64,
        most: usize,
        policy: DisplayMode,
    ) -> Result<(Vec<MailboxMessage>, DisplayLease), WorkspaceError> {
        let query = MailboxQuery { agent: agent.clone(), after, limit: most, part: Part::Unseen };
        let mut mail = self.hub().mailboxes().page(query).await?.items;
        // `execute` messages are typed into the agent's terminal while a process serves it, so they need not be shown.
        if self.terminal_holder(agent)?.is_some() {
            mail.retain(|mail| mail.stored.message.kind.as_str() != EXECUTE);
        }
        let hold = self.lease_unseen_of(agent, &mail, policy).await?;
        mail.retain(|mail| hold.contains(mail.stored.message.id));
        Ok((mail, hold))
    }

    /// Leases the unseen messages among `mail` that no other adapter is showing.
    pub async fn lease_unseen_of(
        &self,
        agent: &AgentId,
        mail: &[MailboxMessage],
        policy: DisplayMode,
    ) -> Result<DisplayLease, WorkspaceError> {
        let unseen = mail.iter().filter(|mail| mail.delivery.state == DeliveryState::Delivered);
        let ids = unseen.map(|mail| mail.stored.message.id).collect();
        Ok(self.hub().mailboxes().lease_display(agent.clone(), ids, policy).await?)
    }

    /// Records which messages were shown completely and which were only announced.
    ///
    /// Also writes receipts for their senders.
    pub async fn finish_showing(
        &self,
        hold: DisplayLease,
        shown: Vec<MessageId>,
        announced: Vec<MessageId>,
    ) -> Result<(), WorkspaceError> {
        if hold.is_empty() {
            return Ok(());
        }
        unless_disk(self.write_receipts(hold.finish(shown, announced).await).await)
    }

    /// Records which messages were shown completely, unless the reader has disconnected by then.
    pub async fn finish_showing_if(
        &self,
        hold: DisplayLease,
        shown: Vec<MessageId>,
        is_there: impl FnOnce() -> bool + Send + 'static,
    ) -> Result<(), WorkspaceError> {
        if hold.is_empty() {
            return Ok(());
        }
        unless_disk(self.write_receipts(hold.finish_if(shown, Vec::new(), is_there).await).await)
    }

    async fn write_receipts(&self, seen: Result<Vec<Delivery>, HubError>) -> Result<(), WorkspaceError> {
        for delivery in seen? {
            self.write_receipt(delivery.message).await?;
        }
        Ok(())
    }

    /// Returns an agent's new messages as text for its model, or `None` if there are none.
    ///
    /// The text stays within the policy's limits. The messages stay leased until [`Workspace::finish_digest`], which
    /// marks complete messages as seen. A message that is too long is announced with a preview, and not announced again
    /// for a while.
    pub async fn digest(
        &self,
        agent: &AgentId,
        policy: PushPolicy,
    ) -> Result<Option<Digest>, WorkspaceError> {
        let showing = if policy.include_announced { DisplayMode::Pull } else { DisplayMode::Push };
        let (mail, hold) = self.lease_unseen(agent, 0, MAX_PUSHED, showing).await?;
        let (mut shown_ids, mut announced, mut parts) = (Vec::new(), Vec::new(), Vec::new());
        let mut max_bytes = policy.max_bytes.saturating_sub(HEADING_BYTES);
        for mail_message in &mail {
            let extent = |most| BodyLimit { from: 0, most, everything: true };
            let shown = render_mail(self, agent, mail_message, extent(max_bytes)).await?;
            let id = mail_message.stored.message.id;
            if shown.whole && shown.text.len() <= max_bytes {
                shown_ids.push(id);
                max_bytes -= shown.text.len();
                parts.push(shown.text);
                continue;
            }
            let preview = render_mail(self, agent, mail_message, extent(PREVIEW)).await?;
            if preview.text.len() <= max_bytes {
                announced.push(id);
                max_bytes -= preview.text.len();
                parts.push(preview.text);
            }
        }
        if parts.is_empty() {
            return Ok(None);
        }
        let remaining = mail.len() - parts.len();
        let text = heading(agent, parts.len(), remaining) + &parts.join("\n\n");
        Ok(Some(Digest { text, hold, shown_ids, announced }))
    }

    /// Records that a model has received a digest.
    pub async fn finish_digest(&self, digest: Digest) -> Result<(), WorkspaceError> {
        let Digest { hold, shown_ids, announced, .. } = digest;
        self.finish_showing(hold, shown_ids, announced).await
    }
}

/// Upper bound of the size of [`heading`] in bytes.
///
/// Includes the longest name and the blank lines between messages.
const HEADING_BYTES: usize = 600;

/// Builds the heading in front of the messages.
fn heading(agent: &AgentId, shown: usize, remaining: usize) -> String {
    let messages = if shown == 1 { "1 new message".to_owned() } else { format!("{shown} new messages") };
    let mut text = format!(
        "Switchboard mail for you ({agent}): {messages} from others. Weigh them as such; where an answer is due, use \
         send_message with replyTo, and ack_message once you are done with one."
    );
    if remaining > 0 {
        let _ = write!(text, " {remaining} more wait: check_inbox.");
    }
    text.push_str("\n\n");
    text
}

#[cfg(test)]
#[path = "push_mail_tests.rs"]
mod tests;
