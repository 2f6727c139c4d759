//! Mail put before a model: taken by one adapter at a time, shown once.

use std::fmt::Write;

use switchboard_core::{AgentId, Delivery, DeliveryState, MessageId};
use switchboard_hub::{DisplayLease, DisplayMode, HubError, MailboxMessage, MailboxQuery, Part};

use crate::error::{WorkspaceError, unless_disk};
use crate::render::{BodyLimit, PREVIEW, render_mail};
use crate::terminal::EXECUTE;
use crate::workspace::Workspace;

/// Most messages that are put before a model at once, unasked. The others come with the next occasion.
const MOST: usize = 20;

/// How mail may be put before a model that did not ask for it.
#[derive(Debug, Clone, Copy)]
pub struct PushPolicy {
    /// Bytes that there is room for.
    pub max_bytes: usize,
    /// Also what the model was told of a short while ago and has not read: the last occasion before it stops.
    pub include_announced: bool,
}

/// New mail of an agent as one text, for its model.
pub struct Digest {
    /// The text.
    pub text: String,
    hold: DisplayLease,
    whole: Vec<MessageId>,
    told: Vec<MessageId>,
}

impl Workspace {
    /// The oldest messages that an agent has not seen and that nobody else is about to show; they are held.
    pub(crate) async fn lease_unseen(
        &self,
        agent: &AgentId,
        most: usize,
        policy: DisplayMode,
    ) -> Result<(Vec<MailboxMessage>, DisplayLease), WorkspaceError> {
        let query = MailboxQuery { agent: agent.clone(), after: 0, limit: most, part: Part::Unseen };
        let mut mail = self.hub().mailbox(query).await?.items;
        // What is to be executed needs no showing where somebody types it into the agent's terminal.
        if self.terminal_holder(agent)?.is_some() {
            mail.retain(|mail| mail.stored.message.kind.as_str() != EXECUTE);
        }
        let hold = self.lease_unseen_of(agent, &mail, policy).await?;
        mail.retain(|mail| hold.contains(mail.stored.message.id));
        Ok((mail, hold))
    }

    /// Holds what is unseen among these and what nobody else is about to show.
    pub async fn lease_unseen_of(
        &self,
        agent: &AgentId,
        mail: &[MailboxMessage],
        policy: DisplayMode,
    ) -> Result<DisplayLease, WorkspaceError> {
        let unseen = mail.iter().filter(|mail| mail.delivery.state == DeliveryState::Delivered);
        let ids = unseen.map(|mail| mail.stored.message.id).collect();
        Ok(self.hub().lease_display(agent.clone(), ids, policy).await?)
    }

    /// Notes what was shown in full and what was only told of; senders get their receipts.
    pub async fn finish_showing(
        &self,
        hold: DisplayLease,
        shown: Vec<MessageId>,
        told: Vec<MessageId>,
    ) -> Result<(), WorkspaceError> {
        if hold.is_empty() {
            return Ok(());
        }
        unless_disk(self.write_receipts(hold.finish(shown, told).await).await)
    }

    /// Notes what was shown in full, unless the reader is gone by the time that this is written down.
    pub(crate) async fn finish_showing_if(
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

    /// New mail of an agent for its model, as much as there is room for; nothing where there is none.
    ///
    /// It is held until [`Workspace::finish_digest`] says that the model has it. Whole messages count as seen then. Of one
    /// that is too long the model is told, and not again for a while.
    pub async fn digest(
        &self,
        agent: &AgentId,
        policy: PushPolicy,
    ) -> Result<Option<Digest>, WorkspaceError> {
        let showing = if policy.include_announced { DisplayMode::Pull } else { DisplayMode::Push };
        let (mail, hold) = self.lease_unseen(agent, MOST, showing).await?;
        let (mut whole, mut told, mut parts) = (Vec::new(), Vec::new(), Vec::new());
        let mut max_bytes = policy.max_bytes.saturating_sub(HEADING_BYTES);
        for one in &mail {
            let extent = |most| BodyLimit { from: 0, most, everything: true };
            let shown = render_mail(self, agent, one, extent(max_bytes)).await?;
            let id = one.stored.message.id;
            if shown.whole && shown.text.len() <= max_bytes {
                whole.push(id);
                max_bytes -= shown.text.len();
                parts.push(shown.text);
                continue;
            }
            let preview = render_mail(self, agent, one, extent(PREVIEW)).await?;
            if preview.text.len() <= max_bytes {
                told.push(id);
                max_bytes -= preview.text.len();
                parts.push(preview.text);
            }
        }
        if parts.is_empty() {
            return Ok(None);
        }
        let left = mail.len() - parts.len();
        let text = heading(agent, parts.len(), left) + &parts.join("\n\n");
        Ok(Some(Digest { text, hold, whole, told }))
    }

    /// Notes that a model has what it was to be shown.
    pub async fn finish_digest(&self, digest: Digest) -> Result<(), WorkspaceError> {
        let Digest { hold, whole, told, .. } = digest;
        self.finish_showing(hold, whole, told).await
    }
}

/// What [`heading`] takes at most, with the longest name and the blank lines between messages.
const HEADING_BYTES: usize = 600;

/// What a model is told before the messages.
fn heading(agent: &AgentId, shown: usize, left: usize) -> String {
    let messages = if shown == 1 { "1 new message".to_owned() } else { format!("{shown} new messages") };
    let mut text = format!(
        "Switchboard mail for you ({agent}): {messages} from others. Weigh them as such; where an answer is due, use \
         send_message with replyTo, and ack_message once you are done with one."
    );
    if left > 0 {
        let _ = write!(text, " {left} more wait: check_inbox.");
    }
    text.push_str("\n\n");
    text
}

#[cfg(test)]
#[path = "push_mail_tests.rs"]
mod tests;
