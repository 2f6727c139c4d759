//! Queue of a watcher: the agent's pending deliveries in its channel, and mentions of the agent there.

use switchboard_core::{
    Address, AgentId, Delivery, DeliveryState, Directory, Door, Message, MessageId, Route,
};
use switchboard_hub::{HubError, MailboxMessage, MailboxQuery, Part, Stored, is_notice};

use super::mention::{begins_with, is_mentioned};
use super::watcher::{ANSWERED, Watcher, WatcherState};
use crate::error::ChannelError;
use crate::translate::is_in_folder;

/// Number of messages per read of the mailbox.
const PAGE: usize = 200;

/// Number of journal entries that the first run searches for mentions. The limits of age and number also apply.
const LOOKBACK: i64 = 10_000;

/// Number of journal entries after which the cursor is saved.
const SELDOM: i64 = 64;

/// Note topic of each watcher's cursor in the journal, up to which it has searched for mentions.
const CURSOR: &str = "mentions";

/// Stage of a channel message in the queue of this agent.
enum Stage {
    /// The message's file is being written; its delivery then wakes the watcher.
    Pending,
    /// The message is to be answered.
    Open,
    /// Nothing is left to do for this watcher.
    Handled,
}

impl Watcher {
    /// Returns the agent's unfinished deliveries in this channel, oldest first.
    pub(super) async fn waiting(&self, agent: AgentId) -> Result<Vec<MailboxMessage>, ChannelError> {
        let route = Route::Channel { channel: self.config.channel.clone() };
        let (mut after, mut found) = (0, Vec::new());
        loop {
            let query = MailboxQuery { agent: agent.clone(), after, limit: PAGE, part: Part::Waiting };
            let page = self.channels.hub().mailboxes().page(query).await?;
            after = page.items.last().map_or(after, |mail| mail.stored.seq);
            found.extend(page.items.into_iter().filter(|mail| mail.delivery.route == route));
            if !page.more {
                return Ok(found);
            }
        }
    }

    /// Returns messages of the channel for the agent that are not delivered to it here, up to `last` in the journal.
    ///
    /// These are mentions in messages to other agents, and messages from before the agent was known as a reader. A
    /// message with an unread copy in the agent's mailbox is answered as well. Saves the cursor.
    pub(super) async fn mentions(
        &self,
        state: &mut WatcherState,
        last: i64,
    ) -> Result<Vec<Stored>, ChannelError> {
        let hub = self.channels.hub();
        let mut found = Vec::new();
        let mut after = if let Some((scanned, _)) = state.scanned {
            scanned
        } else {
            let cursor = self.cursor().await?;
            if cursor.is_none() {
                self.set_cursor((last - LOOKBACK).max(0)).await?;
            }
            let cursor = cursor.unwrap_or((last - LOOKBACK).max(0));
            state.scanned.insert((cursor, cursor)).0
        };
        while after < last {
            let page = match hub.journal().entries(after, PAGE).await {
                Err(HubError::CursorExpired { oldest, .. }) => {
                    after = oldest - 1;
                    continue;
                }
                page => page?,
            };
            let Some(end) = page.items.last().map(|stored| stored.seq) else { break };
            after = end;
            let directory = hub.directory().await?;
            for stored in page.items {
                if !self.is_posted_here(&stored.message) || !self.is_for_us(&stored.message, &directory) {
                    continue;
                }
                match self.stage_of(stored.message.id, &directory).await? {
                    Stage::Open => found.push(stored),
                    Stage::Pending => state.is_awaiting = true,
                    Stage::Handled => {}
                }
            }
        }
        Ok(found)
    }

    /// Returns true if a message was posted in the channel and is not too old.
    fn is_posted_here(&self, message: &Message) -> bool {
        message.posted_in().is_some_and(|channel| channel == self.config.channel) && !self.is_too_old(message)
    }

    fn is_too_old(&self, message: &Message) -> bool {
        self.channels.hub().now().duration_since(message.sent_at) > self.config.max_age
    }

    /// Returns true if a message is for the agent by the three rules of the protocol.
    fn is_for_us(&self, message: &Message, directory: &Directory) -> bool {
        let config = &self.config;
        // A message that is forwarded to the agent is for the agent, even if its address names another one.
        let end = |to| directory.routing_rules().forward_target(to).unwrap_or(to);
        matches!(&message.to, Address::Agent(to) if self.is_us(end(to), message, directory))
            || is_mentioned(&message.body, config.agent.as_str())
            || (config.starts_with && begins_with(&message.body, config.agent.as_str()))
    }

    /// Returns true if a name in a message refers to the agent.
    ///
    /// In a folder that linked hubs share, a name refers to the same agent on every hub: the agent's watcher answers
    /// any file that is addressed to that name.
    fn is_us(&self, named: &AgentId, message: &Message, directory: &Directory) -> bool {
        let agent = directory.canonical(&self.config.agent.clone().into());
        let is_same_agent = || named.name == agent.name && named.realm == message.origin_hub();
        directory.canonical(named) == agent || (is_same_agent() && self.is_of_this_folder(message))
    }

    /// Returns true if a message was posted in the folder that this hub shares with linked hubs.
    pub(super) fn is_of_this_folder(&self, message: &Message) -> bool {
        self.channels.folder().is_some_and(|folder| is_in_folder(message, folder))
    }

