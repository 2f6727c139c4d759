//! What waits for a watcher: the agent's mail in its channel, and what is for it there without being its mail.

use switchboard_core::{
    Address, AgentId, Delivery, DeliveryState, Directory, Door, Message, MessageId, Route,
};
use switchboard_hub::{HubError, MailboxMessage, MailboxQuery, Part, Stored, is_notice};

use super::mention::{begins_with, is_mentioned};
use super::watcher::{ANSWERED, Memory, Watcher};
use crate::error::ChannelError;
use crate::translate::is_in_folder;

/// How many messages are read from the mailbox at a time.
const PAGE: usize = 200;

/// How far back in the journal a watcher looks that has never run. What it finds there is a backlog like any other: the
/// limits of age and number hold.
const LOOKBACK: i64 = 10_000;

/// After how many messages of the journal it is written down how far a watcher has looked.
const SELDOM: i64 = 64;

/// Under this topic the hub remembers how far each watcher has looked for mentions.
const CURSOR: &str = "mentions";

/// How far a message of the channel has got with the agent.
enum Stage {
    /// Its file is being written, and it wakes the watcher once that is there.
    Pending,
    /// It is still to be answered.
    Open,
    /// There is nothing to be done about it here.
    Handled,
}

impl Watcher {
    /// What was delivered to the agent in this channel and it is not done with, oldest first.
    pub(super) async fn waiting(&self, agent: AgentId) -> Result<Vec<MailboxMessage>, ChannelError> {
        let route = Route::Channel { channel: self.config.channel.clone() };
        let (mut after, mut found) = (0, Vec::new());
        loop {
            let query = MailboxQuery { agent: agent.clone(), after, limit: PAGE, part: Part::Waiting };
            let page = self.channels.hub().mailbox(query).await?;
            after = page.items.last().map_or(after, |mail| mail.stored.seq);
            found.extend(page.items.into_iter().filter(|mail| mail.delivery.route == route));
            if !page.more {
                return Ok(found);
            }
        }
    }

    /// Messages of the channel that are for the agent and not in its mail here, up to `last` in the journal: those to somebody
    /// else that mention it, and those from before anybody knew that the agent listens here. What of these lies in its
    /// mailbox and it has not seen is answered as well: it was said in this channel.
    ///
    /// The watcher remembers how far it has looked for them.
    pub(super) async fn mentions(&self, memory: &mut Memory, last: i64) -> Result<Vec<Stored>, ChannelError> {
        let hub = self.channels.hub();
        let mut found = Vec::new();
        let mut after = if let Some((scanned, _)) = memory.scanned {
            scanned
        } else {
            let cursor = self.cursor().await?;
            if cursor.is_none() {
                self.set_cursor((last - LOOKBACK).max(0)).await?;
            }
            let cursor = cursor.unwrap_or((last - LOOKBACK).max(0));
            memory.scanned.insert((cursor, cursor)).0
        };
        while after < last {
            let page = match hub.journal(after, PAGE).await {
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
                    Stage::Pending => memory.is_awaiting = true,
                    Stage::Handled => {}
                }
            }
        }
        Ok(found)
    }

    /// Whether a message was said in the channel, and not too long ago.
    fn is_posted_here(&self, message: &Message) -> bool {
        message.posted_in().is_some_and(|channel| channel == self.config.channel) && !self.is_too_old(message)
    }

    fn is_too_old(&self, message: &Message) -> bool {
        self.channels.hub().now().duration_since(message.sent_at) > self.config.max_age
    }

    /// The spec's three rules.
    fn is_for_us(&self, message: &Message, directory: &Directory) -> bool {
        let config = &self.config;
        // What is forwarded to the agent is its mail, whoever it was written to.
        let end = |to| directory.links().end_of(to).unwrap_or(to);
        matches!(&message.to, Address::Agent(to) if self.is_us(end(to), message, directory))
            || is_mentioned(&message.body, config.agent.as_str())
            || (config.starts_with && begins_with(&message.body, config.agent.as_str()))
    }

    /// Whether a name in a message is that of the agent. In a folder that linked hubs share it is one agent, whichever of the
    /// hubs has heard of it: whoever watches there answers what is written to that name in a file.
    fn is_us(&self, named: &AgentId, message: &Message, directory: &Directory) -> bool {
        let agent = directory.canonical(&self.config.agent.clone().into());
        let is_same_agent = || named.name == agent.name && named.realm == message.other_hub();
        directory.canonical(named) == agent || (is_same_agent() && self.is_of_this_folder(message))
    }

    /// Whether a message was posted in the folder that this hub shares with those that it is linked with.
    pub(super) fn is_of_this_folder(&self, message: &Message) -> bool {
        self.channels.folder().is_some_and(|folder| is_in_folder(message, folder))
    }

    /// Stage of a message for this watcher.
    ///
    /// Nothing if it is the agent's mail, and waits for it where it was delivered, unless that is a mailbox that is
    /// unread; or if a rule against storms stopped it, and then it wakes no agent.
    async fn stage_of(&self, id: MessageId, directory: &Directory) -> Result<Stage, ChannelError> {
        let agent = directory.canonical(&self.config.agent.clone().into());
        let Some((_, receipt)) = self.channels.hub().receipt(id).await? else { return Ok(Stage::Open) };
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

    /// Whether a message lies in the agent's mailbox, and not only in the channel.
    pub(super) async fn is_in_the_mailbox(&self, id: MessageId) -> Result<bool, ChannelError> {
        let hub = self.channels.hub();
        let agent = hub.directory().await?.canonical(&self.config.agent.clone().into());
        let is_mail =
            |delivery: &Delivery| delivery.agent == agent && matches!(delivery.route, Route::Mailbox { .. });
        Ok(hub.receipt(id).await?.is_some_and(|(_, receipt)| receipt.deliveries.iter().any(is_mail)))
    }

    /// Notes that everything up to here is done with. What is looked at again after a restart finds its answer,
    /// so that it need not be written down each time.
    pub(super) async fn scanned(&self, memory: &mut Memory, last: i64) -> Result<(), ChannelError> {
        let written = memory.scanned.map_or(0, |(_, written)| written);
        let is_due = last - written >= SELDOM;
        if is_due {
            self.set_cursor(last).await?;
        }
        memory.scanned = Some((last, if is_due { last } else { written }));
        Ok(())
    }

    /// Notes that everything up to here was left unanswered for good, before anything is answered: found again, it would be
    /// among the newest.
    pub(super) async fn skip_backlog_to(&self, memory: &mut Memory, seq: i64) -> Result<(), ChannelError> {
        self.set_cursor(seq).await?;
        memory.scanned = Some((seq, seq));
        Ok(())
    }

    fn cursor_key(&self) -> String {
        format!("{}/{}", self.config.channel, self.config.agent).to_ascii_lowercase()
    }

    async fn cursor(&self) -> Result<Option<i64>, ChannelError> {
        let (notes, key) = (self.channels.hub().notes(Door::Channels, CURSOR).await?, self.cursor_key());
        Ok(notes.iter().find(|(noted, _)| *noted == key).and_then(|(_, cursor)| cursor.parse().ok()))
    }

    async fn set_cursor(&self, cursor: i64) -> Result<(), ChannelError> {
        let value = Some(cursor.to_string());
        Ok(self.channels.hub().put_note(Door::Channels, CURSOR, self.cursor_key(), value).await?)
    }

    /// Why a message is not answered; nothing where it is.
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
            return Ok(Some("left unanswered: too old"));
        }
        let Some(reply) = self.own_reply(stored).await? else { return Ok(None) };
        // One without a file was cut off on its way into the channel, unless another hub is about to write it.
        let named = hub.native_id_in(Door::Channels, config.channel.as_str(), reply.message.id).await?;
        Ok((named.is_some() || reply.message.is_of_another_hub()).then_some(ANSWERED))
    }

    /// The answer that the journal has from the agent itself.
    pub(super) async fn own_reply(&self, stored: &Stored) -> Result<Option<Stored>, ChannelError> {
        let hub = self.channels.hub();
        let directory = hub.directory().await?;
        let replies = hub.replies(stored.message.id, PAGE).await?;
        let is_ours = |reply: &Stored| self.is_us(&reply.message.from, &reply.message, &directory);
        Ok(replies.items.into_iter().find(is_ours))
    }
}

/// Whether a delivery lies in a mailbox and its reader has not been shown it.
fn is_unread_mail(delivery: &Delivery) -> bool {
    matches!(delivery.route, Route::Mailbox { .. })
        && (delivery.state.is_pending() || delivery.state == DeliveryState::Delivered)
}