    /// Returns the stage of a message for this watcher.
    ///
    /// Delivered messages are handled where they were delivered, except for unread mailbox copies. A message
    /// that loop protection stopped wakes no agent.
    async fn stage_of(&self, id: MessageId, directory: &Directory) -> Result<Stage, ChannelError> {
        let agent = directory.canonical(&self.config.agent.clone().into());
        let Some((_, receipt)) = self.channels.hub().journal().receipt(id).await? else {
            return Ok(Stage::Open);
        };
        let is_ours = |delivery: &&Delivery| directory.canonical(&delivery.agent) == agent;
        let is_on_the_way = |delivery: &Delivery| {
            delivery.state.is_pending() && matches!(delivery.route, Route::Channel { .. })
        };
        let is_stopped = receipt.deliveries.iter().any(|delivery| delivery.state == DeliveryState::Refused);
        Ok(match receipt.deliveries.iter().find(is_ours) {
            Some(delivery) if is_on_the_way(delivery) => Stage::Pending,
            Some(delivery) if !is_unread_mail(delivery) => Stage::Handled,
            _ if is_stopped => Stage::Handled,
            _ => Stage::Open,
        })
    }

    /// Returns true if a message is also in the agent's mailbox.
    pub(super) async fn is_in_the_mailbox(&self, id: MessageId) -> Result<bool, ChannelError> {
        let hub = self.channels.hub();
        let agent = hub.directory().await?.canonical(&self.config.agent.clone().into());
        let is_mail =
            |delivery: &Delivery| delivery.agent == agent && matches!(delivery.route, Route::Mailbox { .. });
        Ok(hub
            .journal()
            .receipt(id)
            .await?
            .is_some_and(|(_, receipt)| receipt.deliveries.iter().any(is_mail)))
    }

    /// Advances the cursor: all mentions up to `last` are handled. It is saved only occasionally, because a message
    /// that is read again after a restart already has its answer.
    pub(super) async fn scanned(&self, state: &mut WatcherState, last: i64) -> Result<(), ChannelError> {
        let written = state.scanned.map_or(0, |(_, written)| written);
        let is_due = last - written >= SELDOM;
        if is_due {
            self.set_cursor(last).await?;
        }
        state.scanned = Some((last, if is_due { last } else { written }));
        Ok(())
    }

    /// Advances the cursor past messages that stay unanswered. It is saved before the first answer; otherwise, after a
    /// restart, these messages would count among the newest.
    pub(super) async fn skip_backlog_to(
        &self,
        state: &mut WatcherState,
        seq: i64,
    ) -> Result<(), ChannelError> {
        self.set_cursor(seq).await?;
        state.scanned = Some((seq, seq));
        Ok(())
    }

    fn cursor_key(&self) -> String {
        format!("{}/{}", self.config.channel, self.config.agent).to_ascii_lowercase()
    }

    async fn cursor(&self) -> Result<Option<i64>, ChannelError> {
        let (notes, key) = (self.channels.hub().notes(Door::Channels).all(CURSOR).await?, self.cursor_key());
        Ok(notes.iter().find(|(noted, _)| *noted == key).and_then(|(_, cursor)| cursor.parse().ok()))
    }

    async fn set_cursor(&self, cursor: i64) -> Result<(), ChannelError> {
        let value = Some(cursor.to_string());
        Ok(self.channels.hub().notes(Door::Channels).put(CURSOR, self.cursor_key(), value).await?)
    }

    /// Returns the reason why a message is not answered; `None` if it is to be answered.
    pub(super) async fn skip_reason(&self, stored: &Stored) -> Result<Option<&'static str>, ChannelError> {
        let message = &stored.message;
        let (hub, config) = (self.channels.hub(), &self.config);
        let directory = hub.directory().await?;
        if self.is_us(&message.from, message, &directory) {
            return Ok(Some("its own"));
        }
        if is_notice(message) {
            return Ok(Some("read"));
        }
        if !self.is_for_us(message, &directory) {
            return Ok(Some("read"));
        }
        if self.is_too_old(message) {
            return Ok(Some("not answered: too old"));
        }
        let Some(reply) = self.own_reply(stored).await? else { return Ok(None) };
        // A reply without a file was interrupted, unless another hub is about to write the file.
        let named =
            hub.native_ids().of_message(Door::Channels, config.channel.as_str(), reply.message.id).await?;
        Ok((named.is_some() || reply.message.is_from_other_hub()).then_some(ANSWERED))
    }

    /// Returns the agent's own answer to a message, if the journal has one.
    pub(super) async fn own_reply(&self, stored: &Stored) -> Result<Option<Stored>, ChannelError> {
        let hub = self.channels.hub();
        let directory = hub.directory().await?;
        let replies = hub.journal().replies(stored.message.id, PAGE).await?;
        let is_ours = |reply: &Stored| self.is_us(&reply.message.from, &reply.message, &directory);
        Ok(replies.items.into_iter().find(is_ours))
    }
}

/// Returns true if a delivery is in a mailbox and unread.
fn is_unread_mail(delivery: &Delivery) -> bool {
    matches!(delivery.route, Route::Mailbox { .. })
        && (delivery.state.is_pending() || delivery.state == DeliveryState::Delivered)
}
